"""An operation of a forward pass, as backward rules see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.nn import functional as F

from whyformer.errors import UnsupportedModel
from whyformer.watching.operation_names import Function

GradInputs = Sequence[Tensor | None]


@dataclass(frozen=True)
class Linear:
    """A linear operation without its bias: the indices of x and W, z = apply(x, W), and its transpose."""

    x: int
    weight: int
    apply: Callable[[Tensor, Tensor], Tensor]
    apply_transposed: Callable[[Tensor, Tensor, torch.Size], Tensor]
    bias: int | None = None
    bias_axis: int = -1


@dataclass(eq=False)
class Operation:
    """The inputs and output of an operation. `source` is the relevant input if there is one, `map` the attention map.

    `arguments` are those that the inputs are among: args and kwargs.
    """

    kind: str
    function: Function
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    inputs: tuple[Tensor, ...]
    output: Tensor
    batch: int
    examples: Mapping[int, Tensor] = field(default_factory=dict, kw_only=True)
    source: int = 0
    map: int = 0
    form: Linear | None = None
    signs: tuple[float, ...] = (1.0, 1.0)
    axis: int = -1  # of a softmax

    def __post_init__(self) -> None:
        self._edge = get_gradient_edge(self.output) if self.output.requires_grad else None
        self._versions = self._counted()
        self.examples_second = self._is_second()

    def keep_output(self) -> None:
        """Copy the output: the model is about to change it in place."""
        with torch.enable_grad():
            self.output = self.output.clone()
        self._edge = get_gradient_edge(self.output) if self.output.requires_grad else None
        self._versions = self._counted()

    def forget_output(self) -> None:
        """Free the output: the rule reads the gradient only."""
        self.output = self.output.new_empty(0)
        self._versions = self._counted()

    def check_unchanged(self) -> None:
        """Raise if the model has changed the inputs or the output in place."""
        if self._versions != self._counted():
            raise UnsupportedModel("The model changes a tensor in place that its relevance needs.")

    def _counted(self) -> list[int]:
        return [x._version for x in (*self.inputs, self.output) if not x.is_inference()]

    def gradient(self, grad_output: Tensor) -> GradInputs:
        """The gradient of each input that requires grad."""
        assert self._edge is not None
        leaves = [x for x in self.inputs if x.requires_grad]
        gradients = iter(torch.autograd.grad(self._edge, leaves, grad_output, retain_graph=True, allow_unused=True))
        return [next(gradients) if x.requires_grad else None for x in self.inputs]

    def slope_at_zero(self) -> float:
        """The gradient of an elementwise function at 0."""
        args, kwargs = self.arguments
        settings = tuple((name, x) for name, x in (*enumerate(args), *kwargs.items()) if not isinstance(x, Tensor))
        return _slope_at_zero(self.function, self.output.dtype, settings)

    def to(self, number: int, grad_inputs: Tensor) -> GradInputs:
        """Assign everything to one input, summed over its broadcast axes."""
        return [grad_inputs.sum_to_size(x.shape) if n == number else None for n, x in enumerate(self.inputs)]

    @property
    def linear(self) -> Linear:
        assert self.form is not None
        return self.form

    @property
    def x(self) -> Tensor:
        """The input of a linear operation."""
        return self.inputs[self.linear.x].detach()

    @property
    def weight(self) -> Tensor:
        return self.inputs[self.linear.weight].detach()

    @property
    def unbiased(self) -> Tensor:
        """The output of a linear operation, minus its bias."""
        if self.linear.bias is None:
            return self.output.detach()
        bias = self.inputs[self.linear.bias].detach()
        axes = [1] * self.output.dim()
        axes[self.linear.bias_axis] = -1
        return self.output.detach() - bias.reshape(axes)

    def apply(self, x: Tensor, weight: Tensor) -> Tensor:
        """Apply the linear operation, without bias, to another input and weight."""
        return self.linear.apply(x, weight)

    def apply_transposed(self, factor: Tensor, weight: Tensor) -> Tensor:
        """Apply the transpose of the linear operation to `factor`."""
        return self.linear.apply_transposed(factor, weight, self.x.shape)

    def to_x(self, grad_inputs: Tensor) -> GradInputs:
        return self.to(self.linear.x, grad_inputs)

    @property
    def addends(self) -> list[Tensor]:
        """The two signed terms of a sum; −∞ of a mask counts as 0."""
        open_parts = [(x if x.requires_grad else x.masked_fill(x.isinf(), 0.0)).detach() for x in self.inputs]
        return [part if sign == 1 else sign * part for sign, part in zip(self.signs, open_parts, strict=True)]

    def per_example(self, x: Tensor) -> Tensor:
        """The sum over each example, shaped to multiply `x`."""
        if (examples := self.examples.get(len(x))) is not None:
            sums = x.new_zeros(self.batch).index_add(0, examples, x.flatten(1).sum(dim=1))
            return sums[examples].reshape(-1, *[1] * (x.dim() - 1))
        if self.examples_second:
            return x.sum(dim=[n for n in range(x.dim()) if n != 1], keepdim=True)
        if len(x) % self.batch:
            raise UnsupportedModel(f"A sum of shape {tuple(x.shape)} cannot be divided among {self.batch} examples.")
        sums = x.reshape(self.batch, -1).sum(dim=1)
        return sums.repeat_interleave(len(x) // self.batch).reshape(-1, *[1] * (x.dim() - 1))

    @property
    def has_ambiguous_axis(self) -> bool:
        """Whether the axis of the examples is ambiguous: as many tokens as examples."""
        shape = self.output.shape
        return self.batch > 1 and len(shape) == 3 and shape[1] == self.batch and shape[0] % self.batch == 0

    def settle_example_axis(self, grad_output: Tensor, example: int) -> None:
        """Find the axis of the examples from a gradient that is non-zero for one example only."""
        first = grad_output.reshape(self.batch, -1).abs().sum(dim=1)
        second = grad_output.abs().sum(dim=(0, 2))
        others = torch.arange(self.batch, device=grad_output.device) != example
        is_first, is_second = not bool(first[others].any()), not bool(second[others].any())
        if is_first != is_second:
            self.examples_second = is_second

    def _is_second(self) -> bool:
        """Whether the examples are on the second axis, not on the first, where others may be folded into it."""
        shape = self.output.shape
        if len(shape) < 2 or shape[0] == self.batch or shape[1] != self.batch:
            return False
        return len(shape) == 3 or bool(shape[0] % self.batch)

    def sum_to_inputs(self, grad_inputs: Iterable[Tensor]) -> GradInputs:
        """Assign each input its part, summed over its broadcast axes."""
        return [part.sum_to_size(x.shape) for part, x in zip(grad_inputs, self.inputs, strict=True)]


def linear_form(name: str, inputs: Sequence[Tensor], weight: int, kwargs: dict[str, Any]) -> Linear:
    """The Linear of an operation: how to apply it and its transpose with other weights."""
    if name == "linear":
        return Linear(0, 1, F.linear, lambda s, w, _: s @ w, 2 if len(inputs) > 2 else None)
    if name == "addmm":  # GPT-2's Conv1D: bias, input, transposed weight
        return Linear(1, 2, torch.matmul, lambda s, w, _: s @ w.mT, 0)
    if name.startswith("conv"):
        return _convolution(name, len(inputs) > 2, kwargs)
    if "grouped_mm" in name:
        return _grouped(kwargs["offs"])
    if name == "einsum":
        return _einsum(weight, kwargs["equation"])
    if inputs[weight].dim() == 1:  # mT needs a matrix
        return _multiplied(weight, torch.matmul)
    if weight == 1:
        return Linear(0, 1, torch.matmul, lambda s, w, _: s @ w.mT)
    return Linear(1, 0, lambda x, w: w @ x, lambda s, w, _: w.mT @ s)


def _convolution(name: str, is_biased: bool, how: dict[str, Any]) -> Linear:
    function = getattr(F, name)

    def apply(x: Tensor, weight: Tensor) -> Tensor:
        z: Tensor = function(x, weight, **how)
        return z

    return Linear(0, 1, apply, _transposed_by_gradient(apply), 2 if is_biased else None, bias_axis=1)


def _grouped(ends: Tensor) -> Linear:
    """Multiply each group of rows, an expert's tokens up to `ends`, by its own weight."""
    groups = list(pairwise([0, *ends.tolist()]))

    def apply(x: Tensor, weight: Tensor) -> Tensor:
        parts = [x[start:end] @ part for (start, end), part in zip(groups, weight, strict=True)]
        return torch.cat([*parts, x.new_zeros(len(x) - groups[-1][1], weight.shape[-1])])

    return Linear(0, 1, apply, lambda s, w, _: apply(s, w.mT))


def _einsum(weight: int, equation: str) -> Linear:
    return _multiplied(weight, lambda first, second: torch.einsum(equation, first, second))


def _multiplied(weight: int, product: Callable[[Tensor, Tensor], Tensor]) -> Linear:
    def apply(x: Tensor, w: Tensor) -> Tensor:
        return product(w, x) if weight == 0 else product(x, w)

    return Linear(1 - weight, weight, apply, _transposed_by_gradient(apply))


def _transposed_by_gradient(
    apply: Callable[[Tensor, Tensor], Tensor],
) -> Callable[[Tensor, Tensor, torch.Size], Tensor]:
    def apply_transposed(factor: Tensor, weight: Tensor, size: torch.Size) -> Tensor:
        x = factor.new_zeros(size).requires_grad_()
        with torch.enable_grad():
            z = apply(x, weight)
        return torch.autograd.grad(z, x, factor)[0]

    return apply_transposed


@lru_cache(maxsize=256)
def _slope_at_zero(function: Function, dtype: torch.dtype, settings: tuple[tuple[int | str, Any], ...]) -> float:
    """The gradient at 0 of a function of one tensor, given its other arguments by place or name."""
    x = torch.zeros(1, dtype=dtype, requires_grad=True)
    args = [value for place, value in settings if isinstance(place, int)]
    with torch.enable_grad():
        y = function(x, *args, **{name: value for name, value in settings if isinstance(name, str)})
    return float(torch.autograd.grad(y, x, torch.ones_like(x))[0])


def replace_tensors(x: Any, tensors: Sequence[Tensor], operation: str) -> Any:
    """Replace the floating-point tensors of an operation's argument, and in lists within it, by these, in order."""
    count = sum(1 for _ in _floating_tensors(x))
    if count != len(tensors):
        raise UnsupportedModel(
            f"Relevance rules replace {len(tensors)} tensors of {operation}, and its arguments hold {count}: pass "
            "tensors directly or in plain lists and tuples."
        )
    return _replaced(x, iter(tensors))


def _floating_tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor) and x.is_floating_point():
        yield x
    for part in x if type(x) in (tuple, list) else ():
        yield from _floating_tensors(part)


def _replaced(x: Any, tensors: Iterator[Tensor]) -> Any:
    if isinstance(x, Tensor) and x.is_floating_point():
        return next(tensors)
    return type(x)([_replaced(part, tensors) for part in x]) if type(x) in (tuple, list) else x


Quotient = Callable[[Tensor, Tensor], Tensor]

STABILISER = 1e-9  # of the reference code, added regardless of sign
EPSILON = 1e-6  # of the ε-rule, added away from zero


def ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where b is 0."""
    return (a / (b + STABILISER)).masked_fill_(b == 0, 0.0)


def away_from_zero(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The quotient of the ε-rule: the denominator is moved away from zero."""
    return numerator / (denominator + torch.where(denominator < 0, -EPSILON, EPSILON))


def balance(whole: Tensor, totals: Sequence[Tensor]) -> list[Tensor]:
    """Factors that rescale the two shares of a sum by their totals (TA Sec. 3.2)."""
    size = totals[0].abs() + totals[1].abs()
    return [ratio(ratio(total.abs(), size) * whole, total) for total in totals]

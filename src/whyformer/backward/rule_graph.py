"""A graph whose backward pass follows rules for each operation, repeatedly and with different rule sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_map

from whyformer.backward.kinds import COMPOSED, OPERATION_KINDS, is_rotation, note_result, note_unruled, operation_kind
from whyformer.backward.operations import Operation, replace_tensors
from whyformer.backward.rules import (
    BACKWARD_RULES,
    BY_GRADIENT,
    Backward,
    Rule,
    constant_factor,
    half_gradient,
    half_of_each_product,
    identity,
    is_by_values,
    with_half,
    with_halves,
    zero,
)
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.models.structure import device_of, modules_of, walk
from whyformer.models.weights import is_packed, plain_weight
from whyformer.watching.facts import Facts, tensors_in
from whyformer.watching.folds import HALF
from whyformer.watching.operation_names import KEEPING, REARRANGING, Function, name_unless_asking

LINEAR = frozenset(name for name, kind in OPERATION_KINDS.items() if kind == "linear")


class NoRule(UnsupportedModel):
    """Relevance reached an operation that has no rule."""


class RuleGraph:
    """The operations of a forward pass with the inputs that their rules need, for backward passes by rule sets.

    A watcher calls `run` to run an operation as part of the graph; backward passes within `using` follow a rule set.
    Parameters are constants. `precise` computes in float32 at least: relevance divides by sums that may be small. If
    the `rules` are known beforehand, operations without one run unchanged and keep nothing. `examples` gives, by length
    of the first axis, which example each entry belongs to, if that is ambiguous (pictures of several prompts). Unless
    `reports` is set, operations without a rule use their gradient without a report.
    """

    def __init__(
        self,
        model: nn.Module,
        batch: int,
        *,
        precise: bool = True,
        rules: Mapping[str, Rule] | None = None,
        examples: Mapping[int, Tensor] | None = None,
        reports: bool = True,
    ):
        self._known_rules, self.reports = rules, reports
        self._is_linear_alone = rules is not None and not rules.keys() & {"linear", "pixels"}  # by its own gradient
        self.without_rule: set[str] = set()
        parameters = walk(model).parameters
        half = next((parameter.dtype for parameter in parameters if parameter.dtype in HALF), None)
        self.half = None if half is None else str(half).removeprefix("torch.")
        plain = {Tensor, nn.Parameter}
        packed = {id(x) for x in parameters if type(x) not in plain and is_packed(x)}
        weights = [x for x in parameters if not (x.is_meta or id(x) in packed)]
        # The origin of an addend tells a rotary embedding from other sums.
        self.facts = Facts(weights, batch, examples, origins=rules is None or bool(rules.keys() & {"add", "rotation"}))
        self._batch, self.precise = batch, precise
        self._device = device_of(model)
        self._rules: Mapping[str, Rule] = {}
        self._strict = self.frees = self.has_ambiguous_axis = False
        self._example: int | None = None
        self._is_paused = False
        self._unpacks = bool(packed)
        self._model = model
        self.modules: Sequence[nn.Module] = ()  # that are running, innermost last: a watcher sets it
        has_tf32 = torch.backends.cuda.matmul.allow_tf32 and self._device.type == "cuda"
        self.is_coarse = not precise and (has_tf32 or half is not None)
        if precise and has_tf32:
            raise WhyformerError(
                "TF32 is on, which is too coarse for strict relevance: turn it off with "
                "torch.backends.cuda.matmul.allow_tf32 = False, or accept it with precision='fast'."
            )

    def exactly(self) -> AbstractContextManager[Any]:
        """Disable autocast if relevance is precise."""
        return torch.autocast(self._device.type, enabled=False) if self.precise else nullcontext()

    @contextmanager
    def using(self, rules: Mapping[str, Rule], *, strict: bool = False, keep: bool = True) -> Iterator[None]:
        """Make backward passes within the context follow these rules; `strict` raises at an operation without one.

        Unless `keep` is set, each operation's tensors are freed as soon as they have been used.
        """
        assert self._known_rules is None or rules is self._known_rules
        self._rules, self._strict, self.frees = rules, strict, not keep
        try:
            with self.exactly():
                yield
        finally:
            self._rules, self._strict, self.frees = {}, False, False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run operations within the context unchanged, outside the graph."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    @contextmanager
    def using_gradient_of(self, example: int) -> Iterator[None]:
        """Use the gradients of one example's score, within the context, to find the axis of the examples of sums."""
        self._example = example
        try:
            yield
        finally:
            self._example = None

    def grad_inputs(self, operation: Operation, grad_output: Tensor) -> Any:
        """The gradients or relevances of the operation's inputs, by the current rules."""
        if self._example is not None and operation.kind == "add" and operation.has_ambiguous_axis:
            operation.settle_example_axis(grad_output, self._example)
        rule = self._rules.get(operation.kind)
        if rule is None and operation.kind == "attention" and self._rules:
            raise NoRule(
                "Relevance reached attention whose map is too large to keep, and this rule set has no rule for it: "
                "add one of whyformer.backward.attention_rules as 'attention'."
            )
        if rule not in (None, identity, zero):  # autograd checks gradients itself
            operation.check_unchanged()
        return operation.gradient(grad_output) if rule is None else rule(grad_output, operation)

    def report_missing_rule(self, name: str) -> None:
        """Raise or note that the backward pass has reached an operation without a rule."""
        if self._strict:
            raise NoRule(
                f"Relevance reached {name}, which has no rule. Use its gradient with strict=False, or add a rule with "
                f"whyformer.backward.kinds.OPERATION_KINDS[{name.split(' ')[0]!r}] = 'activation' (or another kind)."
            )
        if self._rules:
            self.without_rule.add(name)

    def run(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation whose backward pass follows the rules if it has one."""
        name, rearranges, changes = _traits(func)
        is_weight = name == "detach" and type(args[0]) is nn.Parameter  # identified by its storage
        if name is None or is_weight or self._is_paused:
            return func(*args, **kwargs)
        if name == "__get__":  # x.T, x.mT move entries; most others return no tensor
            value = func(*args, **kwargs)
            if isinstance(value, Tensor):
                self.facts.move("transpose", args, value)
            return value
        if self._unpacks or self.precise:
            args, kwargs = self._wide((args, kwargs))
        if changes:
            maker = self.facts[next(iter((*args, *kwargs.values())), None)].made_by
            if maker is not None:
                maker.keep_output()
        if rearranges or not _in_graph(args, kwargs):
            result = func(*args, **kwargs)
            if name in KEEPING and self.precise and isinstance(result, Tensor) and result.dtype in HALF:
                return args[0] if args[0].is_floating_point() else result.float()  # a cast to half precision
            self.facts.move(name, args, result)
            return self._wide(result) if self._unpacks or self.precise else result
        if name in COMPOSED:
            return COMPOSED[name](self._run_part, *args, **kwargs)
        if OPERATION_KINDS.get(name) == "gate" and is_rotation(args):
            return COMPOSED["complex product"](self._run_part, *args)
        if name in OPERATION_KINDS:
            return self._run_with_rule(name, func, args, kwargs)
        return self._run_without_rule(name, func(*args, **kwargs), args)

    def _run_part(self, func: Function, *args: Any, **kwargs: Any) -> Any:
        """Run a part of an operation as if the model had called it."""
        return self.run(func, args, kwargs)

    def _wide(self, values: Any) -> Any:
        return tree_map(lambda x: self._widened(x) if isinstance(x, Tensor) else x, values)

    def _widened(self, x: Tensor) -> Tensor:
        """Widen a tensor to float32, and unpack a weight; the result of a weight is a weight."""
        if self._unpacks and is_packed(x):
            x = plain_weight(x)
            self.facts.note(x, is_weight=True)
        if not self.precise or x.dtype not in HALF:
            return x
        wide = x.float()
        if self.facts.is_of_the_model(x):
            self.facts.note(wide, is_weight=True)
        return wide

    def _run_with_rule(self, name: str, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        tensors = tensors_in((*args, *kwargs.values()))
        if self._is_linear_alone and name in LINEAR:
            linear: Tensor = func(*args, **kwargs)
            note_result(self.facts, name, tensors, linear, "linear")
            return linear
        if "inplace" in kwargs:
            kwargs = {key: value for key, value in kwargs.items() if key != "inplace"}
        tensors = [x for x in tensors if x.is_floating_point()]
        kind, details = operation_kind(self.facts, name, tensors, args, kwargs)
        rule, changes = None if self._known_rules is None else self._known_rules.get(kind), name in _OUT_OF_PLACE
        if not changes and self._has_plain_gradient(kind, tensors, details.get("source", 0)):
            if rule is half_of_each_product:
                args = (*map(with_half, args[:2]), *args[2:])  # queries and keys
            plain: Tensor = func(*args, **kwargs)
            plain = with_halves(plain) if rule in (half_gradient, half_of_each_product) else plain
            note_result(self.facts, name, tensors, plain, kind)
            return plain
        function: Function = _OUT_OF_PLACE.get(name, func)
        kept = [x.clone() if changes and n == 0 else x for n, x in enumerate(tensors)]
        has_graph = rule is None or not is_by_values(rule, function, len(tensors))
        inputs = tuple(x.detach().requires_grad_(x.requires_grad) if has_graph else x.detach() for x in kept)
        own_args, own_kwargs = replace_tensors([args, list(kwargs.values())], inputs, name)
        arguments = own_args, dict(zip(kwargs, own_kwargs, strict=True))
        output, examples = _exact(name, function, *arguments), self.facts.rows_of(tensors)
        operation = Operation(kind, function, arguments, inputs, output, self._batch, examples=examples, **details)
        result: Tensor = _RuledOperation.apply(self, operation, changes, *tensors)
        self.has_ambiguous_axis |= kind == "add" and operation.has_ambiguous_axis
        keeps_output = changes or rule not in BY_GRADIENT
        if not keeps_output:
            operation.forget_output()
        note_result(self.facts, name, tensors, result, kind, operation if keeps_output else None)
        return result

    def _has_plain_gradient(self, kind: str, tensors: list[Tensor], source: int) -> bool:
        """Whether the rules, known beforehand, use the operation's own gradient, or half of it."""
        if self._known_rules is None or self._known_rules.get(kind) in (None, half_gradient, half_of_each_product):
            return self._known_rules is not None
        is_only_source = all(x.requires_grad == (n == source) for n, x in enumerate(tensors))
        return self._known_rules[kind] is constant_factor and is_only_source

    def _run_without_rule(self, name: str, result: Any, args: tuple[Any, ...]) -> Any:
        """Return the result of an operation without a rule, which is reported if the backward pass reaches it."""
        inside = self.modules[-1] if self.modules else self._model

        def report(grad_output: Tensor | None) -> None:
            if grad_output is not None:
                self.report_missing_rule(f"{name} in {self._paths.get(id(inside)) or 'the model itself'}")

        for x in tree_flatten(result)[0] if self.reports else ():
            if isinstance(x, Tensor) and x.requires_grad:
                # A hook rather than an operation of ours: the model may change the result in place.
                x.register_hook(report)
        if isinstance(result, Tensor):
            note_unruled(self.facts, name, args, result)
        return result

    @cached_property
    def _paths(self) -> Mapping[int, str]:
        return {id(module): path for path, module in modules_of(self._model).items()}


def make_rule_graph(model: nn.Module, batch: int, backward: Backward) -> RuleGraph | None:
    """The graph for LibraGrad's or AttnLRP's rules; None for plain gradients."""
    rules = BACKWARD_RULES.get(backward)
    return None if rules is None else RuleGraph(model, batch, precise=False, rules=rules, reports=False)


def using_rules(rules: RuleGraph | None, backward: Backward) -> AbstractContextManager[None]:
    """Make backward passes within the context plain, or follow LibraGrad's or AttnLRP's rules."""
    return nullcontext() if rules is None or backward == "gradient" else rules.using(BACKWARD_RULES[backward])


class _RuledOperation(torch.autograd.Function):
    """An operation in the graph, whose backward pass looks up the rule in its rule graph.

    Not in a global: on a GPU, backward passes run in other threads.
    """

    @staticmethod
    def forward(ctx: Any, graph: RuleGraph, operation: Operation, changes: bool, *inputs: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.graph, ctx.operation = graph, operation
        if not changes:
            return operation.output.detach()
        ctx.mark_dirty(inputs[0])
        return inputs[0].copy_(operation.output.detach())

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor | None) -> Any:
        if ctx.operation is None:
            raise WhyformerError(
                "Relevance was already computed from this trace, which freed its graph: trace the model again."
            )
        if grad_output is None:
            return None, None, None, *[None] * len(ctx.operation.inputs)
        grad_inputs = ctx.graph.grad_inputs(ctx.operation, grad_output)
        if ctx.graph.frees:
            ctx.operation = None
        return None, None, None, *grad_inputs


# Out-of-place functions of in-place operations.
_IN_PLACE: dict[str, Function] = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
_OUT_OF_PLACE: dict[str, Function] = {
    name: function for verb, function in _IN_PLACE.items() for name in (f"{verb}_", f"__i{verb}__", f"__itrue{verb}__")
} | {
    name: getattr(torch, name[:-1], None) or getattr(F, name[:-1])
    for name in OPERATION_KINDS
    if name.endswith("_") and not name.startswith("__") and name[:-1] not in _IN_PLACE
}


def _exact(name: str, function: Function, args: Any, kwargs: Any) -> Tensor:
    """Run the operation; float32 convolutions on a GPU in float64, since they default to TF32 there."""
    if name.startswith("conv") and args[0].is_cuda and args[0].dtype == torch.float32:
        args, kwargs = tree_map(lambda x: x.double() if isinstance(x, Tensor) else x, (args, kwargs))
        single: Tensor = function(*args, **kwargs).float()
        return single
    result: Tensor = function(*args, **kwargs)
    return result


@lru_cache(maxsize=4096)
def _traits(func: Function) -> tuple[str | None, bool, bool]:
    """The name of a function, None if it only asks; whether it rearranges entries; and whether it works in place."""
    name = name_unless_asking(func)
    if name is None:
        return None, False, False
    in_place = name in _OUT_OF_PLACE or name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
    return name, name in REARRANGING, in_place


def _in_graph(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if not torch.is_grad_enabled():
        return False
    if args and type(args[0]) is Tensor and args[0].requires_grad:
        return True
    return any(x.requires_grad for x in tensors_in((*args, *kwargs.values())))

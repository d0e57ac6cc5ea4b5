"""A function mode that watches any model's forward pass and records every attention operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from whyformer.axes import HEAD, by_head
from whyformer.errors import WhyformerError
from whyformer.models.answering import run_model
from whyformer.models.calls import KernelCall, reroute_kernels
from whyformer.models.lent_weights import hooks_noted, is_lending_weights, lends_weights
from whyformer.models.module_stack import module_stack
from whyformer.models.weights import readable_weights
from whyformer.watching.attention_calls import KeptOutput
from whyformer.watching.facts import CONSTANT, Facts, plain, plain_values
from whyformer.watching.handlers import PASSING_ON, PASSING_ON_MAPS, even_choice, handler_of
from whyformer.watching.linear_kernels import OWNERS, linear_kernel
from whyformer.watching.mixing import LinearMixing
from whyformer.watching.operation_names import Function
from whyformer.watching.provenance import check_fits, part_of
from whyformer.watching.roles import Mixed, Projection, Role, Scores
from whyformer.watching.tap import Tap

# "whole" keeps every map, however large; "none" records nothing, and only makes parameters constants.
MapStorage = Literal["kept", "whole", "folded", "shapes only", "none"]


@dataclass(frozen=True)
class WatchPlan:
    """The decisions about what a watcher records.

    Attributes:
        maps: Whether attention maps are kept unless too large, folded into queries, keys and values wherever they can
            be recomputed, or recorded by shape only. The last does not change how operations run.
        first_operation: The first attention operation that is recorded; those before it run on the model's fused
            kernels without a graph.
        merges_heads: Whether only the mean over heads of a map is kept.
        states: Whether residual states are recorded.
        weights: Whether the values and the weights W_v and W_o are recorded too.
        edges: Whether the states after each attention are kept too.
        graph: Whether every map is part of a graph, also in a frozen model. Parameters never are.
    """

    maps: MapStorage = "kept"
    first_operation: int = 0
    merges_heads: bool = False
    states: bool = False
    weights: bool = False
    edges: bool = False
    graph: bool = False


EVERY_MAP = WatchPlan()
AS_IT_IS = nullcontext()


class OperationRunner(Protocol):
    """Runs operations so that their backward pass follows rules; `reports` those without a rule by their module."""

    facts: Facts
    reports: bool
    modules: Sequence[nn.Module]

    def run(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def exactly(self) -> AbstractContextManager[Any]: ...


class BiasNotes(Protocol):
    """Notes the biases that operations add."""

    def added(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
    def note(self, bias: Any, result: Any) -> None: ...


class Watcher(TorchFunctionMode):
    """Records the attention operations run inside its `with` block, as its plan says.

    Parameters are never part of the graph, so that their gradients are not computed. `rules` runs each operation and
    defines its backward pass; `biases` notes the biases that are added. `outputs` keeps those of fused attention, by
    operation, counted from `first`: a pass over shapes alone fills it, and passes over single blocks read it.
    """

    def __init__(
        self,
        batch: int,
        plan: WatchPlan = EVERY_MAP,
        *,
        rules: OperationRunner | None = None,
        biases: BiasNotes | None = None,
        outputs: dict[int, KeptOutput] | None = None,
        first: int = 0,
    ):
        super().__init__()
        self.taps: list[Tap] = []
        self.seen = self.kernels = 0  # operations, and those among them that are kernels
        self.batch, self.plan, self.outputs, self.first = batch, plan, outputs, first
        self.facts = Facts() if rules is None else rules.facts
        self.lends = False
        self.modules: Sequence[nn.Module] = ()  # that are running, innermost last
        self.rules, self._biases, self.records = rules, biases, plan.maps != "none"
        self._passing_on = PASSING_ON if plan.states else PASSING_ON_MAPS
        self._has_scores = False  # of a softmax that is not part of a fused operation
        self._depth = 0

    def __enter__(self) -> Self:
        if not self._depth and any(isinstance(mode, Watcher) for mode in _get_current_function_mode_stack()):
            raise WhyformerError("A model is already being explained here: explanations do not nest.")
        self._depth += 1
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._depth -= 1
        super().__exit__(*raised)
        if not self._depth:
            self.facts.forget()

    def run(self, model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Run the model and record it. The caller's gradient mode has no influence and is restored."""
        with ExitStack() as contexts:
            self._enter(contexts, model)
            return run_model(model, *args, **kwargs)

    def _enter(self, contexts: ExitStack, model: nn.Module) -> None:
        """Make the model's operations visible, and record them."""
        self.lends = lends_weights(model)
        contexts.enter_context(torch.inference_mode(False))
        contexts.enter_context(torch.set_grad_enabled(self.plan.graph and self.plan.first_operation == 0))
        if self.lends:
            contexts.enter_context(hooks_noted(model))
        contexts.enter_context(readable_weights(model))
        contexts.enter_context(reroute_kernels(model, OWNERS))
        rules = self.rules
        self.modules = contexts.enter_context(module_stack(model, every=rules is not None and rules.reports))
        if rules is not None:
            rules.modules = self.modules
            contexts.enter_context(rules.exactly())
        contexts.enter_context(self)

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if type(func) is KernelCall:
            return linear_kernel(self, func, args, kwargs)
        handler = handler_of(func)
        if handler is None or (self.lends and is_lending_weights(args)):
            return func(*args, **kwargs)
        if not self.records:
            choice = even_choice(args, kwargs) if func is torch.multinomial else None
            return self.run_operation(func, args, kwargs) if choice is None else choice
        if handler in self._passing_on and self.facts.ids.isdisjoint(map(id, (*args, *kwargs.values()))):
            handler = Watcher.run_operation
        if self._biases is None:
            return handler(self, func, args, kwargs)
        bias = self._biases.added(func.__name__, args, kwargs)
        result = handler(self, func, args, kwargs)
        self._biases.note(bias, result)
        return result

    def run_operation(self, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation with parameters as constants, by the rules if there are any."""
        if not CONSTANT.issuperset(map(type, args)):
            args = plain(args)
        if not CONSTANT.issuperset(map(type, kwargs.values())):
            kwargs = plain_values(kwargs)
        return func(*args, **kwargs) if self.rules is None else self.rules.run(func, args, kwargs)

    def unrecorded(self) -> AbstractContextManager[None]:
        """A context for the package's own operations, which follow the rules but are not recorded."""
        return AS_IT_IS if self.rules is None else self._unrecorded()

    @contextmanager
    def _unrecorded(self) -> Iterator[None]:
        before, self.records = self.records, False
        try:
            with self:
                yield
        finally:
            self.records = before

    @property
    def is_before_first(self) -> bool:
        """Whether the next attention operation comes before the first that is recorded."""
        return self.seen < self.plan.first_operation

    def set_scores(self, x: Any) -> None:
        """Give a product of two activations the role of scores."""
        self._has_scores = True
        self.facts.set_role(x, Scores())

    def scores(self, args: tuple[Any, ...]) -> Scores | None:
        """The role of scores, which survives biases, masks, scales and any other operation before the softmax."""
        for x in args if self._has_scores else ():
            role = self.scores(tuple(x)) if type(x) in (tuple, list) else self.facts.role(x)
            if isinstance(role, Scores):
                return role
        return None

    def carry(self, role: Role | None, result: Any, move: Function | None = None) -> None:
        """Give the result, or each part of it, the role of the tensor that it was rearranged from."""
        if isinstance(result, Tensor):
            if isinstance(role, Projection) and move is not None:
                role = role.moved(move)
            self.facts.set_role(result, role)
        elif role is not None and isinstance(result, (tuple, list)) and move is not None:
            for number, part in enumerate(result):
                self.carry(role, part, part_of(move, number))

    def with_probe(self, x: Tensor) -> Tensor:
        """Return a map, or mixed values, as a tensor that a gradient can be computed for."""
        if not self.plan.graph or self.is_before_first or self.plan.maps == "shapes only":
            return x
        if self.plan.first_operation:
            torch.set_grad_enabled(True)
        return x if x.requires_grad else x.detach().requires_grad_()

    def record(
        self,
        weights: Tensor | LinearMixing,
        value: Tensor,
        mixed: Tensor,
        *,
        probe: Tensor,
        value_role: Role | None = None,
    ) -> None:
        """Record an attention operation: its map, its values, and their product."""
        self.seen += 1
        if self.seen <= self.plan.first_operation:
            return
        is_folded = len(weights.shape) == 3 and self.batch > 1  # heads or examples first: compared later
        if is_folded:
            check_fits(weights.shape, self.batch)
        if isinstance(weights, Tensor) and self.plan.merges_heads:
            precise = torch.promote_types(weights.dtype, torch.float32)
            weights = by_head(weights, self.batch).mean(HEAD, keepdim=True, dtype=precise)
        if self.plan.maps == "shapes only":
            weights = torch.empty(weights.shape, dtype=weights.dtype, device="meta")
        tap = Tap(weights, is_folded, probe if self.plan.graph and self.plan.maps != "shapes only" else None)
        if self.plan.states:
            source = self.facts.role(value) if value_role is None else value_role
            tap.value = value if self.plan.weights else None
            tap.value_source = source if isinstance(source, Projection) else None
        self.taps.append(tap)
        # The order of heads and tokens is compared where it is not known.
        is_ambiguous = self.plan.states and mixed.shape[-2] == self.batch
        keeps = (self.plan.weights or is_folded or is_ambiguous) and mixed.dim() in (3, 4)
        tap.mixed = by_head(mixed.detach(), self.batch) if keeps else None
        self.facts.set_role(mixed, Mixed(tap, tap.mixed))

    def carry_mixed(self, mixed: Tensor, result: Tensor) -> None:
        """Give a result the role of mixed values whose heads are known to be side by side."""
        role = self.facts.role(mixed)
        self.facts.set_role(result, replace(role, values=None) if isinstance(role, Mixed) else None)

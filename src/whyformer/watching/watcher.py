"""A function mode that watches any model's forward pass and records every attention operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Protocol, Self

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
from whyformer.watching.determinism import even_choice
from whyformer.watching.facts import Facts, plain, plain_values
from whyformer.watching.handlers import HANDLERS, other_operation
from whyformer.watching.linear_kernels import OWNERS, linear_kernel
from whyformer.watching.mixing import LinearMixing
from whyformer.watching.operation_names import Function, name_unless_asking
from whyformer.watching.provenance import check_fits, part_of
from whyformer.watching.roles import Mixed, Projection, Role, Scores
from whyformer.watching.tap import Tap
from whyformer.watching.watch_plan import WatchPlan

EVERY_MAP = WatchPlan()


class OperationRunner(Protocol):
    """Runs operations so that their backward pass follows rules."""

    facts: Facts
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
    defines its backward pass; `biases` notes the biases that are added.
    """

    def __init__(
        self,
        batch: int,
        plan: WatchPlan = EVERY_MAP,
        *,
        rules: OperationRunner | None = None,
        biases: BiasNotes | None = None,
    ):
        super().__init__()
        self.taps: list[Tap] = []
        self.seen = self.kernels = 0  # operations, and those among them that are kernels
        self.batch, self.plan = batch, plan
        self.facts = Facts() if rules is None else rules.facts
        self.lends = False
        self.modules: Sequence[nn.Module] = ()  # that are running, innermost last
        self._rules, self._biases, self.records = rules, biases, plan.maps != "none"
        self._depth = 0
        # Runs an operation: by the rules if there are any.
        self.run_operation: Callable[[Function, Any, Any], Any] = _run_plainly if rules is None else rules.run

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
        self.modules = contexts.enter_context(module_stack(model, every=self._rules is not None))
        if self._rules is not None:
            self._rules.modules = self.modules
            contexts.enter_context(self._rules.exactly())
        contexts.enter_context(self)

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, KernelCall):
            return linear_kernel(self, func, args, kwargs)
        name = name_unless_asking(func)
        if name is None or (self.lends and is_lending_weights(args)):
            return func(*args, **kwargs)
        if not self.records:
            choice = even_choice(args, kwargs) if func is torch.multinomial else None
            return self.run_operation(func, plain(args), plain_values(kwargs)) if choice is None else choice
        handler = HANDLERS.get(name, other_operation)
        if self._biases is None:
            return handler(self, func, args, kwargs)
        bias = self._biases.added(name, args, kwargs)
        result = handler(self, func, args, kwargs)
        self._biases.note(bias, result)
        return result

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Run the package's own operations, which follow the rules but are not recorded."""
        if self._rules is None:
            yield
            return
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

    @property
    def has_rules(self) -> bool:
        """Whether backward passes follow rules."""
        return self._rules is not None

    def scores(self, args: tuple[Any, ...]) -> Scores | None:
        """The role of scores, which survives biases, masks, scales and any other operation before the softmax."""
        for x in args:
            role = self.scores(tuple(x)) if type(x) in (tuple, list) else self.facts.role(x)
            if isinstance(role, Scores):
                return role
        return None

    def carry(self, role: Role | None, result: Any, move: Function | None = None) -> None:
        """Give the result, or each part of it, the role of the tensor that it was rearranged from."""
        if isinstance(result, Tensor):
            if isinstance(role, Projection) and move is not None:
                role = replace(role, moves=(*role.moves, move))
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
            tap.value, tap.value_source = value, source if isinstance(source, Projection) else None
        self.taps.append(tap)
        keeps = (self.plan.states or is_folded) and mixed.dim() in (3, 4)
        tap.mixed = by_head(mixed.detach(), self.batch) if keeps else None
        self.facts.set_role(mixed, Mixed(tap, tap.mixed))

    def carry_mixed(self, mixed: Tensor, result: Tensor) -> None:
        """Give a result the role of mixed values whose heads are known to be side by side."""
        role = self.facts.role(mixed)
        self.facts.set_role(result, replace(role, values=None) if isinstance(role, Mixed) else None)


def _run_plainly(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)

"""A forward pass that keeps only the inputs of each block, and a backward pass through one block at a time.

This is gradient checkpointing driven by the reader: flow reads blocks from the last to the first, the order of the
backward pass. Only the activations of the block that is being read are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from whyformer.axes import TokenScores
from whyformer.backward.biases import BiasTerms
from whyformer.backward.passes import BackwardPass, HiddenGradient, map_relevance
from whyformer.backward.rule_graph import RuleGraph
from whyformer.errors import UnsupportedModel
from whyformer.models.calls import Call, reroute_calls
from whyformer.models.structure import config_of, dtype_of, layers_of, modules_of
from whyformer.watching.attention_calls import KeptOutput
from whyformer.watching.mixing import Mixing, map_gradient
from whyformer.watching.tap import Tap, state_times_gradient
from whyformer.watching.watcher import Watcher, WatchPlan


class NoStack(UnsupportedModel):
    """The model computes more between its blocks than a single state."""


def find_blocks(model: nn.Module) -> Sequence[nn.Module]:
    """The blocks of a model that is a stack of them, in order; empty if unknown."""
    if getattr(config_of(model), "_attn_implementation", None) not in ("sdpa", "eager"):
        return ()
    counts = (layers_of(model), getattr(config_of(model), "num_hidden_groups", None))  # of ALBERT, run repeatedly
    stacks = {path: x for path, x in modules_of(model).items() if isinstance(x, nn.ModuleList) and len(x) in counts}
    first = next(iter(stacks), "")
    beside = [path for path in stacks if path.rpartition(".")[0] == first.rpartition(".")[0]]
    return tuple(stacks[first]) if len(beside) == 1 else ()  # XLM has one list per part of a layer


def last_of_decoder(model: nn.Module) -> nn.Module | None:
    """The last block of a decoder that reads pictures among its words; None if unknown."""
    stacks = [
        stack for path, stack in stacks_of(model, "text_config") if "language_model" in path or "text_model" in path
    ]
    return stacks[0][-1] if len(stacks) == 1 else None


def stacks_of(model: nn.Module, part: str) -> list[tuple[str, nn.ModuleList]]:
    """The paths and lists of as many blocks as the configuration of a part of the model states."""
    count = getattr(getattr(config_of(model), part, None), "num_hidden_layers", None)
    modules = modules_of(model).items()
    return [(path, module) for path, module in modules if isinstance(module, nn.ModuleList) and len(module) == count]


@contextmanager
def graph_from(block: nn.Module, model: nn.Module) -> Iterator[None]:
    """Build the graph from this block on only, for forward passes within the context and this thread."""
    thread = get_ident()

    def switch(module: nn.Module, _: Any) -> None:
        if get_ident() == thread:
            torch.set_grad_enabled(module is block)  # the watcher restores it

    handles = [module.register_forward_pre_hook(switch) for module in (model, block)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True, eq=False)
class BlockCall:
    """A call of a block: its arguments, its output as a leaf of the later graph, and its attention operations."""

    block: nn.Module
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    state: Tensor
    output: Tensor
    operations: range


@dataclass(frozen=True, eq=False)
class BlockTap:
    """An attention operation of the block that the backward pass has reached, with the gradient at its map."""

    tap: Tap
    of_probe: Tensor | None
    relevance: Mixing | None = None


@dataclass(eq=False)
class BlockPass:
    """A forward pass by blocks, and a backward pass that stores the block it has reached.

    Several backward passes can run together, the gradient first, then relevances, so that each block is rerun once.
    """

    model: nn.Module
    batch: int
    blocks: Sequence[nn.Module]
    biases: BiasTerms | None = None
    calls: list[BlockCall] = field(default_factory=list)
    without_rule: set[str] = field(default_factory=set)  # operations without a rule in a rule set
    refusal: str | None = None  # why the model is not a stack of blocks
    outputs: dict[int, KeptOutput] = field(default_factory=dict)  # of fused attention, by operation
    _passes: list[tuple[BackwardPass, Tensor]] = field(default_factory=list)  # and gradients at the last block's output
    _place: int = 0
    _grad_outputs: list[Tensor | None] = field(default_factory=list)  # at the block's input, one per pass
    _taps: dict[int, BlockTap] = field(default_factory=dict)
    _state_scores: dict[int, TokenScores] = field(default_factory=dict)  # by index of the block

    def run(self, watcher: Watcher, rules: RuleGraph | None, inputs: dict[str, Any]) -> Any:
        """Run the model; `watcher` records the shapes of maps, `rules` the operations before and after the blocks."""
        with self._intercepted(watcher, rules):
            output = watcher.run(self.model, **inputs)
        if self.refusal is None and sum(len(call.operations) for call in self.calls) < watcher.seen:
            self.refusal = "This model has attention outside its blocks: it cannot be explained block by block."
        return output

    def begin(
        self, ends: Sequence[Tensor], starts: Sequence[Tensor], rules: RuleGraph | None, one: BackwardPass
    ) -> None:
        """Backpropagate from these ends of the graph to the last block's output."""
        self._passes, self._state_scores = [(one, self._at_blocks(ends, starts, rules, one))], {}
        self._restart()

    def begin_relevance(
        self, ends: Sequence[Tensor], passes: Sequence[tuple[BackwardPass, Sequence[Tensor]]], rules: RuleGraph
    ) -> None:
        """Also propagate relevance: in one pass, or positive and negative parts in two."""
        self._passes[1:] = [(one, self._at_blocks(ends, starts, rules, one)) for one, starts in passes]
        self._restart()

    def attention(self, operation: int) -> Mixing:
        """The map of an operation."""
        return self._tap(operation).tap.attention(self.batch)

    def gradient(self, operation: int) -> Mixing:
        """The gradient of an operation's map."""
        block_tap = self._tap(operation)
        if block_tap.of_probe is None:
            raise HiddenGradient
        return map_gradient(block_tap.tap.map, block_tap.of_probe, self.batch, self._passes[0][0].map_share)

    def relevance(self, operation: int) -> Mixing:
        """The relevance of an operation's map."""
        relevance = self._tap(operation).relevance
        if relevance is None:
            raise HiddenGradient
        return relevance

    def state_scores(self, operation: int) -> TokenScores:
        """The input state of an operation's block times its gradient, summed over channels."""
        number = self._block_of(operation)
        while number not in self._state_scores:
            self._step_back()
        return self._state_scores[number]

    def before(self, wanted: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """Backpropagate through all blocks to tensors before them."""
        while self._place > 0:
            self._step_back()
        state, grad_output = self.calls[0].state, self._grad_outputs[0]
        if not state.requires_grad or grad_output is None:
            return (None,) * len(wanted)
        return torch.autograd.grad(state, wanted, grad_output.to(state.dtype), retain_graph=True, allow_unused=True)

    def _at_blocks(
        self, ends: Sequence[Tensor], starts: Sequence[Tensor], rules: RuleGraph | None, one: BackwardPass
    ) -> Tensor:
        """Backpropagate from the ends to the last block's output."""
        if not any(end.requires_grad for end in ends):
            raise HiddenGradient
        with _using(rules, one):
            (grad_output,) = torch.autograd.grad(
                ends, self.calls[-1].output, starts, retain_graph=True, allow_unused=True
            )
        if grad_output is None:
            raise HiddenGradient
        return grad_output

    def _restart(self) -> None:
        self._place, self._grad_outputs, self._taps = len(self.calls), [start for _, start in self._passes], {}

    def _tap(self, operation: int) -> BlockTap:
        """Run the backward pass up to the block of an operation, and return the operation."""
        if operation not in self._taps:
            number = self._block_of(operation)
            if number >= self._place:
                self._restart()
            while self._place > number:
                self._step_back()
        return self._taps[operation]

    def _block_of(self, operation: int) -> int:
        return next(n for n, call in enumerate(self.calls) if operation in call.operations)

    def _step_back(self) -> None:
        """Rerun one block with a graph, and backpropagate through it."""
        self._taps = {}  # free the block before
        self._place -= 1
        call, passes = self.calls[self._place], [one for one, _ in self._passes]
        rules, can_fold = self._rules(passes), all(one.can_fold for one in passes)
        plan = WatchPlan("folded" if can_fold else "whole", graph=True)
        first = call.operations.start
        watcher = Watcher(self.batch, plan, rules=rules, biases=self.biases, outputs=self.outputs, first=first)
        state = call.state.detach().requires_grad_()
        args, kwargs = _with_state(call, state)
        if not passes[0].precise:
            with torch.enable_grad():
                args, kwargs = _in_own_dtype(call.block, (args, kwargs))
        output = state_of(watcher.run(call.block, *args, **kwargs))
        inputs = [state, *(tap.probe for tap in watcher.taps if tap.probe is not None)]
        parts = []
        for number, (one, grad_output) in enumerate(zip(passes, self._grad_outputs, strict=True), start=1):
            keep = number < len(passes)
            with _using(rules, one, keep=keep):
                start = None if grad_output is None else grad_output.to(output.dtype)
                parts.append(torch.autograd.grad(output, inputs, start, retain_graph=keep, allow_unused=True))
        self.without_rule |= set() if rules is None else rules.without_rule
        self._grad_outputs = [of_inputs[0] for of_inputs in parts]
        self._state_scores[self._place] = state_times_gradient(state.detach(), self._grad_outputs[0])
        by_tap = zip(*(of_inputs[1:] for of_inputs in parts), strict=True)
        self._taps = {
            n: self._block_tap(tap, passes, of_probe)
            for n, tap, of_probe in zip(call.operations, watcher.taps, by_tap, strict=True)
        }

    def _rules(self, passes: Sequence[BackwardPass]) -> RuleGraph | None:
        """The rule graph of a block; with a single backward pass its rules are known beforehand."""
        first, *others = passes
        if not (others or first.rules is not None or first.precise):
            return None
        rules = None if others else first.rules
        return RuleGraph(self.model, self.batch, precise=first.precise, rules=rules)

    def _block_tap(self, tap: Tap, passes: Sequence[BackwardPass], of_probe: Sequence[Tensor | None]) -> BlockTap:
        """The gradients at an operation, detached from the graph."""
        later = list(zip(passes, of_probe, strict=True))[1:]
        relevance = map_relevance(tap, later, self.batch) if later else None
        tap.probe, tap.map = None, tap.map.detach() if isinstance(tap.map, Tensor) else tap.map
        return BlockTap(tap, of_probe[0], relevance)

    @contextmanager
    def _intercepted(self, watcher: Watcher, rules: RuleGraph | None) -> Iterator[None]:
        """Run the blocks of the model without a graph, and keep their arguments."""

        def make(block: nn.Module, own_call: Call) -> Call:
            def call(*args: Any, **kwargs: Any) -> Any:
                first = watcher.seen
                with torch.no_grad(), _paused(rules):
                    result = own_call(*args, **kwargs)
                state = None if self.refusal else self._state(args, kwargs)
                if state is None:
                    self.refusal = (
                        "The blocks of this model pass more than one state: it cannot be explained block by block."
                    )
                    return result
                output = state_of(result).detach().requires_grad_()
                self.calls.append(BlockCall(block, (args, kwargs), state, output, range(first, watcher.seen)))
                return output if isinstance(result, Tensor) else (output, *result[1:])

            return call

        with reroute_calls(self.blocks, make):
            yield

    def _state(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """The input state of a block: the previous block's output, or its first tensor; None if it is neither."""
        leaves, _ = tree_flatten((args, kwargs))
        tensors = [x for x in leaves if isinstance(x, Tensor) and x.is_floating_point() and type(x) is not nn.Parameter]
        before = self.calls[-1].output if self.calls else tensors[0]
        is_only = any(x is before for x in tensors) and not any(x.requires_grad and x is not before for x in tensors)
        return before if is_only else None


def _with_state(call: BlockCall, state: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    leaves, shape = tree_flatten(call.arguments)
    both: tuple[tuple[Any, ...], dict[str, Any]] = tree_unflatten(
        [state if x is call.state else x for x in leaves], shape
    )
    return both


def _in_own_dtype(block: nn.Module, arguments: Any) -> Any:
    """Cast arguments that rules have widened back to the dtype of the block."""
    dtype = dtype_of(block)
    return tree_map(lambda x: x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x, arguments)


def state_of(output: Any) -> Tensor:
    """The residual state that a block returns."""
    state: Tensor = output if isinstance(output, Tensor) else output[0]
    return state


def _using(rules: RuleGraph | None, one: BackwardPass, *, keep: bool = True) -> AbstractContextManager[None]:
    if rules is None or one.rules is None:
        return nullcontext()
    return rules.using(one.rules, strict=one.strict, keep=keep)


def _paused(rules: RuleGraph | None) -> AbstractContextManager[None]:
    """Pause the rules where there is no graph, unless they have to keep states in float32 for relevance."""
    return nullcontext() if rules is None or rules.precise else rules.paused()

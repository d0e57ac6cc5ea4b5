"""Where a tensor of the forward pass comes from, as far as attention is concerned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from whyformer.axes import QUERY, AttentionMap, State, Values, by_head
from whyformer.tracing.kernels import Attention

Move = Callable[[Tensor], Tensor]


@dataclass(eq=False)
class Tap:
    """What the recorder has seen so far of one attention operation."""

    map: Tensor | Attention
    is_folded: bool
    probe: Tensor | None = None  # with a graph: the map, or the values it mixed, whose gradient tells that of the map
    value: Tensor | None = None
    value_source: Projection | None = None
    output_weight: Tensor | None = None
    output_parameter: Tensor | None = None
    output_module: nn.Module | None = None  # whose weight it is: a weight that is lent has no name
    readers: int = 0
    heads_in_order: Tensor | None = None
    tokens_first: Tensor | None = None
    query_state: Tensor | None = None
    state_is_swapped: bool = False

    def attention(self, batch: int) -> AttentionMap | Attention:
        """The map with its own head axis, or what makes it."""
        return self.map if isinstance(self.map, Attention) else by_head(self.map.detach(), batch)

    def gradient(self, of_probe: Tensor, batch: int) -> Callable[[], AttentionMap]:
        """What makes the gradient of the map."""
        if isinstance(self.map, Attention):
            return partial(self.map.gradient, of_probe)
        return partial(by_head, of_probe, batch)

    def compare_order(self, values: Values, rows: Tensor) -> None:
        """Whether heads lie side by side in W_o's input, and tokens before examples; nobody waits for it here."""
        head_count, width = values.shape[1], values.shape[-1]
        if rows.shape[-1] != head_count * width:
            self.heads_in_order = torch.tensor(False)
            return
        self.heads_in_order = (rows[0] == values[0, :, 0].flatten()).all()
        if values.shape[QUERY] > 1:
            self.tokens_first = (rows[1] != values[0, :, 1].flatten()).any()

    def state(self, batch: int, tokens: int, *, of_keys: bool = False) -> State | None:
        """The residual state as [example, token, channel]; the keys' own is what their values project."""
        state = self.query_state
        if of_keys:
            state = None if self.value_source is None else self.value_source.source.detach()
            if state is not None and state.dim() == 2 and len(state) == batch * tokens:
                state = state.unflatten(0, (batch, tokens))  # GPT-2's Conv1D flattens what it reads
        if state is None or state.dim() != 3:
            return None
        if batch == tokens:
            is_swapped = self.tokens_first is not None and bool(self.tokens_first) != (
                self.state_is_swapped and not of_keys
            )
        else:
            is_swapped = state.shape[:2] == (tokens, batch)
        state = state.transpose(0, 1) if is_swapped else state
        return state if state.shape[:2] == (batch, tokens) else None

    def projection(self) -> Tensor | None:
        """W_o, if it is the one reader of the mixed values and finds their heads side by side."""
        is_plain = self.readers == 1 and (self.heads_in_order is None or bool(self.heads_in_order))
        return self.output_weight if is_plain else None


@dataclass(frozen=True)
class Projection:
    """A tensor that is a linear projection of `source`, rearranged by `moves`."""

    weight: Tensor
    source: Tensor
    source_norm: Tensor | None
    shape: torch.Size
    moves: tuple[Move, ...] = ()
    before: Projection | None = None  # that of the source itself: the first half of a low-rank adapter

    def rows(self, batch: int) -> Tensor | None:
        """The rows of the weight behind each (head, feature) of the tensor, found by moving their numbers along."""
        numbers = self._moved_numbers()
        if numbers.dim() not in (3, 4):
            return None
        by_head = numbers.reshape(batch, -1, *numbers.shape[-2:])[0, :, 0, :].flatten()
        first, last = int(by_head[0]), int(by_head[-1]) + 1
        if last - first == len(by_head) and bool((by_head.diff() == 1).all()):
            return self.weight[first:last]
        return self.weight[by_head]

    def plus(self, other: Projection) -> Projection | None:
        """The sum of this and another projection of the same tensor, such as an adapter's; None if it is none."""
        adapter = other
        if not self.projects_with(other) and other.before is not None and not other.moves:
            adapter = replace(other.before, weight=other.weight @ other.before.weight)
        if not self.projects_with(adapter) or other.moves or len(self.weight) != len(adapter.weight):
            return None
        numbers = self._moved_numbers()  # a view may have split the tokens, and must have left the channels alone
        is_plain = bool((numbers == torch.arange(self.shape[-1], device=numbers.device)).all())
        weight = (self.weight + adapter.weight).to(self.weight.dtype)
        return replace(self, weight=weight, shape=numbers.shape, moves=(), before=None) if is_plain else None

    def projects_with(self, other: Projection) -> bool:
        """Whether both project one tensor, or casts of it."""
        is_cast = self.source_norm is not None and self.source_norm is other.source_norm
        return self.weight.shape[1:] == other.weight.shape[1:] and (is_cast or _is_same(self.source, other.source))

    def _moved_numbers(self) -> Tensor:
        numbers = torch.arange(self.shape[-1], device=self.weight.device).expand(self.shape)
        for move in self.moves:
            numbers = move(numbers)
        return numbers

    def reads(self, state: Tensor) -> bool | None:
        """Whether it projects this very state, or its normalisation; None where that cannot be told."""
        if _is_same(self.source, state) or (self.source_norm is not None and _is_same(self.source_norm, state)):
            return True
        return None if self.source_norm is None else False


def _is_same(first: Tensor, second: Tensor) -> bool:
    """One tensor, or two views of all of it."""
    return first is second or (first.data_ptr() == second.data_ptr() and first.numel() == second.numel())


@dataclass(frozen=True)
class Normed:
    """The normalisation of `state`."""

    state: Tensor


@dataclass(frozen=True)
class Cast:
    """A tensor that is `source` in another dtype: an adapter may read a layer's input in its own."""

    source: Tensor


@dataclass(frozen=True)
class Scores:
    """A product of two activations, on its way to a softmax: queries before keys."""


@dataclass(frozen=True)
class Weights:
    """The softmax of scores over their keys, on its way to a product with values."""


@dataclass(frozen=True)
class Mixed:
    """Values mixed by the attention of `tap`, on their way to its output projection; kept where order is compared."""

    tap: Tap
    values: Tensor | None


@dataclass(frozen=True)
class Written:
    """The output projection of `tap`, on its way to the residual stream; its first two axes may be swapped there."""

    tap: Tap
    is_swapped: bool = False


@dataclass(frozen=True)
class Branch:
    """A further projection of what `tap` mixed: an adapter's, if it is added to the first."""

    tap: Tap
    weight: Tensor


Tag = Projection | Normed | Scores | Weights | Mixed | Written | Branch | Cast


def with_adapter(first: Tag | None, second: Tag | None) -> Tag | None:
    """What a projection and its adapter (LoRA) are together, in either order; None for any other two tensors."""
    for tag, adapter in ((first, second), (second, first)):
        if isinstance(tag, Projection) and isinstance(adapter, Projection) and (together := tag.plus(adapter)):
            return together
        if isinstance(tag, Written) and isinstance(adapter, Branch) and adapter.tap is tag.tap:
            weight = tag.tap.output_weight
            if weight is not None and weight.shape == adapter.weight.shape:
                tag.tap.output_weight = (weight + adapter.weight).to(weight.dtype)
                tag.tap.readers -= 1
                return tag
    return None


# Moves that change the order of axes.
SWAPPING = frozenset("transpose permute movedim swapaxes swapdims".split())


def moved(tag: Tag | None, name: str) -> Tag | None:
    """The tag after a move: swapped axes matter to what is written, and undo what a map is."""
    if name not in SWAPPING:
        return tag
    if isinstance(tag, Written):
        return replace(tag, is_swapped=not tag.is_swapped)
    return None if isinstance(tag, Weights) else tag

"""Where a tensor of the forward pass comes from, as far as attention is concerned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from whyformer.axes import QUERY, AttentionMap, State, TokenScores, Values, by_head
from whyformer.models.joined import Tokens, in_order
from whyformer.tracing.kernels import Attention

if TYPE_CHECKING:
    from whyformer.tracing.sampling import SampledAttention

Move = Callable[[Tensor], Tensor]


@dataclass(eq=False)
class Tap:
    """What the recorder has seen so far of one attention operation."""

    map: Tensor | Attention | SampledAttention
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
    output_scale: Tensor | None = None  # of each query token, by a norm between W_o and the residual stream
    output: Tensor | None = None  # of W_o, where edges are read
    query_state: Tensor | None = None
    state_is_swapped: bool = False
    sum: tuple[Tensor, Tensor] | None = None  # where edges are read: the state that it is added to, and that after it
    first: Tap | None = None  # of attention run in parts (a packed sequence): where all that follows is noted

    def attention(self, batch: int) -> AttentionMap | Attention | SampledAttention:
        """The map with its own head axis, or what makes it."""
        return by_head(self.map.detach(), batch) if isinstance(self.map, Tensor) else self.map

    def compare_order(self, values: Values, rows: Tensor) -> None:
        """Whether heads lie side by side in W_o's input, and tokens before examples; nobody waits for it here."""
        head_count, width = values.shape[1], values.shape[-1]
        if rows.shape[-1] != head_count * width:
            self.heads_in_order = torch.tensor(False)
            return
        self.heads_in_order = (rows[0] == values[0, :, 0].flatten()).all()
        if values.shape[QUERY] > 1:
            self.tokens_first = (rows[1] != values[0, :, 1].flatten()).any()

    def state(self, batch: int, tokens: int, rows: Tokens | None = None, *, of_keys: bool = False) -> State | None:
        """The residual state as [example, token, channel]; the keys' own is what their values project.

        `rows` are the tokens that its entries are of, where they are in another order.
        """
        state = self.query_state
        if of_keys:
            state = None if self.value_source is None else self.value_source.source.detach()
            if state is not None and state.dim() == 2 and len(state) == batch * tokens:
                state = state.unflatten(0, (batch, tokens))  # GPT-2's Conv1D flattens what it reads
            if state is not None and state.dim() == 4 and state.shape[1] == 1:
                state = state[:, 0]  # a latent that all heads share
        is_swapped = self.state_is_swapped and not of_keys
        return None if state is None else self._examples_first(state, batch, tokens, is_swapped, rows)

    def add_up(self, written: Written, state: Tensor, result: Tensor) -> None:
        """Keep a state and what it becomes: the residual state's sum, or failing that the first there is."""
        if self.sum is None or state is self.query_state:
            self.sum = state, result.detach().clone()  # the model may go on to change it in place
            self.output, self.state_is_swapped = None, written.is_swapped

    def states(
        self, batch: int, tokens: int, rows: Tokens | None = None, *, is_cross: bool
    ) -> tuple[State | None, State | None]:
        """The query tokens' state before and after the attention's output is added, [example, token, channel].

        In one stream the state before is the one that the values read; between streams it cannot be told by that. A
        token that only pools others has no state before: then its state is the output alone.
        """
        pair = self.sum
        if pair is None and is_cross and self.output is not None:
            pair = torch.zeros_like(self.output), self.output
        if pair is None or (not is_cross and pair[0] is not self.query_state):
            return None, None
        before, after = (self._examples_first(x, batch, tokens, self.state_is_swapped, rows) for x in pair)
        return before, after

    def linear_value(self, batch: int, tokens: int) -> LinearValue | None:
        """What makes the values without their biases; None where they are no plain projection of a state."""
        projection = self.value_source
        source = self.state(batch, tokens, of_keys=True)
        if projection is None or projection.is_normed or source is None or self.value is None:
            return None
        weight = projection.rows(batch)
        if weight is None or weight.shape[-1] != source.shape[-1]:
            return None
        # A state that is itself the output of a norm (post-norm) is taken as it is, with that norm's bias.
        sources = [x for x in (projection.source, projection.origin) if x is not None]
        is_state = self.query_state is None or any(_is_same(x, self.query_state) for x in sources)
        return LinearValue(source, None if is_state else projection.source_bias, weight, self.value.shape[-1])

    def scale(self, batch: int, tokens: int, rows: Tokens | None = None) -> TokenScores | None:
        """What a norm multiplies with what each query token is given; None where there is none."""
        scale = self.output_scale
        scale = None if scale is None else self._examples_first(scale, batch, tokens, self.state_is_swapped, rows)
        return None if scale is None else scale[..., 0]

    def _examples_first(
        self, x: Tensor, batch: int, tokens: int, is_swapped: bool, rows: Tokens | None = None
    ) -> Tensor | None:
        """A tensor of the residual stream as [example, token, channel]."""
        if rows is not None:
            return in_order(x, rows, batch, tokens)
        if x.dim() != 3:
            return None
        if batch == tokens:
            tokens_first = self.tokens_first is not None and bool(self.tokens_first) != is_swapped
        else:
            tokens_first = x.shape[:2] == (tokens, batch)
        x = x.transpose(0, 1) if tokens_first else x
        return x if x.shape[:2] == (batch, tokens) else None

    def value_weight(self, batch: int) -> Tensor | None:
        """W_v, from the residual state where that is known."""
        if self.value_source is None:
            return None
        return self.value_source.rows(batch, None if self.query_state is None else self.query_state.shape[-1])

    def is_residual(self, state: Tensor, tag: Tag | None) -> bool:
        """Whether this is the state the attention read. What it projects says so; failing that, what the tensor is."""
        if self.query_state is not None:
            return False
        known = None if self.value_source is None else self.value_source.reads(state)
        return not isinstance(tag, (Projection, Written, Branch)) if known is None else known

    def projection(self) -> Tensor | None:
        """W_o, if it is the one reader of the mixed values and finds their heads side by side."""
        is_plain = self.readers == 1 and (self.heads_in_order is None or bool(self.heads_in_order))
        return self.output_weight if is_plain else None


@dataclass(frozen=True)
class LinearValue:
    """The values of an attention operation without the biases of W_v and of the norm before it."""

    source: State
    bias: Tensor | None
    weight: Tensor
    width: int

    def __call__(self) -> Values:
        source = self.source if self.bias is None else self.source - self.bias
        values: Values = (source.to(self.weight) @ self.weight.T).unflatten(-1, (-1, self.width)).transpose(1, 2)
        return values


@dataclass(frozen=True)
class Projection:
    """A tensor that is a linear projection of `source`, rearranged by `moves`."""

    weight: Tensor
    source: Tensor
    source_norm: Tensor | None
    shape: torch.Size
    moves: tuple[Move, ...] = ()
    before: Projection | None = None  # that of the source itself: of a latent, or of a low-rank adapter
    is_normed: bool = False  # its spread divided out, which the weight does not know of
    state: Tensor | None = None  # the tensor as it was before its norm, where that is known
    source_bias: Tensor | None = None  # what the norm has added to every token of the source
    origin: Tensor | None = None  # the source before its tokens were put elsewhere, into windows

    @classmethod
    def of(cls, source: Tensor, tag: Tag | None, weight: Tensor, shape: torch.Size) -> Projection:
        """The projection of a source, which may be the normalisation of a state, or a projection itself."""
        norm = tag.state if isinstance(tag, (Normed, Projection)) else None
        before = tag if isinstance(tag, Projection) else None
        bias = tag.bias if isinstance(tag, Normed) else None
        origin = tag.origin if isinstance(tag, Normed) else None
        return cls(weight, source, norm, shape, before=before, source_bias=bias, origin=origin)

    def rows(self, batch: int, width: int | None = None) -> Tensor | None:
        """The rows of the weight behind each (head, feature) of the tensor, found by moving their numbers along.

        Where they read a latent, itself projected from a state of `width` channels, those of both projections in one.
        """
        numbers = self._moved_numbers()
        if numbers.dim() not in (3, 4, 5):
            return None
        order = by_head(numbers, batch)[0, :, 0, :].flatten()
        first, last = int(order[0]), int(order[-1]) + 1
        is_run = last - first == len(order) and bool((order.diff() == 1).all())
        rows = self.weight[first:last] if is_run else self.weight[order]
        if self.before is None or width in (None, rows.shape[-1]):
            return rows
        latent = self.before.rows(batch, width)
        return rows if latent is None or len(latent) != rows.shape[-1] else rows @ latent

    def scaled(self, factor: Tensor, batch: int) -> Projection | None:
        """The projection with each of its channels scaled."""
        rows, shape = self.rows(batch), self._moved_numbers().shape
        if rows is None or len(rows) != len(factor):
            return None
        return replace(self, weight=rows * factor[:, None].to(rows.dtype), shape=shape, moves=())

    def plus(self, other: Projection) -> Projection | None:
        """The sum of this and another projection of the same tensor, such as an adapter's; None if it is none."""
        adapter = other
        first = other.before
        if first is not None and not (self.projects_with(other) or other.moves or first.moves or first.is_normed):
            adapter = replace(first, weight=other.weight @ first.weight)
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
        if any(x is not None and _is_same(x, state) for x in (self.source, self.source_norm, self.origin)):
            return True
        return None if self.source_norm is None else False


def _is_same(first: Tensor, second: Tensor) -> bool:
    """One tensor, or two views of all of it."""
    return first is second or (first.data_ptr() == second.data_ptr() and first.numel() == second.numel())


@dataclass(frozen=True)
class Normed:
    """The normalisation of `state`, and the bias that it adds."""

    state: Tensor
    bias: Tensor | None = None
    origin: Tensor | None = None  # the tensor before its tokens were put elsewhere, into windows


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
    is_joined: bool = False  # by another branch, such as a parallel MLP


@dataclass(frozen=True)
class Branch:
    """A further projection of what `tap` mixed: an adapter's, if it is added to the first."""

    tap: Tap
    weight: Tensor


@dataclass(frozen=True)
class Spread:
    """One over the spread of each token's channels: what a norm written in Python multiplies with."""


@dataclass(frozen=True)
class Sampled:
    """Values sampled at points of feature maps (deformable attention), once they are weighed with their weights."""

    levels: tuple[Tensor, ...]
    grids: tuple[Tensor, ...]
    source: Tag | None  # where the values come from
    weights: Tensor | None = None


@dataclass(frozen=True)
class Transposed:
    """The transpose of a weight."""

    parameter: Tensor

    @classmethod
    def of(cls, parameter: Tensor, view: Tensor) -> Transposed | None:
        """The tag of a view that is a weight's transpose."""
        is_transpose = view.dim() == 2 and view.stride() == parameter.stride()[::-1]
        return cls(parameter) if is_transpose else None


Tag = Projection | Normed | Scores | Weights | Mixed | Written | Branch | Cast | Spread | Sampled | Transposed


def may_be_state(tag: Tag | None) -> bool:
    """Whether a tensor may be a residual state: no linear layer's output alone."""
    return tag.is_joined if isinstance(tag, Written) else not isinstance(tag, (Projection, Branch))


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

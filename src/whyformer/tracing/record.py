"""One attention operation, as far as a method may want to know it: its map and gradient, whole or a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from whyformer.axes import HEAD, KEY, QUERY, AttentionMap, Positions, State, TokenMask, TokenScores, Values, by_head
from whyformer.errors import WhyformerError
from whyformer.models.joined import MapTokens
from whyformer.tracing.kernels import Attention
from whyformer.tracing.sampling import SampledAttention

# The entries of a map, of all examples and heads, that are made at once where it is not kept.
TILE = 2**27


class MapSource(Protocol):
    """What makes a map when it is called, or the rows of some queries; it has the map's shape, dtype and device."""

    @property
    def shape(self) -> torch.Size: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...
    def __call__(self) -> AttentionMap: ...
    def pick(self, rows: slice | Positions) -> AttentionMap | MapSource: ...


class GradientSource(Protocol):
    """What makes the gradient of a map when it is called, or of some queries' rows."""

    def __call__(self) -> AttentionMap: ...
    def pick(self, rows: slice | Positions) -> GradientSource: ...

    @property
    def reached(self) -> TokenMask:
        """Which queries the score depends on."""
        ...


@dataclass(frozen=True)
class KeptGradient:
    """The gradient of a map that was kept."""

    values: AttentionMap

    def __call__(self) -> AttentionMap:
        return self.values

    def pick(self, rows: slice | Positions) -> KeptGradient:
        return KeptGradient(pick_rows(self.values, rows))

    @property
    def reached(self) -> TokenMask:
        return self.values.abs().amax(dim=(1, 3)) > 0


@dataclass(frozen=True)
class FoldedGradient:
    """The gradient of a map that was not kept, made from that of the values it mixed."""

    attention: Attention | SampledAttention
    of_mixed: Values

    def __call__(self) -> AttentionMap:
        return self.attention.gradient(self.of_mixed)

    def pick(self, rows: slice | Positions) -> FoldedGradient:
        return FoldedGradient(self.attention.pick(rows), pick_rows(self.of_mixed, rows))

    @property
    def reached(self) -> TokenMask:
        return self.of_mixed.abs().amax(dim=(1, 3)) > 0


class RelevanceSource(Protocol):
    """What makes the relevance of a map when it is called, or of some queries' rows."""

    def __call__(self) -> AttentionMap: ...
    def pick(self, rows: slice | Positions) -> AttentionMap | RelevanceSource: ...


@dataclass(frozen=True)
class FoldedRelevance:
    """The relevance of a map that was not kept: A ⊙ (S Vᵀ) / 2, each unit of the values it mixed being worth S."""

    attention: Attention
    worth: Values

    def __call__(self) -> AttentionMap:
        return self.attention() * self.attention.gradient(self.worth) / 2

    def pick(self, rows: slice | Positions) -> FoldedRelevance:
        return FoldedRelevance(self.attention.pick(rows), pick_rows(self.worth, rows))


def gradient_source(
    source: Tensor | Attention | SampledAttention, of_probe: Tensor, batch: int, share: float
) -> GradientSource:
    """The gradient of a map, from that of itself or from its share of that of the values it mixed."""
    if not isinstance(source, Tensor):
        return FoldedGradient(source, of_probe if share == 1 else of_probe * share)
    return KeptGradient(by_head(of_probe, batch))


def pick_rows(x: Tensor, rows: slice | Positions) -> Tensor:
    """The rows of some queries, of a tensor [example, head, query, …]."""
    return x[:, :, rows] if isinstance(rows, slice) else x.take_along_dim(rows[:, None, :, None], dim=QUERY)


@dataclass(frozen=True)
class AttentionRecord:
    """One attention operation: which tokens read which, how strongly, and what was read.

    Attributes:
        path: The name of its output projection W_o among the model's modules; "" where that is unknown.
        block: Its block, counted from 0 in the stream of its queries.
        query_stream: The stream whose tokens read.
        key_stream: The stream whose tokens are read.
        source: The map [example, head, query, key], or what makes it anew whenever it is read.
        gradient_source: What makes the gradient of the map; None where it was not asked for.
        relevance_source: The relevance of the map, or what makes it; None where it was not asked for.
        value: The values of the keys, where states were asked for, as all that follows.
        value_weight: W_v.
        output_weight: W_o, with the weights of a norm between it and the residual stream.
        output_scale: What such a norm multiplies with what each query token is given; None where there is none.
        key_state: The residual state of the key tokens.
        query_states: Where edges were asked for, the residual state of the query tokens before and after what the
            attention gives is added, before any norm that follows.
        state_scores: The residual state of the query tokens times the gradient of the score there, summed over
            channels, where state gradients were asked for; None where the state is not known.
        linear_value: What makes the values without the biases of W_v and of the norm before it.
        operation: Its number among all attention operations that ran.
        tokens: Whose tokens its maps are about, where map b is not example b (windows, tiles). The rest is in the order
            of the maps, but for what is known of the query states.
    """

    path: str
    block: int
    query_stream: str
    key_stream: str
    source: AttentionMap | MapSource
    gradient_source: GradientSource | None = None
    relevance_source: AttentionMap | RelevanceSource | None = None
    value: Values | None = None
    value_weight: Tensor | None = None
    output_weight: Tensor | None = None
    output_scale: TokenScores | None = None
    key_state: State | None = None
    query_states: tuple[State | None, State | None] = (None, None)
    state_scores: Callable[[], TokenScores] | None = None
    linear_value: Callable[[], Values] | None = None
    operation: int = 0
    tokens: MapTokens | None = None

    @property
    def map(self) -> AttentionMap:
        """The attention map; a large one is made each time it is read, so read it once, or by `tiles`."""
        return self.source if isinstance(self.source, Tensor) else self.source()

    @property
    def gradient(self) -> AttentionMap:
        """The gradient of the score with respect to the map, made each time it is read."""
        if self.gradient_source is None:
            raise WhyformerError('This trace has no gradients: build it with reads=Reads(maps="all", gradients="all").')
        return self.gradient_source()

    @property
    def relevance(self) -> AttentionMap:
        """The relevance of the map, made each time it is read."""
        if self.relevance_source is None:
            raise WhyformerError('This record has no relevance: trace.relevances("dtd").on(record) has it.')
        return self.relevance_source if isinstance(self.relevance_source, Tensor) else self.relevance_source()

    @property
    def call(self) -> Attention | None:
        """The attention call behind a map that is not kept."""
        resolve = getattr(self.source, "call", None)
        return self.source if isinstance(self.source, Attention) else None if resolve is None else resolve()

    @property
    def folded_gradient(self) -> FoldedGradient | None:
        """The gradient of the values that a map which is not kept has mixed, with the call."""
        resolve = getattr(self.gradient_source, "made", None)
        gradient = self.gradient_source if resolve is None else resolve()
        return gradient if isinstance(gradient, FoldedGradient) else None

    @property
    def batch(self) -> int:
        """How many examples it is about."""
        return self.source.shape[0] if self.tokens is None else self.tokens.batch

    @property
    def lengths(self) -> tuple[int, int]:
        """How many tokens an example has in the stream of its queries, and in that of its keys."""
        return (self.source.shape[QUERY], self.source.shape[KEY]) if self.tokens is None else self.tokens.lengths

    @property
    def reached(self) -> TokenMask:
        """Which tokens of the query stream the score depends on, as queries."""
        assert self.gradient_source is not None
        reached = self.gradient_source.reached
        return reached if self.tokens is None else self.tokens.to_queries(reached[:, None].float())[:, 0] > 0

    def pick(self, rows: slice | Positions) -> AttentionRecord:
        """The record of some queries alone: a run of those of each map, or for each example those at some positions."""
        if self.tokens is not None and isinstance(rows, Tensor):
            return self._at(self.tokens, rows)
        source = pick_rows(self.source, rows) if isinstance(self.source, Tensor) else self.source.pick(rows)
        gradient = None if self.gradient_source is None else self.gradient_source.pick(rows)
        relevance = self.relevance_source
        if relevance is not None:
            relevance = pick_rows(relevance, rows) if isinstance(relevance, Tensor) else relevance.pick(rows)
        scale = self.output_scale
        if scale is not None:
            scale = scale[:, rows] if isinstance(rows, slice) else scale.take_along_dim(rows, dim=1)
        tokens = self.tokens.pick(rows) if self.tokens is not None and isinstance(rows, slice) else None
        picked = replace(self, source=source, gradient_source=gradient, relevance_source=relevance)
        return replace(picked, output_scale=scale, tokens=tokens)

    def _at(self, tokens: MapTokens, positions: Positions) -> AttentionRecord:
        """The record of the queries at some positions, its rows over all keys of their stream."""
        scale, gradient = self.output_scale, self.gradient_source
        if scale is not None:
            scale = tokens.to_queries(scale[:, None])[:, 0].take_along_dim(positions, dim=1)
        rows = None if gradient is None else KeptGradient(tokens.rows_at(gradient(), positions))
        source = tokens.rows_at(self.map, positions)
        relevance = None if self.relevance_source is None else tokens.rows_at(self.relevance, positions)
        picked = replace(self, source=source, gradient_source=rows, relevance_source=relevance)
        return replace(picked, output_scale=scale, tokens=None)

    def tiles(self) -> Iterator[tuple[slice, AttentionRecord]]:
        """The record in runs of queries, as many at a time as memory should hold; at once where the map is kept."""
        if isinstance(self.source, Tensor):
            yield slice(None), self
            return
        batch, heads, queries, keys = self.source.shape
        height = max(1, TILE // max(1, batch * heads * keys))
        for start in range(0, queries, height):
            rows = slice(start, min(start + height, queries))
            yield rows, self.pick(rows)

    @property
    def is_attended(self) -> TokenMask:
        """Which keys any query attends to, or could where it samples points."""
        if isinstance(self.source, SampledAttention):
            return self.source.is_token
        parts = [tile.map.sum(dim=(HEAD, QUERY)) for _, tile in self.tiles()]
        sums = torch.stack(parts).sum(dim=0)
        return (sums if self.tokens is None else self.tokens.to_keys(sums[:, None])[:, 0]) > 0

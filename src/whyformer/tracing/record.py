"""The record of an attention operation: its map and gradient, whole or in tiles, and the states around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whyformer.axes import HEAD, KEY, QUERY, AttentionMap, Positions, State, TokenMask, TokenScores, Values
from whyformer.errors import WhyformerError
from whyformer.models.joined import MapTokens
from whyformer.watching.deformable import SampledAttention
from whyformer.watching.kernels import Attention
from whyformer.watching.linear_kernels import LinearKernel
from whyformer.watching.mixing import KeptMap, MixedGradient, Mixing, pick_rows, reached_queries, resolve_lazy, tiles


@dataclass(frozen=True)
class AttentionRecord:
    """The record of an attention operation.

    Attributes:
        path: The module path of its output projection W_o; "" if unknown.
        block: Its block, counted from 0 in the stream of its queries.
        query_stream: The stream whose tokens read.
        key_stream: The stream whose tokens are read.
        source: The map [example, head, query, key], kept or recomputed on access: read it by `map`. It has a single
            head, the mean of all, unless gradients, relevances or edges are read.
        gradient_source: The gradient of the map, likewise: read it by `gradient`. None if it is not read.
        relevance_source: The relevance of the map, likewise: read it by `relevance`. None if it is not read.
        value: The values of the keys [example, head, key, feature]. This and the following are None unless
            Reads(states=True) or Reads(edges=True), or if they are not known.
        value_weight: W_v.
        output_weight: W_o, with the weights of a norm between it and the residual stream.
        output_scale: Per-query scale of such a norm; None without one.
        gate: If edges were requested, the factors of the mixed values before W_o [example, head, query, feature]:
            gates, the norm of a linear attention; None without any.
        key_state: The residual state of the key tokens.
        query_states: If edges were requested, the residual state of the query tokens before and after the attention's
            output is added, before any later norm.
        state_scores: If state gradients were requested, a function that returns the residual state of the query tokens
            times the gradient of the score there, summed over channels. It is None if the state is not known.
        linear_value: A function that returns the values without the biases of W_v and of the norm before it.
        operation: Its index among all attention operations that ran.
        tokens: The tokens of its maps, if map b is not example b (windows, tiles). All except the query states are in
            the order of the maps.
        decisions: How W_v, W_o and the state were found, and what was rejected, if states were requested.

    Example:
        >>> from whyformer.extend import Reads, trace
        >>> bert = whyformer.load("mini-bert", device="cpu")
        >>> inputs = bert.tokenizer("A wonderful film.", return_tensors="pt")
        >>> record = trace(bert.model, inputs, reads=Reads(maps="all", edges=True)).last
        >>> record.query_stream, record.block, tuple(record.map.shape)
        ('text', 5, (1, 6, 6, 6))
    """

    path: str
    block: int
    query_stream: str
    key_stream: str
    source: Mixing
    gradient_source: Mixing | None = None
    relevance_source: Mixing | None = None
    value: Values | None = None
    value_weight: Tensor | None = None
    output_weight: Tensor | None = None
    output_scale: TokenScores | None = None
    gate: Values | None = None
    key_state: State | None = None
    query_states: tuple[State | None, State | None] = (None, None)
    state_scores: Callable[[], TokenScores] | None = None
    linear_value: Callable[[], Values] | None = None
    operation: int = 0
    tokens: MapTokens | None = None
    decisions: tuple[str, ...] = ()

    @property
    def map(self) -> AttentionMap:
        """The attention map. A large one is recomputed on each access, so read it once, or by `tiles`."""
        return self.source()

    @property
    def gradient(self) -> AttentionMap:
        """The gradient of the score with respect to the map, recomputed on each access."""
        if self.gradient_source is None:
            raise WhyformerError('This trace has no gradients: build it with reads=Reads(maps="all", gradients="all").')
        return self.gradient_source()

    @property
    def relevance(self) -> AttentionMap:
        """The relevance of the map, recomputed on each access."""
        if self.relevance_source is None:
            raise WhyformerError(
                'This record has no relevance: use map_relevances(trace, "dtd", strict=True).on(record).'
            )
        return self.relevance_source()

    @property
    def call(self) -> Attention | None:
        """The attention call behind a map that is not kept."""
        source = resolve_lazy(self.source)
        return source if isinstance(source, Attention) else None

    @property
    def kernel(self) -> LinearKernel | None:
        """The call of a kernel that is linear in its values, if the record is of one."""
        source = resolve_lazy(self.source)
        return source if isinstance(source, LinearKernel) else None

    @property
    def mixed_gradient(self) -> MixedGradient | None:
        """The gradient of the mixed values of a map that is not kept, with the call."""
        gradient = resolve_lazy(self.gradient_source)
        return gradient if isinstance(gradient, MixedGradient) else None

    @property
    def batch(self) -> int:
        """The number of examples."""
        return self.source.shape[0] if self.tokens is None else self.tokens.batch

    @property
    def lengths(self) -> tuple[int, int]:
        """The number of tokens per example in the streams of its queries and keys."""
        return (self.source.shape[QUERY], self.source.shape[KEY]) if self.tokens is None else self.tokens.lengths

    @property
    def reached(self) -> TokenMask:
        """Which tokens of the query stream the score depends on, as queries."""
        assert self.gradient_source is not None
        reached = reached_queries(self.gradient_source)
        return reached if self.tokens is None else self.tokens.to_queries(reached[:, None].float())[:, 0] > 0

    def pick(self, rows: slice | Positions) -> AttentionRecord:
        """Select queries: a slice of each map, or positions for each example."""
        if self.tokens is not None and isinstance(rows, Tensor):
            return self._at(self.tokens, rows)
        gradient, relevance = (
            None if mixing is None else mixing.pick(rows) for mixing in (self.gradient_source, self.relevance_source)
        )
        scale, gate = self.output_scale, self.gate
        if scale is not None:
            scale = scale[:, rows] if isinstance(rows, slice) else scale.take_along_dim(rows, dim=1)
        gate = None if gate is None else pick_rows(gate, rows)
        tokens = self.tokens.pick(rows) if self.tokens is not None and isinstance(rows, slice) else None
        picked = replace(self, source=self.source.pick(rows), gradient_source=gradient, relevance_source=relevance)
        return replace(picked, output_scale=scale, gate=gate, tokens=tokens)

    def _at(self, tokens: MapTokens, positions: Positions) -> AttentionRecord:
        """Select queries at some positions, with rows over all keys of their stream."""
        scale = self.output_scale
        if scale is not None:
            scale = tokens.to_queries(scale[:, None])[:, 0].take_along_dim(positions, dim=1)
        mixings = (self.source, self.gradient_source, self.relevance_source)
        source, gradient, relevance = (
            None if mixing is None else KeptMap(tokens.rows_at(mixing(), positions)) for mixing in mixings
        )
        assert source is not None
        picked = replace(self, source=source, gradient_source=gradient, relevance_source=relevance)
        return replace(picked, output_scale=scale, tokens=None)

    def tiles(self) -> Iterator[tuple[slice, AttentionRecord]]:
        """Iterate over the record in slices of queries that fit in memory; a single one for a kept map."""
        for rows in tiles(self.source):
            yield rows, self if isinstance(self.source, KeptMap) else self.pick(rows)

    @property
    def is_attended(self) -> TokenMask:
        """Which keys any query attends to, or could if it samples points, or is a kernel."""
        source = resolve_lazy(self.source)
        if isinstance(source, (SampledAttention, LinearKernel)):
            return source.is_token
        parts = [tile.map.sum(dim=(HEAD, QUERY)) for _, tile in self.tiles()]
        sums = torch.stack(parts).sum(dim=0)
        return (sums if self.tokens is None else self.tokens.to_keys(sums[:, None])[:, 0]) > 0

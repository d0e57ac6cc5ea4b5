"""Streams that are split or joined: which tokens the maps of an operation mix, and which tokens are made of others.

Windows, tiles and packed sequences split tokens over several maps; merged, pooled and projected tokens become those of
another stream. Both are known linear maps between positions, so scores follow them exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from whyformer.axes import AttentionMap, Positions, Rows, State, TokenMask, Values

# Tokens of a stream numbered through all examples: example · length + position; −1 is padding.
Tokens = Int[Tensor, "*any"]
Shares = Float[Tensor, "*any"]
NO_TOKEN = -1

Leaving = Literal["all", "carried", "none"]


@dataclass(frozen=True)
class AttentionShape:
    """An attention operation that ran: the path of its output projection, and the shape of its maps."""

    path: str
    shape: torch.Size


AttentionShapes = Sequence[AttentionShape]


@dataclass(frozen=True, eq=False)
class MapTokens:
    """The tokens that the maps of an operation mix, where map b is not example b or query i not token i.

    Attributes:
        queries: The token of each query of each map.
        keys: The token of each key.
        lengths: Tokens per example in the streams of the queries and of the keys.
        batch: Number of examples.
    """

    queries: Int[Tensor, "map query"]
    keys: Int[Tensor, "map key"]
    lengths: tuple[int, int]
    batch: int

    def pick(self, rows: slice) -> MapTokens:
        """Select a slice of the queries."""
        return replace(self, queries=self.queries[:, rows])

    def repeat(self, times: int, maps: int) -> MapTokens:
        """Repeat the examples, giving `maps` maps, or longer ones if sequences are packed."""

        def repeated(tokens: Tokens, length: int) -> Tokens:
            shift = self.batch * length * torch.arange(times, device=tokens.device)[:, None, None]
            copies = torch.where(tokens == NO_TOKEN, NO_TOKEN, tokens + shift)
            return copies.flatten(0, 1) if maps == times * len(tokens) else copies.transpose(0, 1).flatten(1)

        queries, keys = map(repeated, (self.queries, self.keys), self.lengths)
        return replace(self, queries=queries, keys=keys, batch=self.batch * times)

    def of_queries(self, rows: Rows) -> Float[Tensor, "map row query"]:
        """Gather the entries of rows at the queries of each map; 0 at padding."""
        return _gather(rows, self.queries)

    def state_of_queries(self, state: State) -> Float[Tensor, "map query channel"]:
        """Gather the state of each query's token."""
        return _gather(state.mT, self.queries).mT

    def state_of_keys(self, state: State) -> Float[Tensor, "map key channel"]:
        """Gather the state of each key's token."""
        return _gather(state.mT, self.keys).mT

    def to_queries(self, x: Float[Tensor, "map row query"]) -> Rows:
        """Scatter the values of all maps' queries to their tokens."""
        return _scatter(x, self.queries, self.batch, self.lengths[0])

    def to_keys(self, x: Float[Tensor, "map row key"]) -> Rows:
        """Scatter and add the values of all maps' keys to their tokens."""
        return _scatter(x, self.keys, self.batch, self.lengths[1])

    def values_at_keys(self, values: Values) -> Values:
        """Scatter the value vectors of all maps' keys to their tokens."""
        rows = self.to_keys(values.mT.flatten(1, 2))
        at_tokens: Values = rows.unflatten(1, (values.shape[1], values.shape[3])).mT
        return at_tokens

    def examples(self) -> Int[Tensor, "map query"]:
        """The example of each query; padding belongs to the first."""
        return self.queries.clamp(min=0) // self.lengths[0]

    def rows_at(self, x: AttentionMap, positions: Positions) -> AttentionMap:
        """The rows of the queries at the given positions, over all keys of the stream."""
        query_length, key_length = self.lengths
        example = torch.arange(self.batch, device=x.device)[:, None]
        place = torch.full((self.batch * query_length,), NO_TOKEN, device=x.device)
        real = self.queries != NO_TOKEN
        place[self.queries[real]] = torch.arange(real.numel(), device=x.device)[real.flatten()]
        place = place[example * query_length + positions]  # among the queries of all maps
        rows = x.transpose(1, 2).flatten(0, 1)[place.clamp(min=0)]  # [batch, row, head, key]
        keys = self.keys[place.clamp(min=0) // self.queries.shape[1]]
        is_read = (keys != NO_TOKEN) & (keys // key_length == example[..., None]) & (place != NO_TOKEN)[..., None]
        rows = rows.masked_fill(~is_read[:, :, None], 0.0)
        at = torch.where(is_read, keys % key_length, 0)[:, :, None].expand_as(rows)
        dense = rows.new_zeros(*rows.shape[:3], key_length)
        return dense.scatter_add(-1, at, rows).transpose(1, 2)


@dataclass(frozen=True, eq=False)
class Transfer:
    """Tokens of one stream made of those of an earlier one: merged, pooled, or inserted.

    Scores flow the other way, r_earlier += r_later · B.

    Attributes:
        later: The stream that is made.
        earlier: The stream that it is made of.
        later_tokens: Row of each entry of B.
        earlier_tokens: Column of each entry.
        shares: Value of each entry; those of a mean sum to 1.
        lengths: Tokens per example in the later and in the earlier stream.
        batch: Number of examples.
        leaving: Which scores leave the later stream: "all" if it starts here, the "carried" ones if some of its tokens
            were replaced, "none" if something was added to it.
    """

    later: str
    earlier: str
    later_tokens: Tokens
    earlier_tokens: Tokens
    shares: Shares
    lengths: tuple[int, int]
    batch: int
    leaving: Leaving = "all"

    def carry(self, rows: dict[str, Rows]) -> dict[str, Rows]:
        """Carry rows from the later stream to the earlier one."""
        if self.later not in rows:
            return rows
        own, rest = rows[self.later], {stream: part for stream, part in rows.items() if stream != self.later}
        if self.leaving != "all":
            rest[self.later] = own if self.leaving == "none" else own.masked_fill(self._is_carried()[:, None], 0.0)
        shares = _gather(own, self.later_tokens[None]) * self.shares.to(own.dtype)
        carried = _scatter(shares, self.earlier_tokens[None], self.batch, self.lengths[1])
        return rest | {self.earlier: rest[self.earlier] + carried if self.earlier in rest else carried}

    def repeat(self, times: int) -> Transfer:
        """Repeat the examples."""
        copies = torch.arange(times, device=self.shares.device)[:, None] * self.batch
        tokens = (self.later_tokens, self.earlier_tokens)
        later, earlier = ((x + copies * length).flatten() for x, length in zip(tokens, self.lengths, strict=True))
        batch, shares = self.batch * times, self.shares.repeat(times)
        return replace(self, later_tokens=later, earlier_tokens=earlier, shares=shares, batch=batch)

    @property
    def whole(self) -> Transfer:
        """The transfer in which every token passes on its whole score."""
        sums = self.shares.new_zeros(self.batch * self.lengths[0]).index_add(0, self.later_tokens, self.shares)
        return replace(self, shares=self.shares / sums[self.later_tokens])

    def _is_carried(self) -> TokenMask:
        carried = torch.zeros(self.batch * self.lengths[0], dtype=torch.bool, device=self.shares.device)
        carried[self.later_tokens] = True
        by_example: TokenMask = carried.unflatten(0, (self.batch, self.lengths[0]))
        return by_example


@dataclass(frozen=True)
class Place:
    """An operation's block, its streams, and whether it belongs to the previous operation's step."""

    block: int
    query_stream: str
    key_stream: str
    joins: bool = False
    tokens: MapTokens | None = None
    states: tuple[Tokens, Tokens] | None = None  # tokens of the queries' and keys' residual states, if not in order


def mean_of(
    later: str,
    earlier: str,
    parts: Int[Tensor, "batch token part"],
    lengths: tuple[int, int],
    *,
    positions: Positions | None = None,
    leaving: Leaving = "all",
) -> Transfer:
    """The transfer that makes each token the mean of others, at positions `parts`, −1 for none.

    It makes all tokens of the later stream, or those at the given positions, −1 for none.
    """
    batch, count, _ = parts.shape
    if positions is None:
        positions = torch.arange(count, device=parts.device).expand(batch, -1)
    is_part = (parts != NO_TOKEN) & (positions != NO_TOKEN)[..., None]
    example = torch.arange(batch, device=parts.device)[:, None, None]
    rows = (positions[..., None] + example * lengths[0]).expand_as(parts)
    shares = is_part.double() / is_part.sum(dim=-1, keepdim=True).clamp(min=1)
    columns = parts + example * lengths[1]
    return Transfer(later, earlier, rows[is_part], columns[is_part], shares[is_part], lengths, batch, leaving)


def in_order(state: Num[Tensor, "*any channel"], tokens: Tokens, batch: int, length: int) -> State | None:
    """Reorder a state of these tokens as [example, token, channel]; None if its entries do not match."""
    rows = state.reshape(-1, state.shape[-1])
    if len(rows) != tokens.numel():
        return None
    placed = rows.new_zeros(batch * length, rows.shape[-1]).index_copy(0, tokens.flatten(), rows)
    return placed.reshape(batch, length, rows.shape[-1])


def _gather(rows: Num[Tensor, "batch row token"], tokens: Int[Tensor, "map entry"]) -> Num[Tensor, "map row entry"]:
    by_row = rows.transpose(0, 1).flatten(1)[:, tokens.clamp(min=0)]
    return by_row.masked_fill(tokens == NO_TOKEN, 0).transpose(0, 1)


def _scatter(
    x: Num[Tensor, "map row entry"], tokens: Int[Tensor, "map entry"], batch: int, length: int
) -> Num[Tensor, "batch row token"]:
    real = tokens != NO_TOKEN
    sums = x.new_zeros(x.shape[1], batch * length).index_add(1, tokens[real], x.transpose(0, 1)[:, real])
    by_example: Tensor = sums.unflatten(1, (batch, length)).transpose(0, 1)
    return by_example

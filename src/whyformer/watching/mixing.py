"""One interface for every map that mixes tokens, kept as a tensor or computed on access.

`KeptMap`, `kernels.Attention` (queries and keys), `deformable.SampledAttention` (points) and
`linear_kernels.LinearKernel` (linear attention, state spaces) mix values. `MixedGradient` is the gradient or the
relevance of a map that is not kept; `Lazy` is any of them, available once a backward pass has reached its block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from whyformer.axes import QUERY, AttentionMap, Positions, TokenMask, Values, by_head

# The entries of a map that is not kept, over all examples and heads, that are computed at once.
TILE = 2**27
TILE_ON_CPU = 2**21  # stays in the caches: three times faster


class Mixing(Protocol):
    """A tensor [example, head, query, key]; calling it returns it whole."""

    @property
    def shape(self) -> torch.Size: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def device(self) -> torch.device: ...
    def __call__(self) -> AttentionMap: ...
    def pick(self, rows: slice | Positions) -> Mixing:
        """Select queries: a slice, or positions for each example."""
        ...


class LinearMixing(Mixing, Protocol):
    """A map that mixes `value` and is not kept."""

    @property
    def value(self) -> Values: ...
    def pick(self, rows: slice | Positions) -> LinearMixing: ...
    def repeat(self, times: int) -> LinearMixing: ...
    def gradient(self, of_mixed: Values) -> AttentionMap:
        """The gradient of the map, given that of the mixed values: dO vᵀ."""
        ...


@dataclass(frozen=True)
class KeptMap:
    """A map, gradient or relevance kept as a tensor."""

    values: AttentionMap

    @property
    def shape(self) -> torch.Size:
        return self.values.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    def __call__(self) -> AttentionMap:
        return self.values

    def pick(self, rows: slice | Positions) -> KeptMap:
        return KeptMap(pick_rows(self.values, rows))

    def repeat(self, times: int) -> KeptMap:
        """Repeat the maps, without a copy if there is a single one."""
        return KeptMap(repeat_examples(self.values, times))


@dataclass(frozen=True)
class MixedGradient:
    """The gradient of a map that is not kept, dO vᵀ; with `map_share`, its relevance: A ⊙ (S vᵀ) / 2."""

    mixing: LinearMixing
    of_mixed: Values
    map_share: float | None = None

    @property
    def shape(self) -> torch.Size:
        return self.mixing.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.of_mixed.dtype

    @property
    def device(self) -> torch.device:
        return self.of_mixed.device

    def __call__(self) -> AttentionMap:
        gradient = self.mixing.gradient(self.of_mixed)
        return gradient if self.map_share is None else self.mixing() * gradient * self.map_share

    def pick(self, rows: slice | Positions) -> MixedGradient:
        return MixedGradient(self.mixing.pick(rows), pick_rows(self.of_mixed, rows), self.map_share)


@dataclass(frozen=True)
class Lazy:
    """A mixing computed by `make` on access, with known shape, dtype and device."""

    make: Callable[[], Mixing]
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device

    def __call__(self) -> AttentionMap:
        return self.make()()

    def pick(self, rows: slice | Positions) -> Mixing:
        return self.make().pick(rows)


def resolve_lazy(mixing: Mixing | None) -> Mixing | None:
    """Resolve a lazy mixing."""
    return mixing.make() if isinstance(mixing, Lazy) else mixing


def map_gradient(source: Tensor | LinearMixing, of_probe: Tensor, batch: int, share: float) -> Mixing:
    """The gradient of a map, given the gradient of the map itself or of the mixed values, times `share`."""
    if isinstance(source, Tensor):
        return KeptMap(by_head(of_probe, batch))
    return MixedGradient(source, of_probe if share == 1 else of_probe * share)


def reached_queries(gradient: Mixing) -> TokenMask:
    """Which queries the score depends on, given the gradient of a map."""
    source = resolve_lazy(gradient)
    assert source is not None
    values = source.of_mixed if isinstance(source, MixedGradient) else source()
    return values.abs().amax(dim=(1, 3)) > 0


def tiles(mixing: Mixing) -> Iterator[slice]:
    """Slices of queries whose rows fit in memory; a single slice for a kept map."""
    if isinstance(mixing, KeptMap):
        yield slice(None)
        return
    batch, heads, queries, keys = mixing.shape
    most = min(TILE, TILE_ON_CPU) if mixing.device.type == "cpu" else TILE
    height = max(
        getattr(mixing, "least_rows", 1), most // max(1, batch * heads * keys * getattr(mixing, "entry_size", 1))
    )
    for start in range(0, queries, height):
        yield slice(start, min(start + height, queries))


def version_of(tensors: Iterable[Tensor | None]) -> int:
    """The number of times that tensors have been changed in place."""
    return sum([x._version for x in tensors if x is not None and not x.is_inference()])


def repeat_examples(x: Tensor, times: int) -> Tensor:
    """Repeat a tensor along its first axis, without a copy if that has one entry."""
    return x.expand(times, *x.shape).flatten(0, 1)


def pick_rows(x: Tensor, rows: slice | Positions) -> Tensor:
    """Select queries of a tensor [example, head, query, …]."""
    return x[:, :, rows] if isinstance(rows, slice) else x.take_along_dim(rows[:, None, :, None], dim=QUERY)

"""What makes maps, gradients and relevances of an operation when the way back has come to its block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whyformer.axes import AttentionMap, Positions, TokenMask
from whyformer.tracing.blocks import BlockPass
from whyformer.tracing.kernels import Attention
from whyformer.tracing.record import FoldedRelevance, GradientSource, MapSource, pick_rows


@dataclass(frozen=True)
class BlockMap:
    """The map of an operation, made when the way back has come to its block."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    blocks: BlockPass
    operation: int

    def call(self) -> Attention | None:
        """The attention call that makes it, where it is not made by the model itself."""
        source = self.blocks.attention(self.operation)
        return source if isinstance(source, Attention) else None

    def __call__(self) -> AttentionMap:
        source = self.blocks.attention(self.operation)
        return source if isinstance(source, Tensor) else source()

    def pick(self, rows: slice | Positions) -> AttentionMap | MapSource:
        source = self.blocks.attention(self.operation)
        return pick_rows(source, rows) if isinstance(source, Tensor) else source.pick(rows)


@dataclass(frozen=True)
class BlockGradient:
    """The gradient of the map of an operation, made when the way back has come to its block."""

    blocks: BlockPass
    operation: int

    def made(self) -> GradientSource:
        """What gives it, now that the way back is there."""
        return self.blocks.gradient(self.operation)

    def __call__(self) -> AttentionMap:
        return self.made()()

    def pick(self, rows: slice | Positions) -> GradientSource:
        return self.made().pick(rows)

    @property
    def reached(self) -> TokenMask:
        return self.made().reached


@dataclass(frozen=True)
class BlockRelevance:
    """The relevance of the map of an operation."""

    blocks: BlockPass
    operation: int

    def __call__(self) -> AttentionMap:
        relevance = self.blocks.relevance(self.operation)
        return relevance if isinstance(relevance, Tensor) else relevance()

    def pick(self, rows: slice | Positions) -> AttentionMap | FoldedRelevance:
        relevance = self.blocks.relevance(self.operation)
        return pick_rows(relevance, rows) if isinstance(relevance, Tensor) else relevance.pick(rows)

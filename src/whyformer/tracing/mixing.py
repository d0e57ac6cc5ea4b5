"""How much the tokens of a block take in of each other: the matrices M that flow composes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whyformer.axes import Mixing, TokenScores, head_mean
from whyformer.tracing.record import AttentionRecord


@dataclass(frozen=True)
class HeadMean:
    """The mean over heads of A, or of (A ⊙ ∇A)⁺ (GA Eq. 5); each key token scaled by a factor of its own, if given.

    It is called with a record, or with a tile of one; on a GPU whole records are folded by a kernel that knows it.
    """

    times_gradient: bool = False
    key_scales: Mapping[int, TokenScores] | None = None  # by the number of the operation

    def __call__(self, tile: AttentionRecord) -> Mixing:
        mixed = head_mean((tile.map * tile.gradient).clamp(min=0) if self.times_gradient else tile.map)
        if self.key_scales is None:
            return mixed
        mixed = mixed * self.key_scales[tile.operation][:, None, :]
        scale = tile.output_scale  # of a norm between W_o and the residual stream, a constant of each query
        return mixed if scale is None else mixed * scale[:, :, None].to(mixed.dtype)

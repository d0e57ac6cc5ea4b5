"""Read-outs: the positions of a stream that the answer is read from, and their weights."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch import Tensor

from whyformer.axes import Positions, Rows, RowWeights, TokenMask, TokenScores
from whyformer.errors import WhyformerError


@dataclass(frozen=True)
class ReadOut:
    """A weight per position of a stream; most are 0."""

    stream: str
    weights: TokenScores

    @property
    def rows(self) -> tuple[Positions, RowWeights]:
        """The positions with weight, and their weights; examples with fewer are padded with weight 0."""
        most = int((self.weights != 0).sum(dim=1).max())
        order = self.weights.abs().topk(most, dim=1).indices
        return order, self.weights.gather(1, order)

    def one_hot(self, positions: Positions) -> Rows:
        """One-hot rows, one per position."""
        return torch.nn.functional.one_hot(positions, self.weights.shape[1]).to(self.weights.dtype)


READOUT_KINDS = ("first", "mean", "first+mean", "both class tokens", "last")


def read_out_weights(kind: str | int | Tensor, mask: TokenMask, prefix: int) -> TokenScores:
    """The weights of a read-out, given by its kind, as a position, or as such.

    The `prefix` tokens (class, distillation, registers) before an image's patches are excluded from their mean.
    """
    real = mask.float()
    batch, length = real.shape
    weights = torch.zeros_like(real)
    if isinstance(kind, Tensor):
        if kind.shape[-1] != length:
            raise WhyformerError(f"The read-out has {kind.shape[-1]} weights, the stream {length} tokens.")
        return kind.to(real).expand(batch, length)
    if not isinstance(kind, str):
        if isinstance(kind, bool) or not hasattr(kind, "__index__"):
            raise WhyformerError(
                f"readout={kind!r}: a position is a whole number. A kind is a name, such as 'first', 'mean' or 'last'."
            )
        return _one_position(operator.index(kind), mask)
    content = real.clone()
    content[:, :prefix] = 0.0
    positions = torch.arange(length, device=real.device)
    match kind:
        case "first":
            weights[:, 0] = 1.0
        case "last":
            weights.scatter_(1, ((positions + 1) * real).argmax(dim=1, keepdim=True), 1.0)
        case "mean":
            weights = content / content.sum(dim=1, keepdim=True)
        case "first+mean":
            weights = content / content.sum(dim=1, keepdim=True)
            weights[:, 0] += 1.0
        case "both class tokens":
            weights[:, :2] = 0.5
        case _:
            raise WhyformerError(
                f"No read-out named {kind!r}. Known: {', '.join(READOUT_KINDS)}, a position, or weights."
            )
    return weights


def _one_position(position: int, mask: TokenMask) -> TokenScores:
    """All weight on one position; negative positions count from the last real token, ignoring padding."""
    length = mask.shape[1]
    if position >= 0:
        if position >= length:
            raise WhyformerError(f"Read-out position {position} is outside a stream of {length} tokens.")
        return (torch.arange(length, device=mask.device) == position).float().expand(mask.shape)
    from_the_end = mask.flip(1).cumsum(dim=1).flip(1)  # 1 at the last real token, 2 at the one before it
    weights = (mask & (from_the_end == -position)).float()
    shortest = int(mask.sum(dim=1).min())
    if shortest < -position:
        raise WhyformerError(f"Read-out position {position} is outside a text of {shortest} tokens in this batch.")
    return weights


def read_out_reached(reached: TokenMask) -> TokenScores:
    """The read-out of an unknown head: equal weights on the queries of the last map with a nonzero gradient."""
    weights = reached.float()
    return weights / weights.sum(dim=1, keepdim=True).clamp(min=1.0)

"""Which positions of a stream the answer is read from, and with what weight."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch import Tensor

from whyformer.axes import AttentionMap, Positions, Rows, RowWeights, TokenMask, TokenScores
from whyformer.errors import WhyformerError


@dataclass(frozen=True)
class ReadOut:
    """A weight per position of a stream; most are 0."""

    stream: str
    weights: TokenScores

    @property
    def rows(self) -> tuple[Positions, RowWeights]:
        """The positions that are read, and their weights; examples that read fewer are filled up with weight 0."""
        most = int((self.weights != 0).sum(dim=1).max())
        order = self.weights.abs().topk(most, dim=1).indices
        return order, self.weights.gather(1, order)

    def one_hot(self, positions: Positions) -> Rows:
        """One row per position read, with a 1 at that position."""
        return torch.nn.functional.one_hot(positions, self.weights.shape[1]).to(self.weights.dtype)


KINDS = ("first", "mean", "first+mean", "both class tokens", "last")


def read_out_weights(kind: str | int | Tensor, mask: TokenMask, prefix: int) -> TokenScores:
    """The weights of a read-out given by its kind, a position, or themselves.

    `prefix` tokens (class, distillation, registers) lead the patches of an image and are no part of their mean.
    """
    real = mask.float()
    batch, length = real.shape
    weights = torch.zeros_like(real)
    if isinstance(kind, Tensor):
        if kind.shape[-1] != length:
            raise WhyformerError(f"The read-out has {kind.shape[-1]} weights, the stream {length} tokens.")
        return kind.to(real).expand(batch, length)
    if not isinstance(kind, str):
        kind = operator.index(kind)
        if not -length <= kind < length:
            raise WhyformerError(f"Read-out position {kind} is outside a stream of {length} tokens.")
        weights[:, kind] = 1.0
        return weights
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
            raise WhyformerError(f"No read-out named {kind!r}. Known: {', '.join(KINDS)}, a position, or weights.")
    return weights


def read_out_seen(gradient: AttentionMap) -> TokenScores:
    """The read-out of an unknown head: the queries of the last map whose gradient is not zero, all alike."""
    reached = (gradient.abs().amax(dim=(1, 3)) > 0).float()
    return reached / reached.sum(dim=1, keepdim=True).clamp(min=1.0)

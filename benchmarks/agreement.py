"""Rank agreement between maps, for the benchmarks."""

from __future__ import annotations

from torch import Tensor


def ranks(x: Tensor) -> Tensor:
    """Ranks within each row, ties at their mean, as half of GradCAM's patches may share the value 0."""
    below = (x[:, None, :] < x[:, :, None]).sum(dim=-1)
    same = (x[:, None, :] == x[:, :, None]).sum(dim=-1)
    return below.double() + (same - 1).double() / 2


def spearman(first: Tensor, second: Tensor) -> Tensor:
    """The correlation of each pair of rows that both rank anything; a constant map does not."""
    varied = ((first != first[:, :1]).any(dim=1)) & ((second != second[:, :1]).any(dim=1))
    a, b = (ranks(x[varied]) - (x.shape[1] - 1) / 2 for x in (first, second))
    return (a * b).sum(dim=1) / (a.norm(dim=1) * b.norm(dim=1))

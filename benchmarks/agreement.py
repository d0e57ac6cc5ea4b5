"""Rank agreement between maps, for the benchmarks."""

from __future__ import annotations

from torch import Tensor

from whyformer.metrics.sanity import rank_correlation


def spearman(first: Tensor, second: Tensor) -> Tensor:
    """The correlation of each pair of rows that both rank anything; a constant map does not."""
    varied = ((first != first[:, :1]).any(dim=1)) & ((second != second[:, :1]).any(dim=1))
    return rank_correlation(first[varied], second[varied])

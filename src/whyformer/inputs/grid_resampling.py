"""Resample scores on several grids of one picture (whole, tiles, scales) to a single grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whyformer.axes import TokenScores
from whyformer.inputs.layouts import Box


@dataclass(frozen=True, eq=False)
class ScoredGrid:
    """Scores [row, column] of a grid of patches, and the area it covers."""

    scores: np.ndarray
    box: Box

    @property
    def cell(self) -> tuple[float, float]:
        """The height and the width of a patch."""
        left, top, right, bottom = self.box
        return (bottom - top) / self.scores.shape[0], (right - left) / self.scores.shape[1]


def sum_grids(grids: Sequence[ScoredGrid]) -> ScoredGrid:
    """Sum several grids on one as fine as the finest; each patch distributes its score by area."""
    if len(grids) == 1:
        return grids[0]
    corners = np.array([grid.box for grid in grids])
    left, top = corners[:, :2].min(axis=0)
    right, bottom = corners[:, 2:].max(axis=0)
    height, width = np.array([grid.cell for grid in grids]).min(axis=0)
    rows, columns = round((bottom - top) / height), round((right - left) / width)
    total = np.zeros((rows, columns))
    for grid in grids:
        down = _shares((top, bottom), rows, (grid.box[1], grid.box[3]), grid.scores.shape[0])
        across = _shares((left, right), columns, (grid.box[0], grid.box[2]), grid.scores.shape[1])
        total += down @ grid.scores.astype(np.float64) @ across.T
    return ScoredGrid(total.astype(grids[0].scores.dtype), (float(left), float(top), float(right), float(bottom)))


def sum_levels(scores: TokenScores, grids: Sequence[tuple[int, int]]) -> TokenScores:
    """Sum the tokens of several grids that each cover the whole picture, on the finest of them, by area."""
    finest, whole = max(grids), (0.0, 1.0)
    parts = scores.split([down * across for down, across in grids], dim=1)
    total = scores.new_zeros(len(scores), *finest)
    for part, grid in zip(parts, grids, strict=True):
        down, across = (
            torch.from_numpy(_shares(whole, count, whole, cells)).to(part)
            for count, cells in zip(finest, grid, strict=True)
        )
        total = total + down @ part.unflatten(1, grid) @ across.T
    flat: Tensor = total.flatten(1)
    return flat


def _shares(whole: tuple[float, float], count: int, part: tuple[float, float], cells: int) -> np.ndarray:
    """The share of each of the part's cells in each of the whole's, [whole, part]; columns sum to 1."""
    edges, own = np.linspace(*whole, count + 1), np.linspace(*part, cells + 1)
    lower = np.maximum(edges[:-1, None], own[None, :-1])
    upper = np.minimum(edges[1:, None], own[None, 1:])
    shares: np.ndarray = np.clip(upper - lower, 0, None) / np.diff(own)
    return shares

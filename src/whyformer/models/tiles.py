"""Pictures cut into tiles: the grid of tiles, their padding, and the patches that each feature is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.image_processing_utils import select_best_resolution


@dataclass(frozen=True, eq=False)
class Tiling:
    """The tiling of a picture: rows and columns of tiles, the area their patches cover, and its features.

    `sources` are indices of patches [row, column, source] in the grid of all tiles, `weights` their weights.
    """

    rows: int
    columns: int
    box: tuple[float, float, float, float]
    sources: Tensor
    weights: Tensor


def tiling_of(
    size: tuple[int, int], resolutions: Sequence[Sequence[int]], tile: int, side: int, most: int | None
) -> Tiling:
    """The tiling of a picture of this (height, width), with tiles of side × side patches.

    If `most` is given, features beyond those of `most` tiles are reduced by interpolation.
    """
    height, width = select_best_resolution(size, list(resolutions))
    rows, columns = height // tile, width // tile
    down, across = _real(size, (rows * side, columns * side))
    sources, weights = _cells(down, across, columns * side, _fewer(down, across, side, most))
    return Tiling(rows, columns, _covered(size, (height, width)), sources, weights)


def grid_of_tiles(rows: int, columns: int, side: int, prefix: int, length: int) -> Tensor:
    """Positions [row, column] of the patches of all tiles, which follow the whole picture; each has `length` tokens."""
    tiles = length * (1 + torch.arange(rows * columns)).reshape(rows, 1, columns, 1)
    inside = prefix + torch.arange(side * side).reshape(1, side, 1, side)
    return (tiles + inside).reshape(rows * side, columns * side)


def _real(size: tuple[int, int], grid: tuple[int, int]) -> tuple[range, range]:
    """Rows and columns of patches that are not padding: the picture is centred on its tiles."""
    height, width = size
    rows, columns = grid
    if width / height > columns / rows:
        gap = (rows - int(round(height * columns / width, 7))) // 2
        return range(gap, rows - gap), range(columns)
    gap = (columns - int(round(width * rows / height, 7))) // 2
    return range(rows), range(gap, columns - gap)


def _fewer(down: range, across: range, side: int, most: int | None) -> tuple[int, int]:
    """Rows and columns of the features."""
    ratio = 1.0 if most is None else math.sqrt(len(down) * len(across) / (most * side**2))
    return (int(len(down) // ratio), int(len(across) // ratio)) if ratio > 1.1 else (len(down), len(across))


def _cells(down: range, across: range, columns: int, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The patches of each feature and their weights: one, or four if features are interpolated."""
    if size == (len(down), len(across)):
        cells = torch.tensor(down)[:, None] * columns + torch.tensor(across)[None, :]
        return cells[..., None], torch.ones(*cells.shape, 1, dtype=torch.float64)
    (low, rows), (near, places) = (_neighbours(span, count) for span, count in zip((down, across), size, strict=True))
    sources = low[:, None, :, None] * columns + near[None, :, None, :]
    return sources.flatten(2), (rows[:, None, :, None] * places[None, :, None, :]).flatten(2)


def _neighbours(span: range, count: int) -> tuple[Tensor, Tensor]:
    """The two neighbours of each of `count` interpolated entries, and their weights."""
    place = ((torch.arange(count, dtype=torch.float64) + 0.5) * len(span) / count - 0.5).clamp(min=0)
    first = place.floor().long()
    second = (first + 1).clamp(max=len(span) - 1)
    share = place - first
    return span.start + torch.stack([first, second], dim=1), torch.stack([1 - share, share], dim=1)


def _covered(size: tuple[int, int], canvas: tuple[int, int]) -> tuple[float, float, float, float]:
    """The area that the tiles cover, in shares of the picture's width and height."""
    scale = min(canvas[0] / size[0], canvas[1] / size[1])
    height, width = (min(math.ceil(side * scale), limit) for side, limit in zip(size, canvas, strict=True))
    top, left = (canvas[0] - height) // 2, (canvas[1] - width) // 2
    return -left / width, -top / height, (canvas[1] - left) / width, (canvas[0] - top) / height

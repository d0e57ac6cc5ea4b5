"""Map the placeholder tokens of a decoder to the patches of its image tower."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from whyformer.axes import Inputs
from whyformer.models.tiles import Tiling, grid_of_tiles, tiling_of

BoxShares = tuple[float, float, float, float]
WHOLE: BoxShares = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True, eq=False)
class PatchView:
    """A grid of patches over a picture, whole or in tiles.

    `positions` index the patches among the tokens of the picture, row by row. `box` is the area that the grid covers,
    in shares of the picture's width and height, and extends beyond it where it was padded.
    """

    rows: int
    columns: int
    positions: Tensor
    box: BoxShares = WHOLE


@dataclass(frozen=True)
class FeatureGrid:
    """Features in a grid: the index of the first, the rows and columns, and the number of features per row."""

    first: int
    rows: int
    columns: int
    stride: int


@dataclass(frozen=True, eq=False)
class SeenPicture:
    """A picture as represented by the image tower and the bridge after it.

    Attributes:
        order: Position among the picture's tokens of each token, in the tower's order.
        patches: Position of each patch, in the order of the pixels.
        views: The grids of patches over the picture.
        sources: The tokens [feature, source] that each feature is made of.
        weights: The weight of each, summing to 1, or to 0 for a feature without sources (a newline).
        grids: The grids of features over the picture.
    """

    order: Tensor
    patches: Tensor
    views: tuple[PatchView, ...]
    sources: Tensor
    weights: Tensor
    grids: tuple[FeatureGrid, ...]

    @property
    def tiles(self) -> int:
        """Number of the tower's maps for it."""
        return len(self.patches) // (self.views[0].rows * self.views[0].columns)


# Returns the pictures of the inputs, given the configuration and the number of tokens before the tower's patches.
ImageTokenLayout = Callable[[Any, Inputs, int], list[SeenPicture]]


def in_blocks(rows: int, columns: int, side: int, prefix: int = 0) -> SeenPicture:
    """A picture whose patches become features in blocks of side × side, without the leading tokens."""
    patches = prefix + torch.arange(rows * columns).reshape(rows, columns)
    blocks = patches.unfold(0, side, side).unfold(1, side, side).reshape(-1, side * side)
    grid = FeatureGrid(0, rows // side, columns // side, columns // side)
    order, flat = torch.arange(prefix + rows * columns), patches.flatten()
    return SeenPicture(order, flat, (PatchView(rows, columns, flat),), blocks, _equal(blocks), (grid,))


def whole_pictures(config: Any, inputs: Inputs, prefix: int) -> list[SeenPicture]:
    """One feature per patch (LLaVA, PaliGemma), and per class token if the configuration keeps it."""
    rows, columns = _patch_grid(config, inputs["pixel_values"])
    one = in_blocks(rows, columns, 1, prefix)
    if getattr(config, "vision_feature_select_strategy", "default") == "full" and prefix:
        sources, grid = one.order[:, None], FeatureGrid(prefix, rows, columns, columns)
        one = replace(one, sources=sources, weights=_equal(sources), grids=(grid,))
    return [one] * len(inputs["pixel_values"])


def pooled_pictures(config: Any, inputs: Inputs, prefix: int) -> list[SeenPicture]:
    """Features that average square blocks of patches (Gemma 3)."""
    rows, columns = _patch_grid(config, inputs["pixel_values"])
    side = rows // int(config.mm_tokens_per_image**0.5)
    return [in_blocks(rows, columns, side, prefix)] * len(inputs["pixel_values"])


def shuffled_pictures(config: Any, inputs: Inputs, prefix: int) -> list[SeenPicture]:
    """Features that concatenate square blocks of patches (InternVL, Idefics 3); all-zero pictures are padding."""
    pixels = inputs["pixel_values"]
    side = getattr(config, "scale_factor", None) or round(1 / config.downsample_ratio)
    rows, columns = _patch_grid(config, pixels)
    count = len(pixels) if pixels.dim() == 4 else int((pixels != 0).flatten(2).any(dim=2).sum())
    return [in_blocks(rows, columns, side, prefix)] * count


def queried_pictures(config: Any, inputs: Inputs, prefix: int) -> list[SeenPicture]:
    """Features that are queries of a Q-Former, whose attention determines the patches they are made of (BLIP-2)."""
    rows, columns = _patch_grid(config, inputs["pixel_values"])
    none = torch.zeros(config.num_query_tokens, 0, dtype=torch.float64)
    one = replace(in_blocks(rows, columns, 1, prefix), sources=none.long(), weights=none, grids=())
    return [one] * len(inputs["pixel_values"])


def packed_pictures(config: Any, inputs: Inputs, prefix: int) -> list[SeenPicture]:
    """Pictures of any size whose patches are packed into one sequence, block by block, window by window (Qwen-VL)."""
    side = config.vision_config.spatial_merge_size
    window = getattr(config.vision_config, "window_size", None)
    width = None if window is None else window // side // config.vision_config.patch_size
    pictures = []
    for _, rows, columns in inputs["image_grid_thw"].tolist():
        one = in_blocks(rows, columns, side)
        blocks = torch.arange(len(one.sources))
        if width is not None:  # the blocks of a window are contiguous
            row, column = blocks // (columns // side), blocks % (columns // side)
            blocks = (row // width * columns + column // width).argsort(stable=True)
        pictures.append(replace(one, order=one.sources[blocks].flatten(), patches=one.sources.flatten()))
    return pictures


def tiled_pictures(config: Any, inputs: Inputs, prefix: int) -> list[SeenPicture]:
    """A whole picture, then its tiles without padding, with a newline after each row (LLaVA-NeXT, OneVision)."""
    tile = config.vision_config.image_size
    side = tile // config.vision_config.patch_size
    limit = getattr(config, "vision_aspect_ratio", None)
    most = None if limit is None else int(limit.removeprefix("anyres_max_"))
    left_out = prefix if config.vision_feature_select_strategy == "default" else 0
    sizes = [(height, width) for height, width in inputs["image_sizes"].tolist()]
    tilings = [tiling_of(size, config.image_grid_pinpoints, tile, side, most) for size in sizes]
    return [_tiled(tiling, side, prefix, left_out) for tiling in tilings]


def _tiled(tiling: Tiling, side: int, prefix: int, left_out: int) -> SeenPicture:
    length = prefix + side * side
    base = torch.arange(left_out, length)[:, None].expand(-1, tiling.sources.shape[-1])
    first = torch.zeros(base.shape, dtype=torch.float64)
    first[:, 0] = 1.0
    patches = grid_of_tiles(tiling.rows, tiling.columns, side, prefix, length)
    rows, columns = tiling.sources.shape[:2]
    newline = torch.zeros(rows, 1, tiling.sources.shape[-1], dtype=torch.float64)
    fine = torch.cat([patches.flatten()[tiling.sources], newline.long()], dim=1).flatten(0, 1)
    weights = torch.cat([tiling.weights, newline], dim=1).flatten(0, 1)
    views = (
        PatchView(side, side, torch.arange(prefix, length)),
        PatchView(patches.shape[0], patches.shape[1], patches.flatten(), tiling.box),
    )
    grids = (
        FeatureGrid(prefix - left_out, side, side, side),
        FeatureGrid(len(base), rows, columns, columns + 1),
    )
    order = torch.arange(length * (1 + tiling.rows * tiling.columns))
    by_tile = order.reshape(-1, length)[:, prefix:].flatten()
    return SeenPicture(order, by_tile, views, torch.cat([base, fine]), torch.cat([first, weights]), grids)


def _equal(sources: Tensor) -> Tensor:
    return torch.full(sources.shape, 1 / sources.shape[1], dtype=torch.float64)


def _patch_grid(config: Any, pixels: Tensor) -> tuple[int, int]:
    """Rows and columns of the patches of pictures of one size."""
    size: int | Sequence[int] = config.vision_config.patch_size
    height, width = (size, size) if isinstance(size, int) else size
    return pixels.shape[-2] // height, pixels.shape[-1] // width

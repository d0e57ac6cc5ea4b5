"""Which patches of an image tower each placeholder token of a decoder stands for."""

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
    """A grid of patches as which a picture is seen, whole or cut into tiles.

    `positions` are those of the patches among the tokens of the picture, row by row; `box` is what the grid covers of
    it, in shares of its width and height, and reaches beyond it where it was padded.
    """

    rows: int
    columns: int
    positions: Tensor
    box: BoxShares = WHOLE


@dataclass(frozen=True)
class FeatureGrid:
    """Features that lie in a grid: the first of them, its rows and columns, and how many features a row takes."""

    first: int
    rows: int
    columns: int
    stride: int


@dataclass(frozen=True, eq=False)
class SeenPicture:
    """One picture as the image tower and the bridge after it represent it.

    Attributes:
        order: For each token as the tower runs them, its position among those of the picture.
        patches: For each patch as the pixels are given, its position.
        views: The grids of patches that the picture is seen as.
        sources: The tokens [feature, source] that each feature is made of.
        weights: What each of them counts for: 1 in all, or 0 for a feature that is made of none (a newline).
        grids: How the features lie in the picture.
    """

    order: Tensor
    patches: Tensor
    views: tuple[PatchView, ...]
    sources: Tensor
    weights: Tensor
    grids: tuple[FeatureGrid, ...]

    @property
    def tiles(self) -> int:
        """How many maps a tower has of it."""
        return len(self.patches) // (self.views[0].rows * self.views[0].columns)


# The pictures of some inputs, by the configuration and by how many tokens of its own (a class token) the tower puts
# before the patches.
ImageTokenLayout = Callable[[Any, Inputs, int], list[SeenPicture]]


def in_blocks(rows: int, columns: int, side: int, prefix: int = 0) -> SeenPicture:
    """A picture whose patches become features in blocks of side × side; tokens that lead them are left out."""
    patches = prefix + torch.arange(rows * columns).reshape(rows, columns)
    blocks = patches.unfold(0, side, side).unfold(1, side, side).reshape(-1, side * side)
    grid = FeatureGrid(0, rows // side, columns // side, columns // side)
    order, flat = torch.arange(prefix + rows * columns), patches.flatten()
    return SeenPicture(order, flat, (PatchView(rows, columns, flat),), blocks, _equal(blocks), (grid,))


def whole_pictures(config: Any, inputs: Inputs, prefix: int) -> list[SeenPicture]:
    """Each patch a feature (LLaVA, PaliGemma), the tower's class token among them if nothing is left out of them."""
    rows, columns = _patch_grid(config, inputs["pixel_values"])
    one = in_blocks(rows, columns, 1, prefix)
    if getattr(config, "vision_feature_select_strategy", "default") == "full" and prefix:
        sources, grid = one.order[:, None], FeatureGrid(prefix, rows, columns, columns)
        one = replace(one, sources=sources, weights=_equal(sources), grids=(grid,))
    return [one] * len(inputs["pixel_values"])


def pooled_pictures(config: Any, inputs: Inputs, prefix: int) -> list[SeenPicture]:
    """Features that are the mean of square blocks of patches (Gemma 3)."""
    rows, columns = _patch_grid(config, inputs["pixel_values"])
    side = rows // int(config.mm_tokens_per_image**0.5)
    return [in_blocks(rows, columns, side, prefix)] * len(inputs["pixel_values"])


def shuffled_pictures(config: Any, inputs: Inputs, prefix: int) -> list[SeenPicture]:
    """Features that are square blocks of patches side by side (InternVL, Idefics 3); pictures of zeros are padding."""
    pixels = inputs["pixel_values"]
    side = getattr(config, "scale_factor", None) or round(1 / config.downsample_ratio)
    rows, columns = _patch_grid(config, pixels)
    count = len(pixels) if pixels.dim() == 4 else int((pixels != 0).flatten(2).any(dim=2).sum())
    return [in_blocks(rows, columns, side, prefix)] * count


def queried_pictures(config: Any, inputs: Inputs, prefix: int) -> list[SeenPicture]:
    """Features that are queries of a Q-Former, whose own attention says which patches they are made of (BLIP-2)."""
    rows, columns = _patch_grid(config, inputs["pixel_values"])
    none = torch.zeros(config.num_query_tokens, 0, dtype=torch.float64)
    one = replace(in_blocks(rows, columns, 1, prefix), sources=none.long(), weights=none, grids=())
    return [one] * len(inputs["pixel_values"])


def packed_pictures(config: Any, inputs: Inputs, prefix: int) -> list[SeenPicture]:
    """Pictures of every size whose patches run in one sequence, block by block, and window by window (Qwen-VL)."""
    side = config.vision_config.spatial_merge_size
    window = getattr(config.vision_config, "window_size", None)
    width = None if window is None else window // side // config.vision_config.patch_size
    pictures = []
    for _, rows, columns in inputs["image_grid_thw"].tolist():
        one = in_blocks(rows, columns, side)
        blocks = torch.arange(len(one.sources))
        if width is not None:  # a window's blocks stand together
            row, column = blocks // (columns // side), blocks % (columns // side)
            blocks = (row // width * columns + column // width).argsort(stable=True)
        pictures.append(replace(one, order=one.sources[blocks].flatten(), patches=one.sources.flatten()))
    return pictures


def tiled_pictures(config: Any, inputs: Inputs, prefix: int) -> list[SeenPicture]:
    """A picture as a whole, then in tiles without their padding, a newline after each row (LLaVA-NeXT, OneVision)."""
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

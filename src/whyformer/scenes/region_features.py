"""Scenes as regions with features and boxes, like the output of a detector."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from whyformer.scenes.drawing import Pictures, nearness
from whyformer.scenes.world import SIDE, THINGS

CROP = 12  # side of a resampled region, in pixels
KNOTS = 16  # that encode each number of the box
FEATURES = 3 * CROP * CROP + 4 * KNOTS


@dataclass(frozen=True)
class RegionBatch:
    """One region per thing, clutter included, in the order of the things.

    A feature holds only the content and position of the box: its pixels resampled to 12 × 12 RGB in [-1, 1], then its
    centre (x, y), width and height. Each of these four is interpolation weights on 16 knots in [0, 1], so that a linear
    layer can read them. It does not name colours or shapes.

    Attributes:
        features: [scene, thing, 496].
        boxes: [scene, thing, 4]: left, top, right, bottom, as shares of the side.
    """

    features: Float[Tensor, "scene thing feature"]
    boxes: Float[Tensor, "scene thing 4"]


def regions(pictures: Pictures) -> RegionBatch:
    """Boxes and features of drawn scenes, one region per thing.

    Args:
        pictures: Scenes drawn by `pictures`.

    Returns:
        Features and boxes, in the order of the things.

    Example:
        >>> from whyformer.scenes import pictures, regions, sample
        >>> detected = regions(pictures(sample(2, "test")))
        >>> detected.features.shape, detected.boxes.shape
        (torch.Size([2, 8, 496]), torch.Size([2, 8, 4]))
    """
    boxes = pictures.boxes / SIDE
    left, top, right, bottom = boxes.unbind(dim=2)
    inside = (torch.arange(CROP, device=boxes.device) + 0.5) / CROP
    across = left[:, :, None] + (right - left)[:, :, None] * inside  # scene, thing, column
    down = top[:, :, None] + (bottom - top)[:, :, None] * inside
    shape = (len(boxes), THINGS, CROP, CROP)
    grid = torch.stack([across[:, :, None, :].expand(shape), down[:, :, :, None].expand(shape)], dim=-1) * 2 - 1
    pixels = pictures.pixels.float() / 127.5 - 1
    crops = F.grid_sample(pixels, grid.flatten(1, 2), align_corners=False, padding_mode="border")
    crops = crops.unflatten(2, (THINGS, CROP)).transpose(1, 2).flatten(2)
    spans = torch.stack([(left + right) / 2, (top + bottom) / 2, right - left, bottom - top], dim=2)
    return RegionBatch(torch.cat([crops, nearness(spans, KNOTS).flatten(2)], dim=2), boxes)

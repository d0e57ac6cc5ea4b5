"""Scores of patches as maps of pixels."""

from __future__ import annotations

from torch.nn import functional as F

from whyformer.axes import PatchScores, PixelScores


def upsampled(scores: PatchScores, size: tuple[int, int]) -> PixelScores:
    """The map at this (height, width), bilinear between the patches' centres."""
    if scores.shape[1:] == size:
        return scores
    return F.interpolate(scores[:, None], size, mode="bilinear", align_corners=False)[:, 0]


def unit_range(maps: PixelScores) -> PixelScores:
    """Each map stretched to [0, 1]; one that says the same everywhere is 0."""
    low, high = maps.amin(dim=(1, 2), keepdim=True), maps.amax(dim=(1, 2), keepdim=True)
    width = high - low
    return (maps - low) / width.where(width > 0, 1.0)

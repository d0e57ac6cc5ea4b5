"""Convert patch scores to pixel maps."""

from __future__ import annotations

from torch.nn import functional as F

from whyformer.axes import PatchScores, PixelScores


def upsampled(scores: PatchScores, size: tuple[int, int]) -> PixelScores:
    """Upsample to (height, width), bilinearly between the patches' centres."""
    if scores.shape[1:] == size:
        return scores
    return F.interpolate(scores[:, None], size, mode="bilinear", align_corners=False)[:, 0]


def unit_range(maps: PixelScores) -> PixelScores:
    """Rescale each map to [0, 1]; a constant map becomes 0."""
    low, high = maps.amin(dim=(1, 2), keepdim=True), maps.amax(dim=(1, 2), keepdim=True)
    width = high - low
    return (maps - low) / width.where(width > 0, 1.0)

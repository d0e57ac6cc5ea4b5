"""Locate the parts of an example in its streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import nn
from torch.nn import functional as F

from whyformer.axes import Inputs, StreamScores
from whyformer.inputs.grid_resampling import sum_levels
from whyformer.inputs.modality import PartPlace, known_modalities
from whyformer.models.structure import feature_levels, has_levels

__all__ = ["PartPlace", "merge_levels", "part_places", "real_grid"]


def part_places(model: nn.Module, inputs: Inputs, lengths: Mapping[str, int]) -> Iterator[PartPlace]:
    """Locate the parts of the inputs, given the length of each stream. Pixels, if a stream, are the picture."""
    places = (modality.place(model, inputs, lengths) for modality in known_modalities().values() if modality.place)
    return (place for place in places if place is not None)


def merge_levels(model: nn.Module, inputs: Inputs, scores: StreamScores) -> StreamScores:
    """Sum the scores of feature maps of several sizes on the finest of them."""
    if "image" not in scores or "pixel_values" not in inputs or not has_levels(model):
        return scores
    height, width = inputs["pixel_values"].shape[-2:]
    grids = feature_levels(model, (height, width), scores["image"].shape[1])
    return scores | {"image": sum_levels(scores["image"], grids)}


def real_grid(inputs: Inputs, row: int, grid: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the patches that are not padding, in a stream of only those (ViLT)."""
    if "pixel_mask" not in inputs:
        return grid
    mask = F.interpolate(inputs["pixel_mask"][row][None, None].float(), size=grid)[0, 0]
    return int(mask[:, 0].sum()), int(mask[0].sum())

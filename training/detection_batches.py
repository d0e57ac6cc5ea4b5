"""Batches of drawn scenes with a detector's targets: labels and boxes of objects, and of every encoder token."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from whyformer.scenes import LABELS, SIDE, Scenes, pictures, sample
from whyformer.scenes.world import MOST

PIXELS = 128
GRID = PIXELS // 8  # encoder tokens a side
NOTHING = len(LABELS)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class DetectionBatch(NamedTuple):
    """Scenes with a detector's targets; boxes are centre and size, as shares of the side."""

    pixels: Tensor  # scene, rgb, 64, 64
    labels: Tensor  # scene, object: NOTHING where there are fewer
    boxes: Tensor  # scene, object, 4
    token_labels: Tensor  # scene, token: the label seen there, or NOTHING
    token_boxes: Tensor  # scene, token, 4: the box of the object seen there, or else the token's own


def detection_batch(scenes: Scenes) -> DetectionBatch:
    """The scenes drawn, with targets for the queries and for the encoder's tokens."""
    drawn = pictures(scenes)
    left_top, right_bottom = (drawn.boxes / SIDE).split(2, dim=2)
    boxes = torch.cat([(left_top + right_bottom) / 2, right_bottom - left_top], dim=2)
    labels = torch.where(scenes.is_object, scenes.label, NOTHING)
    objects = scenes.is_object.long().argsort(dim=1, descending=True, stable=True)[:, :MOST]
    step = SIDE // GRID
    owner = drawn.owner[:, step // 2 :: step, step // 2 :: step].flatten(1).long()
    token_labels = torch.where(owner < 0, NOTHING, labels.gather(1, owner.clamp(min=0)))
    is_object = (token_labels < NOTHING)[:, :, None]
    token_boxes = torch.where(is_object, gather_rows(boxes, owner.clamp(min=0)), patch_boxes(owner.device))
    return DetectionBatch(
        drawn.pixels, labels.gather(1, objects), gather_rows(boxes, objects), token_labels, token_boxes
    )


def patch_boxes(device: torch.device) -> Tensor:
    """The box of the patch that each token stands for."""
    place = (torch.arange(GRID, device=device) + 0.5) / GRID
    centres = torch.stack(torch.meshgrid(place, place, indexing="xy"), dim=2).flatten(0, 1)
    return torch.cat([centres, torch.full_like(centres, 1 / GRID)], dim=1)


def training_batches(size: int, rng: torch.Generator, *, per_draw: int = 16) -> Iterator[DetectionBatch]:
    """Batches of the training split, without end; the scenes of `per_draw` batches are drawn at once."""
    while True:
        scenes = detection_batch(sample(per_draw * size, "train", rng=rng))
        for part in zip(*(field.split(size) for field in scenes), strict=True):
            yield DetectionBatch(*part)


def gather_rows(values: Tensor, index: Tensor) -> Tensor:
    """The rows of `values` (scene, row, channel) that `index` (scene, place) names."""
    return values.gather(1, index[:, :, None].expand(-1, -1, values.shape[2]))


def inputs_of(pixels: Tensor) -> Tensor:
    """What the image processor makes of these pixels, up to its rounding."""
    larger = F.interpolate(pixels.float(), size=(PIXELS, PIXELS), mode="bilinear").round()
    mean, std = (torch.tensor(values, device=pixels.device)[:, None, None] for values in (MEAN, STD))
    return ((larger / 255 - mean) / std).contiguous(memory_format=torch.channels_last)

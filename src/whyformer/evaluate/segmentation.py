"""Segmentation: how well a map of scores tells the object from its background (TA Sec. 4, BI Table 2).

In the truth 1 is object, 0 background, and everything else unknown: such pixels are left out of every count.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from whyformer.axes import Counts, ExampleScores, PixelMask, PixelScores, PixelTruth, RowScores
from whyformer.errors import check_choice
from whyformer.evaluate.maps import unit_range
from whyformer.evaluate.statistics import OfTotals
from whyformer.extras import extra

# What `overlap` counts in each image; figures of a data set are made from the sums of these.
COUNTS = (
    "correct",
    "labelled",
    "background_intersection",
    "object_intersection",
    "background_union",
    "object_union",
)
Averaged = Literal["thresholds", "image", "rows"]
THRESHOLDS = 100  # points of [0, 1), for what is averaged over them


def foreground(maps: PixelScores) -> PixelMask:
    """Where the score is above the map's mean."""
    return maps > maps.mean(dim=(1, 2), keepdim=True)


def overlap(found: PixelMask, truth: PixelTruth) -> Counts:
    """The COUNTS of each image."""
    background, thing = truth == 0, truth == 1
    parts = [
        (found & thing) | (~found & background),
        background | thing,
        ~found & background,
        found & thing,
        (~found & thing) | background,
        (found & background) | thing,
    ]
    return torch.stack([part.sum(dim=(1, 2)) for part in parts], dim=1)


def _accuracy(totals: Any) -> Any:
    return totals[..., 0] / totals[..., 1]


def _iou(totals: Any) -> Any:
    intersection, union = totals[..., 2:4], totals[..., 4:6]
    return np.where(union > 0, intersection / np.maximum(union, 1), 1.0).mean(axis=-1)


# Of the counts of all images: the share of the labelled pixels that are found right; and intersection over union,
# summed over all images, the mean of background and object.
pixel_accuracy = OfTotals(_accuracy)
mean_iou = OfTotals(_iou)


def average_precision(maps: PixelScores, truth: PixelTruth) -> ExampleScores:
    """One average precision for each image, over its object scores and its background scores 1 − map together."""
    binary = extra("torchmetrics.functional.classification").binary_average_precision
    values = []
    for scores, marks in zip(unit_range(maps), truth, strict=True):
        known = (marks == 0) | (marks == 1)
        scores, marks = scores[known], marks[known]
        values.append(binary(torch.cat([1 - scores, scores]), torch.cat([1 - marks, marks]).long()))
    return torch.stack(values)


def f1(maps: PixelScores, truth: PixelTruth, averaged: Averaged = "thresholds") -> ExampleScores:
    """F1 of the object in each image.

    The mean over THRESHOLDS of the map in [0, 1], as BI prints it ("thresholds"); at the map's mean ("image"); or
    there, for every row of pixels by itself, one without object being 0, as the authors' code has it ("rows").
    """
    check_choice("averaged", averaged, Averaged)
    if averaged == "thresholds":
        maps = unit_range(maps)
        points = [number / THRESHOLDS for number in range(THRESHOLDS)]
        return torch.stack([_f1(maps > point, truth, dim=(1, 2)) for point in points]).mean(dim=0)
    if averaged == "image":
        return _f1(foreground(maps), truth, dim=(1, 2))
    return row_f1(maps, truth).mean(dim=1)


def row_f1(maps: PixelScores, truth: PixelTruth) -> RowScores:
    """F1 of every row of pixels, at the mean of the whole map."""
    return _f1(foreground(maps), truth, dim=(2,))


def _f1(found: PixelMask, truth: PixelTruth, dim: tuple[int, ...]) -> Tensor:
    thing = truth == 1
    hits = (found & thing).sum(dim=dim)
    wrong = ((found & (truth == 0)) | (~found & thing)).sum(dim=dim)
    return 2 * hits.double() / (2 * hits + wrong).clamp(min=1)

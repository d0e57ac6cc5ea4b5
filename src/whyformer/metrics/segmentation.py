"""Segmentation: how well a map of scores tells the object from its background (TA Sec. 4, BI Table 2).

In the truth 1 is object, 0 background, and everything else unknown: such pixels are left out of every count.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from whyformer.axes import Counts, ExampleScores, PixelMask, PixelScores, PixelTruth, RowScores
from whyformer.errors import check_choice
from whyformer.metrics.pixel_maps import unit_range
from whyformer.metrics.statistics import OfTotals

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


def overlap(predicted: PixelMask, truth: PixelTruth) -> Counts:
    """The COUNTS of each image."""
    background, thing = truth == 0, truth == 1
    parts = [
        (predicted & thing) | (~predicted & background),
        background | thing,
        ~predicted & background,
        predicted & thing,
        (~predicted & thing) | background,
        (predicted & background) | thing,
    ]
    return torch.stack([part.sum(dim=(1, 2)) for part in parts], dim=1)


def _accuracy(totals: Any) -> Any:
    correct, labelled = (_count(totals, name).astype(float) for name in ("correct", "labelled"))
    return np.where(labelled > 0, correct / np.maximum(labelled, 1), np.nan)


def _iou(totals: Any) -> Any:
    intersection, union = (
        np.stack([_count(totals, f"{part}_{what}") for part in ("background", "object")], axis=-1)
        for what in ("intersection", "union")
    )
    # A class that is neither there nor found is found right, as in the authors' code; of no pixel at all there is none.
    ratios = np.where(union > 0, intersection / np.maximum(union, 1), 1.0)
    return np.where(_count(totals, "labelled") > 0, ratios.mean(axis=-1), np.nan)


def _count(totals: Any, name: str) -> Any:
    return np.asarray(totals)[..., COUNTS.index(name)]


# Of the counts of all images: the share of the labelled pixels that are found right; and intersection over union,
# summed over all images, the mean of background and object.
pixel_accuracy = OfTotals(_accuracy)
mean_iou = OfTotals(_iou)


def pixel_average_precision(maps: PixelScores, truth: PixelTruth) -> ExampleScores:
    """One average precision for each image, over its object scores and its background scores 1 − map together."""
    scores = unit_range(maps).flatten(1)
    flat = truth.flatten(1)
    both = torch.where((flat == 0) | (flat == 1), 1 - flat, flat)  # the background's truth; unknown stays unknown
    return precisions(torch.cat([1 - scores, scores], dim=1), torch.cat([both, flat], dim=1))


def precisions(scores: Tensor, truth: Tensor) -> ExampleScores:
    """The average precision of each example's places [example place], all examples at once; unknown ones count nothing.

    Places of the same score are found together. An example without a single true place has 0.
    """
    ordered, order = scores.sort(dim=1, descending=True)
    marks = truth.gather(1, order)
    hits = (marks == 1).double()
    known = ((marks == 0) | (marks == 1)).double().cumsum(dim=1)
    precision = hits.cumsum(dim=1) / known.clamp(min=1)
    places = torch.arange(scores.shape[1], device=scores.device).expand_as(order)
    is_last = F.pad(ordered[:, :-1] != ordered[:, 1:], (0, 1), value=True)
    last = places.where(is_last, scores.shape[1]).flip(1).cummin(dim=1).values.flip(1)  # of those of the same score
    return (hits * precision.gather(1, last)).sum(dim=1) / hits.sum(dim=1).clamp(min=1)


def f1(maps: PixelScores, truth: PixelTruth, averaged: Averaged = "thresholds") -> ExampleScores:
    """F1 of the object in each image.

    The mean over THRESHOLDS of the map in [0, 1], as BI prints it ("thresholds"); at the map's mean ("image"); or
    there, for every row of pixels by itself, one without object being 0, as the authors' code has it ("rows").
    """
    check_choice("averaged", averaged, Averaged)
    if averaged == "thresholds":
        return _threshold_f1(unit_range(maps).flatten(1), truth.flatten(1)).mean(dim=1)
    if averaged == "image":
        return _f1(foreground(maps), truth, dim=(1, 2))
    return row_f1(maps, truth).mean(dim=1)


def row_f1(maps: PixelScores, truth: PixelTruth) -> RowScores:
    """F1 of every row of pixels, at the mean of the whole map."""
    return _f1(foreground(maps), truth, dim=(2,))


def _threshold_f1(scores: Tensor, truth: Tensor) -> Tensor:
    """F1 of each image at every threshold, by counting the pixels between them once."""
    points = torch.arange(THRESHOLDS, device=scores.device, dtype=torch.double).div(THRESHOLDS).to(scores.dtype)
    passed = torch.searchsorted(points, scores.contiguous())  # how many thresholds a pixel is above
    thing, background = (
        torch.zeros(len(scores), THRESHOLDS + 1, dtype=torch.long, device=scores.device)
        .scatter_add_(1, passed, (truth == value).long())
        .flip(1)
        .cumsum(dim=1)
        .flip(1)
        for value in (1, 0)
    )
    hits, wrong = thing[:, 1:], background[:, 1:] + thing[:, :1] - thing[:, 1:]
    return 2 * hits.double() / (2 * hits + wrong).clamp(min=1)


def _f1(predicted: PixelMask, truth: PixelTruth, dim: tuple[int, ...]) -> Tensor:
    thing = truth == 1
    hits = (predicted & thing).sum(dim=dim)
    wrong = ((predicted & (truth == 0)) | (~predicted & thing)).sum(dim=dim)
    return 2 * hits.double() / (2 * hits + wrong).clamp(min=1)

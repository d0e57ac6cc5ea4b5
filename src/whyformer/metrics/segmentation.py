"""Segmentation: how well a map separates the object from the background (TA Sec. 4, BI Table 2).

In the truth 1 is object, 0 background; all else is unknown and ignored.
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

# Counts of `overlap` per image; metrics of a data set are computed from their sums.
COUNTS = (
    "correct",
    "labelled",
    "background_intersection",
    "object_intersection",
    "background_union",
    "object_union",
)
Averaged = Literal["thresholds", "image", "rows"]
THRESHOLDS = 100  # in [0, 1), to average over


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
    # A class that is neither present nor predicted has an IoU of 1, as in the authors' code; without pixels it is NaN.
    ratios = np.where(union > 0, intersection / np.maximum(union, 1), 1.0)
    return np.where(_count(totals, "labelled") > 0, ratios.mean(axis=-1), np.nan)


def _count(totals: Any, name: str) -> Any:
    return np.asarray(totals)[..., COUNTS.index(name)]


# From the counts of all images: pixel accuracy; and intersection over union, averaged over background and object.
pixel_accuracy = OfTotals(_accuracy)
mean_iou = OfTotals(_iou)


def pixel_average_precision(maps: PixelScores, truth: PixelTruth) -> ExampleScores:
    """Average precision of each image, over object scores and background scores 1 − map together."""
    scores = unit_range(maps).flatten(1)
    flat = truth.flatten(1)
    both = torch.where((flat == 0) | (flat == 1), 1 - flat, flat)  # truth of the background; unknown stays unknown
    return precisions(torch.cat([1 - scores, scores], dim=1), torch.cat([both, flat], dim=1))


def precisions(scores: Tensor, truth: Tensor) -> ExampleScores:
    """Average precision of each example's places [example place]; unknown ones are ignored.

    Places with equal scores are retrieved together. An example without positives gets 0.
    """
    ordered, order = scores.sort(dim=1, descending=True)
    marks = truth.gather(1, order)
    hits = (marks == 1).double()
    known = ((marks == 0) | (marks == 1)).double().cumsum(dim=1)
    precision = hits.cumsum(dim=1) / known.clamp(min=1)
    places = torch.arange(scores.shape[1], device=scores.device).expand_as(order)
    is_last = F.pad(ordered[:, :-1] != ordered[:, 1:], (0, 1), value=True)
    last = places.where(is_last, scores.shape[1]).flip(1).cummin(dim=1).values.flip(1)  # of equal scores
    return (hits * precision.gather(1, last)).sum(dim=1) / hits.sum(dim=1).clamp(min=1)


def f1(maps: PixelScores, truth: PixelTruth, averaged: Averaged = "thresholds") -> ExampleScores:
    """F1 of the object in each image.

    Averaged over THRESHOLDS of the map in [0, 1], as in BI's paper ("thresholds"), or at the map's mean ("image"). With
    "rows" it is at the mean but per row of pixels, 0 for rows without object, as in the authors' code.
    """
    check_choice("averaged", averaged, Averaged)
    if averaged == "thresholds":
        return _threshold_f1(unit_range(maps).flatten(1), truth.flatten(1)).mean(dim=1)
    if averaged == "image":
        return _f1(foreground(maps), truth, dim=(1, 2))
    return row_f1(maps, truth).mean(dim=1)


def row_f1(maps: PixelScores, truth: PixelTruth) -> RowScores:
    """F1 of every row of pixels, thresholded at the mean of the map."""
    return _f1(foreground(maps), truth, dim=(2,))


def _threshold_f1(scores: Tensor, truth: Tensor) -> Tensor:
    """F1 of each image at every threshold, from one histogram."""
    points = torch.arange(THRESHOLDS, device=scores.device, dtype=torch.double).div(THRESHOLDS).to(scores.dtype)
    passed = torch.searchsorted(points, scores.contiguous())  # number of thresholds that a pixel exceeds
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

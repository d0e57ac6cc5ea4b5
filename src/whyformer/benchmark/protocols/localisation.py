"""Compare maps with ground truth: masks of pictures, and the exact truth of drawn scenes."""

from __future__ import annotations

import torch

from whyformer.benchmark.ground_truth import part_truths, pixel_truths
from whyformer.benchmark.method_maps import explanations
from whyformer.benchmark.protocols import Columns, Figure, protocol, require
from whyformer.benchmark.shard import Shard, explained_labels
from whyformer.metrics.perturbation_curves import Explained
from whyformer.metrics.pixel_maps import upsampled
from whyformer.metrics.sanity import pointing_game
from whyformer.metrics.segmentation import (
    Averaged,
    f1,
    foreground,
    mean_iou,
    overlap,
    pixel_accuracy,
    pixel_average_precision,
    precisions,
)

LOCALISED_PARTS = ("image", "regions", "text")


@protocol(
    "segmentation",
    {
        "mIoU": Figure("overlap", mean_iou),
        "pixel accuracy": Figure("overlap", pixel_accuracy),
        "mAP": Figure("average precision"),
        "F1": Figure("F1"),
        "pointing game": Figure("pointing"),
    },
)
def segmentation(shard: Shard, *, explained: Explained = "predicted", averaged: Averaged = "thresholds") -> Columns:
    """Where the map is above its mean, compared with the mask of the object (TA, BI); and the pointing game."""
    truths, labels = pixel_truths(shard.batch), explained_labels(shard, explained)
    require(truths is not None, shard, "segmentation", "pictures with masks")
    assert truths is not None
    columns: Columns = {}
    for method, scores in explanations(shard, labels, "image").items():
        maps = upsampled(scores, shard.batch.image_size)
        columns[method, "overlap"] = overlap(foreground(maps), truths)
        columns[method, "average precision"] = pixel_average_precision(maps, truths)
        columns[method, "F1"] = f1(maps, truths, averaged)
        columns[method, "pointing"] = pointing_game(maps, truths)
    return columns


@protocol(
    "localisation",
    {
        f"{part}: {figure}": Figure(f"{part} {figure}")
        for part in LOCALISED_PARTS
        for figure in ("pointing game", "average precision")
    },
)
def localisation(shard: Shard, *, explained: Explained = "predicted") -> Columns:
    """Pixels, regions and words compared with those that the answer depends on; wrong answers are left out."""
    labels = explained_labels(shard, explained)
    is_wrong = (labels != shard.labels) & (shard.labels >= 0)
    columns: Columns = {}
    for part in LOCALISED_PARTS:
        truths = part_truths(shard.batch, part)
        if truths is None:
            continue
        for method, scores in explanations(shard, labels, part).items():
            maps = upsampled(scores, shard.batch.image_size) if part == "image" else scores
            flat = maps.flatten(1)
            on_object = pointing_game(flat[:, None], truths[:, None])
            for figure, values in (("pointing game", on_object), ("average precision", precisions(flat, truths))):
                columns[method, f"{part} {figure}"] = values.double().masked_fill(is_wrong, torch.nan)
    require(bool(columns), shard, "localisation", "the truth of what an answer depends on")
    return columns

"""Maps against the truth of where things are: masks of pictures, and exact truth of drawn scenes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from whyformer.benchmark.protocols import Figure, Found, checked, protocol
from whyformer.benchmark.shard import Shard
from whyformer.metrics.maps import upsampled
from whyformer.metrics.perturbation import Explained
from whyformer.metrics.sanity import pointing_game
from whyformer.metrics.segmentation import (
    Averaged,
    average_precision,
    f1,
    foreground,
    mean_iou,
    overlap,
    pixel_accuracy,
    precisions,
)

PARTS = ("image", "regions", "text")


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
def segmentation(shard: Shard, *, explained: Explained = "predicted", averaged: Averaged = "thresholds") -> Found:
    """The object, where the map is above its mean, against its mask (TA, BI); and the pointing game."""
    known = [shard.truth(row) for row in range(len(shard))]
    truths = torch.stack([truth for truth in known if truth is not None]) if None not in known else None
    checked(truths is not None, shard, "segmentation", "pictures with masks")
    assert truths is not None
    found: Found = {}
    for method, scores in shard.explanations(shard.explained(explained), "image").items():
        maps = upsampled(scores, shard.size)
        found[method, "overlap"] = overlap(foreground(maps), truths)
        found[method, "average precision"] = average_precision(maps, truths)
        found[method, "F1"] = f1(maps, truths, averaged)
        found[method, "pointing"] = pointing_game(maps, truths)
    return found


@protocol(
    "localisation",
    {
        f"{part}: {figure}": Figure(f"{part} {figure}")
        for part in PARTS
        for figure in ("pointing game", "average precision")
    },
)
def localisation(shard: Shard, *, explained: Explained = "predicted") -> Found:
    """Pixels, regions and words against those that the answer depends on; samples answered wrongly are left out."""
    labels = shard.explained(explained)
    is_wrong = (labels != shard.labels) & (shard.labels >= 0)
    found: Found = {}
    for part in PARTS:
        truths = _truths(shard, part)
        if truths is None:
            continue
        for method, scores in shard.explanations(labels, part).items():
            flat = (upsampled(scores, shard.size) if part == "image" else scores).flatten(1)
            pointed = pointing_game(flat[:, None], truths[:, None])
            for figure, values in (("pointing game", pointed), ("average precision", precisions(flat, truths))):
                found[method, f"{part} {figure}"] = values.double().masked_fill(is_wrong, torch.nan)
    checked(bool(found), shard, "localisation", "the truth of what an answer depends on")
    return found


def _truths(shard: Shard, part: str) -> Tensor | None:
    """The truth at every place of a part [sample place], 2 where it is unknown; None where nobody knows it."""
    if part == "image" and "pixel_values" in shard.inputs:
        masks = [shard.truth(row) for row in range(len(shard))]
        known = [mask.flatten() for mask in masks if mask is not None]
        return torch.stack(known) if len(known) == len(masks) else None
    regions = [sample.regions for sample in shard.samples if sample.regions is not None]
    if part == "regions" and len(regions) == len(shard):
        return torch.from_numpy(np.stack(regions)).long().to(shard.clean.device)
    if part == "text" and all(sample.words is not None for sample in shard.samples):
        return _word_truths(shard).to(shard.clean.device)
    return None


def _word_truths(shard: Shard) -> Tensor:
    truths = torch.full(shard.inputs["input_ids"].shape, 2)
    for row, (sample, piece) in enumerate(zip(shard.samples, shard.encoded, strict=True)):
        assert piece.chunk is not None
        assert sample.words is not None
        text = piece.chunk.layout.texts[0]
        for place, (start, _) in zip(piece.chunk.positions, piece.chunk.layout.offsets, strict=True):
            word = len(text[: start + 1].split()) - 1
            truths[row, place] = int(sample.words[word])
    return truths

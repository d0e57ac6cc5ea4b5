"""Single deletion: remove parts of a picture one at a time, and compare the drops with their scores."""

from __future__ import annotations

from functools import partial

import torch
from torch.nn import functional as F

from whyformer.axes import PixelRemoval
from whyformer.benchmark.method_maps import explanations
from whyformer.benchmark.protocols import Columns, Figure, protocol, require
from whyformer.benchmark.protocols.perturbation import remove_pixels
from whyformer.benchmark.shard import Shard, explained_labels
from whyformer.benchmark.step_answers import step_answers
from whyformer.errors import WhyformerError
from whyformer.inputs.fills import Fill
from whyformer.metrics.perturbation_curves import Explained, curves
from whyformer.metrics.pixel_maps import upsampled
from whyformer.metrics.sanity import rank_correlation


@protocol("single_deletion", {"rank correlation": Figure("correlation", is_share=False)})
def single_deletion(
    shard: Shard, *, explained: Explained = "predicted", side: int = 4, fill: Fill = "black"
) -> Columns:
    """Rank correlation of the scores of a picture's cells with the drops when each is removed (Hesse et al. 2024).

    A model trained with deletions, as by training/mini_vit_deletion.py, has seen such inputs; for any other model they
    are out of distribution.
    """
    require("pixel_values" in shard.batch.inputs, shard, "single_deletion", "pictures")
    if type(side) is not int or side < 2:
        raise WhyformerError(f"single_deletion: side={side!r}: cells a side, a whole number, 2 or more.")
    labels, size = explained_labels(shard, explained), shard.batch.image_size
    removal = partial(cells, side, size, len(shard), shard.logits.device)
    steps = step_answers(shard, {"cells": removal}, side * side, remove_pixels(shard, fill))["cells"]
    before = curves(shard.logits[None], labels, labels).logit
    drops = before - curves(steps, labels, labels).logit
    columns: Columns = {}
    for method, scores in explanations(shard, labels, "image").items():
        sums = F.adaptive_avg_pool2d(upsampled(scores, size), (side, side)).flatten(1)
        columns[method, "correlation"] = rank_correlation(sums, drops)
    return columns


def cells(side: int, size: tuple[int, int], examples: int, device: torch.device) -> PixelRemoval:
    """Remove one cell of a side × side grid at each step, the same for every example."""
    rows, columns = (torch.arange(length, device=device) * side // length for length in size)
    number = side * rows[:, None] + columns
    one = number == torch.arange(side * side, device=device)[:, None, None]
    return one[:, None].expand(-1, examples, -1, -1)

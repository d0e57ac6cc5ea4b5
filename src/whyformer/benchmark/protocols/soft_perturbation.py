"""Soft perturbation of texts: tokens are kept at random, with probabilities given by their scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from whyformer.axes import TokenMask
from whyformer.benchmark.method_maps import explanations
from whyformer.benchmark.protocols import Columns, Figure, Line, protocol, require
from whyformer.benchmark.protocols.perturbation import remove_words
from whyformer.benchmark.shard import Shard, explained_labels
from whyformer.benchmark.step_answers import step_answers
from whyformer.benchmark.word_tokens import word_tokens
from whyformer.errors import WhyformerError
from whyformer.inputs.fills import Erasure
from whyformer.metrics.perturbation_curves import Explained
from whyformer.metrics.soft_removal import (
    DRAWS,
    SHARES,
    hellinger,
    mean_changes,
    soft_comprehensiveness,
    soft_comprehensiveness_removal,
    soft_sufficiency,
    soft_sufficiency_removal,
)

SOFT_MEASURES = {
    "π-Soft-NC": (soft_comprehensiveness_removal, soft_comprehensiveness),
    "π-Soft-NS": (soft_sufficiency_removal, soft_sufficiency),
}


@protocol("soft_perturbation", {name: Figure(name) for name in SOFT_MEASURES})
def soft_perturbation(
    shard: Shard,
    *,
    explained: Explained = "predicted",
    how: Erasure = "pad",
    shares: Sequence[float] = SHARES,
    draws: int = DRAWS,
) -> Columns:
    """Keep tokens at random by their scores, a fixed share on average (π-Soft-NC and π-Soft-NS, Grad-ELLM 2026)."""
    is_read = "input_ids" in shard.batch.inputs and not shard.loaded_model.task.compares
    require(is_read, shard, "soft_perturbation", "texts")
    shares = _valid_shares(shares)
    if type(draws) is not int or draws < 1:
        raise WhyformerError(f"soft_perturbation: draws={draws!r}: draws per share, a whole number, 1 or more.")
    may_go, perturb = word_tokens(shard), remove_words(shard, how)
    uniform = uniform_numbers(shard, may_go, draws)
    empty = hellinger(shard.logits, step_answers(shard, {"empty": lambda: may_go[None]}, 1, perturb)["empty"])[:, 0]
    columns: Columns = {}
    for method, scores in explanations(shard, explained_labels(shard, explained), "text").items():
        for name, (removal, measure) in SOFT_MEASURES.items():
            masks = {name: partial(removal, scores, may_go, uniform, shares)}
            # One method at a time: with a vocabulary as labels, the logits of all draws of all methods are large.
            logits = step_answers(shard, masks, len(shares) * draws, perturb)[name]
            values = measure(mean_changes(shard.logits, logits, len(shares)), empty)
            columns[method, f"{name} by share kept"] = Line(shares, values)
            columns[method, name] = values.mean(dim=1)
    return columns


def uniform_numbers(shard: Shard, removable: TokenMask, draws: int) -> Tensor:
    """Random numbers [draw sample place] by the samples' names: the same for every method and in every batch."""
    numbers = torch.zeros(draws, *removable.shape, dtype=torch.float64)
    for row, sample in enumerate(shard.batch.samples):
        places = removable[row].nonzero()[:, 0].cpu()
        rng = np.random.default_rng([shard.seed, crc32(sample.name.encode())])
        numbers[:, row, places] = torch.from_numpy(rng.random((draws, len(places))))
    return numbers.to(removable.device)


def _valid_shares(shares: Sequence[float]) -> tuple[float, ...]:
    try:
        numbers = tuple(map(float, shares))
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or not all(0 < number < 1 for number in numbers):
        raise WhyformerError(f"soft_perturbation: shares={shares!r:.60} must be shares between 0 and 1, as in [0.5].")
    return numbers

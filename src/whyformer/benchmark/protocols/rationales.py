"""Rationales: the words an explanation picks, against those that people marked (ERASER)."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from whyformer.benchmark.protocols import Figure, Found, Line, checked, protocol
from whyformer.benchmark.protocols.perturbation import without_words
from whyformer.benchmark.shard import Gone, Shard
from whyformer.metrics.perturbation import Erasure, Explained
from whyformer.metrics.rationale import (
    BINS,
    TOP_WORDS,
    auprc,
    mean_drop,
    only_rationale,
    precision_recall_f1,
    rationale_counts,
    without_rationale,
    word_scores,
)


@protocol(
    "rationales",
    {
        "token F1, mean over top 10 to 80": Figure("mean F1"),
        "AUPRC": Figure("AUPRC"),
        "comprehensiveness": Figure("comprehensiveness"),
        "sufficiency": Figure("sufficiency", better="lower"),
    },
)
def rationales(shard: Shard, *, explained: Explained = "target", how: Erasure = "delete") -> Found:
    """Words picked against words that people marked, and what the answer is without them (ERASER; TA, BI)."""
    checked(all(sample.words is not None for sample in shard.samples), shard, "rationales", "texts with marked words")
    labels, may_go = shard.explained(explained), shard.words()
    maps = shard.explanations(labels, "text")
    found: Found = {}
    gone: dict[tuple[str, str], Gone] = {}
    for method, scores in maps.items():
        words = [_words(shard, row, scores[row].tolist()) for row in range(len(shard))]
        truths = [np.asarray(sample.words) for sample in shard.samples]
        counts = np.stack([rationale_counts(*pair) for pair in zip(words, truths, strict=True)])
        f1 = torch.from_numpy(precision_recall_f1(counts)[..., 2])
        f1[[row for row, truth in enumerate(truths) if not truth.any()]] = torch.nan
        found[method, "F1 of the top words"] = Line(tuple(map(float, TOP_WORDS)), f1)
        found[method, "mean F1"] = f1.mean(dim=1)
        areas = [auprc(*pair) for pair in zip(words, truths, strict=True)]
        found[method, "AUPRC"] = torch.tensor(areas, dtype=torch.float64)
        gone[method, "comprehensiveness"] = partial(without_rationale, scores, may_go)
        gone[method, "sufficiency"] = partial(only_rationale, scores, may_go)
    for key, steps in shard.step_answers(gone, len(BINS), without_words(shard, how)).items():
        found[key] = mean_drop(shard.clean, steps, labels)
    return found


def _words(shard: Shard, row: int, scores: list[float]) -> np.ndarray:
    """The score of each word of a sample's text."""
    chunk = shard.encoded[row].chunk
    assert chunk is not None
    return word_scores(chunk.layout.texts[0], chunk.layout.offsets, [scores[place] for place in chunk.positions])

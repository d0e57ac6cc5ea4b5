"""Rationales: compare the top words of an explanation with those that people marked (ERASER)."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from whyformer.benchmark.method_maps import explanations
from whyformer.benchmark.protocols import Columns, Figure, Line, protocol, require
from whyformer.benchmark.protocols.perturbation import remove_words
from whyformer.benchmark.shard import Shard, explained_labels
from whyformer.benchmark.step_answers import MakeRemoval, step_answers
from whyformer.benchmark.word_tokens import word_tokens
from whyformer.inputs.fills import Erasure
from whyformer.metrics.perturbation_curves import Explained
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
def rationales(shard: Shard, *, explained: Explained = "target", how: Erasure = "delete") -> Columns:
    """Top words compared with those that people marked, and the answer without them (ERASER; TA, BI)."""
    samples = shard.batch.samples
    require(all(sample.words is not None for sample in samples), shard, "rationales", "texts with marked words")
    labels, may_go = explained_labels(shard, explained), word_tokens(shard)
    truths = [np.asarray(sample.words) for sample in samples]
    columns: Columns = {}
    removals: dict[tuple[str, str], MakeRemoval] = {}
    for method, scores in explanations(shard, labels, "text").items():
        words = [_word_scores(shard, row, scores[row].tolist()) for row in range(len(shard))]
        counts = np.stack([rationale_counts(*pair) for pair in zip(words, truths, strict=True)])
        f1 = torch.from_numpy(precision_recall_f1(counts)[..., 2])
        f1[[row for row, truth in enumerate(truths) if not truth.any()]] = torch.nan
        columns[method, "F1 of the top words"] = Line(tuple(map(float, TOP_WORDS)), f1)
        columns[method, "mean F1"] = f1.mean(dim=1)
        areas = [auprc(*pair) for pair in zip(words, truths, strict=True)]
        columns[method, "AUPRC"] = torch.tensor(areas, dtype=torch.float64)
        removals[method, "comprehensiveness"] = partial(without_rationale, scores, may_go)
        removals[method, "sufficiency"] = partial(only_rationale, scores, may_go)
    for key, steps in step_answers(shard, removals, len(BINS), remove_words(shard, how)).items():
        columns[key] = mean_drop(shard.logits, steps, labels)
    return columns


def _word_scores(shard: Shard, row: int, scores: list[float]) -> np.ndarray:
    """The score of each word of a sample's text."""
    chunk = shard.batch.encodings[row].chunk
    assert chunk is not None
    return word_scores(chunk.layout.texts[0], chunk.layout.offsets, [scores[place] for place in chunk.positions])

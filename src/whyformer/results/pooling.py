"""Scores of tokens made into scores of the sources that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from whyformer.axes import SourceScores, SpanFigures, SpanScores
from whyformer.inputs.sources import Source

Aggregate = Literal["positive", "sum", "mean", "max"]

POOLING: dict[str, Callable[[SpanScores], SpanFigures]] = {
    "positive": lambda scores: scores.clip(min=0).sum(axis=1),
    "sum": lambda scores: scores.sum(axis=1),
    "mean": lambda scores: scores.mean(axis=1),
    # The score furthest from 0, with its sign.
    "max": lambda scores: np.take_along_axis(scores, np.abs(scores).argmax(axis=1, keepdims=True), axis=1)[:, 0],
}


def pooled(scores: SpanScores, groups: Sequence[Sequence[int]], aggregate: Aggregate) -> SourceScores:
    """For each row and each group of columns their scores as one; a group without columns has 0."""
    columns = [
        POOLING[aggregate](scores[:, list(group)].astype(np.float64)) if len(group) else np.zeros(len(scores))
        for group in groups
    ]
    return np.stack(columns, axis=1).astype(np.float32) if columns else np.zeros((len(scores), 0), np.float32)


def source_scores(
    token_scores: SpanScores, sources: Sequence[Source], aggregate: Aggregate, *, leave_out_first: bool
) -> SourceScores:
    """What each source has of its tokens' scores; a source that is a token has its own, with its sign."""
    if leave_out_first:
        token_scores = np.concatenate([np.zeros_like(token_scores[:, :1]), token_scores[:, 1:]], axis=1)
    is_token = all(source.kind == "token" for source in sources)
    return pooled(token_scores, [source.tokens for source in sources], "sum" if is_token else aggregate)


def shares(scores: SourceScores) -> SourceScores:
    """The size of each score as a share of its row; a row of zeros has none."""
    sizes = np.abs(scores.astype(np.float64))
    total = sizes.sum(axis=1, keepdims=True)
    return np.asarray(sizes / np.where(total > 0, total, 1.0))

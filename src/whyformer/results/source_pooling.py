"""Pool token scores by source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from whyformer.axes import SourceScores, SpanFigures, SpanScores
from whyformer.errors import WhyformerError
from whyformer.inputs.sources import Source
from whyformer.results.response_parts import PartScores

SourceAggregate = Literal["positive", "sum", "mean", "max"]

POOLING: dict[str, Callable[[SpanScores], SpanFigures]] = {
    "positive": lambda scores: scores.clip(min=0).sum(axis=1),
    "sum": lambda scores: scores.sum(axis=1),
    "mean": lambda scores: scores.mean(axis=1),
    # The score furthest from 0, with its sign.
    "max": lambda scores: np.take_along_axis(scores, np.abs(scores).argmax(axis=1, keepdims=True), axis=1)[:, 0],
}


def pooled(scores: SpanScores, groups: Sequence[Sequence[int]], aggregate: SourceAggregate) -> SourceScores:
    """Aggregate scores over groups of columns, for each row; an empty group gets 0."""
    columns = [
        POOLING[aggregate](scores[:, list(group)].astype(np.float64)) if len(group) else np.zeros(len(scores))
        for group in groups
    ]
    return np.stack(columns, axis=1).astype(np.float32) if columns else np.zeros((len(scores), 0), np.float32)


def source_scores(
    token_scores: SpanScores, sources: Sequence[Source], aggregate: SourceAggregate, *, leave_out_first: bool
) -> SourceScores:
    """Pool token scores by source; a source that is a single token keeps its score and sign."""
    if leave_out_first:
        token_scores = np.concatenate([np.zeros_like(token_scores[:, :1]), token_scores[:, 1:]], axis=1)
    is_token = all(source.kind == "token" for source in sources)
    return pooled(token_scores, [source.tokens for source in sources], "sum" if is_token else aggregate)


def all_source_scores(
    parts: Mapping[str, PartScores],
    token_scores: SpanScores,
    sources: Sequence[Source],
    aggregate: SourceAggregate,
    *,
    leave_out_first: bool,
) -> SourceScores:
    """Pool token scores by part that is not a text, then by source of the text."""
    of_parts = [pooled(one.scores, [range(one.scores.shape[1])], aggregate) for one in parts.values()]
    of_text = source_scores(token_scores, sources, aggregate, leave_out_first=leave_out_first)
    return np.concatenate([*of_parts, of_text], axis=1)


def groups_of(scored: Sequence[Source], chosen: Sequence[Source], method: str) -> list[list[int]]:
    """The indices of scored sources within each chosen source; raise if one would be split."""
    groups: list[list[int]] = [[] for _ in chosen]
    for number, source in enumerate(scored):
        own = _extent(source)
        for group, larger in zip(groups, chosen, strict=True):
            if own <= _extent(larger):
                group.append(number)
            elif own & _extent(larger):
                raise WhyformerError(
                    f"{method} scored whole sources, such as the {source.kind} {source.text!r:.40}: explain again with "
                    "smaller ones."
                )
    return groups


def _extent(source: Source) -> set[int]:
    """The tokens of a source; its characters if only a server knows the tokens."""
    return set(source.tokens) or set(range(source.start, source.end))


def shares(scores: SourceScores) -> SourceScores:
    """Absolute scores as shares of their row; all 0 for a row of zeros."""
    sizes = np.abs(scores.astype(np.float64))
    total = sizes.sum(axis=1, keepdims=True)
    return np.asarray(sizes / np.where(total > 0, total, 1.0))

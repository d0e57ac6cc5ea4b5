"""Samples that two models have read: their answers side by side, and the rank correlation of their scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from whyformer.extras import extra
from whyformer.surveys.scored_samples import ScoredSample

FEWEST_RANKED = 3  # words or patches, for a rank correlation
COLUMN_SHIFT = 0.1  # of a column of a sound: the same time, at another sampling rate


@dataclass(frozen=True, eq=False)
class SamplePair:
    """A sample as each of two models scored it."""

    first: ScoredSample
    second: ScoredSample

    @property
    def is_changed(self) -> bool:
        """Whether the models answer differently."""
        return self.first.answer != self.second.answer

    @property
    def shared(self) -> int:
        """How many words or patches both have scored: all of them, or the beginning of a text that one model cuts."""
        first, second = self.first, self.second
        count = min(len(first.scores), len(second.scores))
        if first.grid != second.grid or not _lie_alike(first, second) or first.words[:count] != second.words[:count]:
            return 0
        return count

    @property
    def correlation(self) -> float | None:
        """Spearman's rank correlation of their scores; None for other answers, or scores that cannot be compared."""
        count = self.shared
        if self.is_changed or count < FEWEST_RANKED:
            return None
        rows = np.stack([self.first.scores[:count], self.second.scores[:count]])
        if not np.ptp(rows, axis=1).all():
            return None
        return float(extra("scipy.stats").spearmanr(*rows).statistic)


def _lie_alike(first: ScoredSample, second: ScoredSample) -> bool:
    """Whether the bands and columns of a sound, as many for both, are the same frequencies and times."""
    one, other = first.sound, second.sound
    if one is None or other is None or first.grid is None:
        return one is other
    if len(one.edges) != len(other.edges) or not np.allclose(one.edges, other.edges):
        return False
    starts, others = (place.first + place.step * np.arange(first.grid[1] + 1) for place in (one, other))
    return bool((abs(starts - others) < COLUMN_SHIFT * one.step).all())


def sample_pairs(first: Iterable[ScoredSample], second: Iterable[ScoredSample]) -> Iterator[SamplePair]:
    """The samples that both models have scored, in the order of their numbers."""
    others = iter(second)
    other = next(others, None)
    for sample in first:
        while other is not None and other.number < sample.number:
            other = next(others, None)
        if other is not None and other.number == sample.number:
            yield SamplePair(sample, other)

"""The model's answers without some words or patches of an explained example, beside what the scores predict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Subset = frozenset[int]
LEAST_SUM = 0.1  # of signed scores, as a share of their size: below, they cancel, and predict no probability
CERTAIN = 1e-6  # probabilities are kept this far from 0 and 1, where log-odds are infinite


@dataclass(frozen=True)
class RemovableUnit:
    """A word, a block of patches or a region: its part, its tokens there, its name and the sum of its scores."""

    part: str
    tokens: tuple[int, ...]
    name: str
    score: float


@dataclass(frozen=True)
class RemovalEffects:
    """Probabilities of the likely answers without some units.

    Attributes:
        units: The strongest units, those that support the answer first: `k` removed units are the first k.
        answers: The names of the likely answers; the explained one is `target`.
        target: The index of the explained answer.
        known: The probability of each answer by the indices of the removed units.
        empty: The probability of the explained answer without any unit, listed or not.
        total: The sum of the scores of all units, and of their sizes.
    """

    units: tuple[RemovableUnit, ...]
    answers: tuple[str, ...]
    target: int
    known: Mapping[Subset, tuple[float, ...]]
    empty: float
    total: tuple[float, float]

    @property
    def whole(self) -> float:
        """The probability of the explained answer for the whole example."""
        return self.known[frozenset()][self.target]

    @property
    def slope(self) -> float | None:
        """Log-odds per score; None if scores cancel.

        Removing everything changes the log-odds of the answer by so much; a unit's share of all scores is its share.
        """
        total, size = self.total
        if total <= LEAST_SUM * size:
            return None
        return (log_odds(self.whole) - log_odds(self.empty)) / total

    def predicted(self, removed: Iterable[int]) -> float | None:
        """The probability of the explained answer without units, by their scores."""
        if self.slope is None:
            return None
        odds = log_odds(self.whole) - self.slope * sum(self.units[unit].score for unit in removed)
        return 1 / (1 + math.exp(-odds))

    @property
    def curve(self) -> list[float]:
        """The probability of the explained answer with the first 0, 1, 2 … units removed: a perturbation curve."""
        return [self.known[frozenset(range(count))][self.target] for count in range(len(self.units) + 1)]


class ModelQuestion(Protocol):
    """A question that an explanation can put to its model again."""

    def __call__(
        self,
        explanation: Any,
        subsets: Iterable[Subset] = (),
        before: RemovalEffects | None = None,
        *,
        most: int = ...,
        combined: int = ...,
    ) -> RemovalEffects:
        """Return the model's answers without some units."""

    def others(self, explanation: Any) -> Sequence[Any]:
        """Explain the next most likely answers."""

    def trace(self) -> Any:
        """Return the trace of another pass, without maps."""


def asked_subsets(units: int, combined: int) -> list[Subset]:
    """The subsets to ask the model about: none, each alone, the first k, and every combination of the first few."""
    subsets = [frozenset[int](), *(frozenset([unit]) for unit in range(units))]
    subsets += [frozenset(range(count)) for count in range(2, units + 1)]
    first = range(min(combined, units))
    subsets += [frozenset(unit for unit in first if number >> unit & 1) for number in range(1 << len(first))]
    return list(dict.fromkeys(subsets))


def log_odds(probability: float) -> float:
    """The natural logarithm of the odds, finite for certain answers too."""
    kept = min(max(probability, CERTAIN), 1 - CERTAIN)
    return math.log(kept / (1 - kept))


def strongest_units(units: Sequence[RemovableUnit], most: int) -> tuple[RemovableUnit, ...]:
    """The units with the largest absolute scores, in descending order of score."""
    strongest = sorted(units, key=lambda unit: -abs(unit.score))[:most]
    return tuple(sorted(strongest, key=lambda unit: -unit.score))

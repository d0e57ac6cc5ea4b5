"""The driver of a call: the fewest untrusted sources without which it loses half of what all of them add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whyformer.api.action_removal import MOST_WITHIN, TAU_ACTION, WHOLE_CALL, ActionRemoval
from whyformer.results.action import ActionTarget

MOST_DRIVERS = 5


@dataclass(frozen=True)
class ActionDriver:
    """Untrusted sources, and how much the log-probability of the call falls without them; may be empty."""

    sources: tuple[int, ...] = ()
    lost: float | None = None


def action_driver(removal: ActionRemoval, effects: np.ndarray, target: ActionTarget) -> ActionDriver:
    """The fewest untrusted sources without which the call loses half of what all of them add.

    The parts with the largest effects go first. Where several say the same, none has an effect by itself. Then whole
    results are removed in turn until the call loses enough, and those that are not needed are put back. Each result
    gives way to its own parts where these suffice.
    """
    wanted = target.untrusted_effect / 2
    if wanted < TAU_ACTION / 2:
        return ActionDriver()
    search = _DriverSearch(removal, wanted)
    row = np.nan_to_num(effects[WHOLE_CALL], nan=-np.inf)
    chosen = search.enough(_largest_parts(removal, row), ()) or search.enough(search.in_order(_whole(removal), row), ())
    if chosen is None:
        return ActionDriver()
    for number in tuple(chosen):
        chosen = search.with_parts(chosen, number, row)
    return ActionDriver(tuple(sorted(chosen)), search.lost(chosen))


@dataclass(frozen=True, eq=False)
class _DriverSearch:
    """The search for sources whose joint removal costs the call this much."""

    removal: ActionRemoval
    wanted: float

    def enough(self, candidates: Sequence[int], others: Sequence[int]) -> list[int] | None:
        """The first few candidates that suffice together with others, without those that are not needed."""
        chosen = list[int]()
        for number in candidates[: MOST_DRIVERS - len(others)]:
            chosen.append(number)
            lost = self.lost([*others, *chosen])
            if lost is None:
                return None
            if lost >= self.wanted:
                return self._needed(chosen, others)
        return None

    def lost(self, chosen: Sequence[int]) -> float | None:
        """How much the call loses without these; None if the budget does not suffice."""
        if not self.removal.scorer.has_spare(len(self.removal.replies)):
            return None
        values = self.removal.values([(), [self.removal.place(one) for one in chosen]])
        return float(values[0, WHOLE_CALL] - values[1, WHOLE_CALL])

    def with_parts(self, chosen: list[int], number: int, effects: np.ndarray) -> list[int]:
        """The chosen sources with the smallest parts of one in its place."""
        parts = [n for n, one in enumerate(self.removal.sources) if one.parent == number and one.trust == "untrusted"]
        others = [one for one in chosen if one != number]
        kept = self.enough(self.in_order(parts, effects), others)
        if kept is None:
            return chosen
        chosen = [*others, *kept]
        for part in kept:
            chosen = self.with_parts(chosen, part, effects)
        return chosen

    def in_order(self, numbers: Sequence[int], effects: np.ndarray) -> list[int]:
        """The highest scores first; without scores the largest effects, then the last ones."""
        if self.removal.scores is not None:
            return self.removal.ranked(numbers, MOST_DRIVERS)
        last = list(reversed(self.removal.ranked(numbers, MOST_WITHIN)))
        return sorted(last, key=lambda number: -effects[number])

    def _needed(self, chosen: Sequence[int], others: Sequence[int]) -> list[int]:
        """The sources without those that may stay."""
        kept = list(chosen)
        for number in chosen[:-1]:
            fewer = [one for one in kept if one != number]
            lost = self.lost([*others, *fewer])
            if lost is not None and lost >= self.wanted:
                kept = fewer
        return kept


def _whole(removal: ActionRemoval) -> list[int]:
    """Untrusted sources that are not within others."""
    sources = removal.sources
    return [
        number
        for number, one in enumerate(sources)
        if one.trust == "untrusted" and (one.parent is None or sources[one.parent].trust != "untrusted")
    ]


def _largest_parts(removal: ActionRemoval, effects: np.ndarray) -> list[int]:
    """Untrusted sources with an effect, the largest first; a part goes before what contains it if it has most of it."""

    def has_better_part(number: int) -> bool:
        parts = [one for one, source in enumerate(removal.sources) if source.parent == number]
        return any(effects[one] >= effects[number] / 2 for one in parts)

    tried = [n for n, one in enumerate(removal.sources) if one.trust == "untrusted" and effects[n] > 0]
    return sorted((one for one in tried if not has_better_part(one)), key=lambda number: -effects[number])

"""The effect of each source on each unit of a response: documents first, then sentences of those that matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whyformer.api.focus import places_but_the_question
from whyformer.api.support_questions import SupportQuestions
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.sentences import CharRange
from whyformer.inputs.sources import Source, sources_of
from whyformer.results.support import SourceFigures, UnitSupport

MOST_CARRYING = 5  # sources of a carrying set
RANKED_FIRST = 3  # sources of each unit that are removed one by one


@dataclass(frozen=True)
class SourceLevels:
    """The sources of a prompt without the question: documents with the sentences in them, and loose sentences."""

    documents: tuple[Source, ...]
    inner: Mapping[int, tuple[Source, ...]]  # the sources inside a document, by its number
    loose: tuple[Source, ...]

    @property
    def all(self) -> tuple[Source, ...]:
        """Documents, what is inside of each, then the others."""
        return (*self.documents, *(one for own in self.inner.values() for one in own), *self.loose)

    @property
    def finest(self) -> list[int]:
        """The numbers, among all, of the sources that have no others inside."""
        start = len(self.documents)
        return [number for number in range(len(self.all)) if number >= start or not self.inner[number]]

    @property
    def citable(self) -> tuple[Source, ...]:
        """The sources that a response can cite: documents, or all of them without documents."""
        return self.documents or self.all

    @property
    def citable_names(self) -> list[str]:
        """The names that they are cited by, besides their numbers."""
        return [one.name if one.kind == "document" else one.text for one in self.citable]

    def __bool__(self) -> bool:
        return bool(self.documents or self.loose)


def levels_of(prompt: Prompt, sources: Sequence[Source]) -> SourceLevels:
    """Sort the sources of a prompt by level, without the question."""
    kept = set(places_but_the_question(prompt, sources))
    own = [one for one in sources if (one.start, one.end) in kept]
    documents = sources_of(prompt, "document") if prompt.documents else ()
    inner: dict[int, tuple[Source, ...]] = {}
    for number, document in enumerate(documents):
        within = [one for one in own if document.start <= one.start and one.end <= document.end]
        is_finer = len(within) > 1
        inner[number] = tuple(within) if is_finer else ()
    inside = {one for document in documents for one in own if document.start <= one.start and one.end <= document.end}
    return SourceLevels(documents, inner, tuple(one for one in own if one not in inside))


@dataclass(eq=False)
class SourceRemoval:
    """The effect of each source: documents first, sentences of those that matter, then the smallest set that carries.

    Removals serve all units of the response at once.
    """

    questions: SupportQuestions
    levels: SourceLevels
    scores: np.ndarray | None
    tau: float
    forwards: int = 0
    notes: tuple[str, ...] = ()

    def by_unit(self, units: Sequence[UnitSupport], *, every: bool, alone: bool) -> list[UnitSupport]:
        """The units with the figures of their sources."""
        before = self.questions.scorer.forwards
        wanted = [number for number, unit in enumerate(units) if every or self._matters(unit)]
        falls: dict[int, np.ndarray] = {}
        for chosen in self._rounds(units, wanted, falls, every=every):
            falls |= self.falls_without(chosen)
        gains = self.gains_alone(sorted(falls)) if alone else {}
        result = [
            self._with_sources(unit, number, falls, gains) if number in wanted else unit
            for number, unit in enumerate(units)
        ]
        result = [self._with_carrying(unit, number) if number in wanted else unit for number, unit in enumerate(result)]
        self.forwards = self.questions.scorer.forwards - before
        return result

    def _matters(self, unit: UnitSupport) -> bool:
        """Whether single sources can say more than the verdict on all of them."""
        return unit.verdict in ("from sources", "contradicted")

    def _rounds(
        self, units: Sequence[UnitSupport], wanted: Sequence[int], falls: Mapping[int, np.ndarray], *, every: bool
    ) -> Iterator[list[int]]:
        """Sources to remove one by one: of the first level, then inside the documents that matter."""
        if not wanted:
            return
        first = [*self.levels.documents, *self.levels.loose]
        yield self.numbers(first) if every else self.ranked(first, wanted)
        inner = []
        for number, own in self.levels.inner.items():
            fall = falls.get(number)
            is_important = fall is not None and bool((np.abs(fall[list(wanted)]) >= self.tau / 2).any())
            if own and (every or is_important):
                inner += self.numbers(own) if every else self.ranked(own, wanted)
        if inner:
            yield inner

    def numbers(self, sources: Sequence[Source]) -> list[int]:
        """The numbers of sources among all levels."""
        known = {one: number for number, one in enumerate(self.levels.all)}
        return [known[one] for one in sources]

    def ranked(self, sources: Sequence[Source], wanted: Sequence[int]) -> list[int]:
        """The sources of the highest white-box scores of each unit; all of them without such scores."""
        numbers = self.numbers(sources)
        if self.scores is None:
            return numbers
        chosen = set[int]()
        for unit in wanted:
            chosen |= set(sorted(numbers, key=lambda one: -self.scores[unit, one])[:RANKED_FIRST])  # type: ignore[index]
        return sorted(chosen)

    def place(self, number: int) -> CharRange:
        """The range of a source in the prompt."""
        source = self.levels.all[number]
        return source.start, source.end

    @property
    def cited_count(self) -> int:
        """The number of sources that can be cited: documents, or all of them without documents."""
        return len(self.levels.citable)

    def document_of(self, number: int) -> int:
        """The document that a source is in; itself if it is in none."""
        inside = (place for place, own in self.levels.inner.items() if number in self.numbers(own))
        return next(inside, number)

    def falls_without(self, numbers: Sequence[int]) -> dict[int, np.ndarray]:
        """How much the log-probability of each unit falls without each source, as far as the budget goes."""
        affordable = self._affordable(numbers)
        if not affordable:
            return {}
        values = self.questions.unit_values([(), *([self.place(one)] for one in affordable)])
        return {one: values[0] - value for one, value in zip(affordable, values[1:], strict=True)}

    def _affordable(self, numbers: Sequence[int]) -> list[int]:
        """As many of these sources as the budget allows to remove."""
        count = len(numbers)
        while count and not self.questions.affords([[self.place(one)] for one in numbers[:count]]):
            count -= 1
        if count < len(numbers):
            self.notes = (f"The budget of {self.questions.scorer.budget} forward passes left some sources unmeasured.",)
        return list(numbers[:count])

    def gains_alone(self, numbers: Sequence[int]) -> dict[int, np.ndarray]:
        """How much each source raises the log-probability of each unit when it is the only one."""
        kept = [self._rest(one) for one in numbers]
        if not numbers or not self.questions.affords([self.questions.places, *kept]):
            return {}
        values = self.questions.unit_values([self.questions.places, *kept])
        return {one: value - values[0] for one, value in zip(numbers, values[1:], strict=True)}

    def _rest(self, number: int) -> list[CharRange]:
        """The ranges of all sources except for one."""
        start, end = self.place(number)
        return [
            (low, high)
            for first, last in self.questions.places
            for low, high in ((first, min(last, start)), (max(first, end), last))
            if low < high
        ]

    def _with_sources(
        self, unit: UnitSupport, number: int, falls: Mapping[int, np.ndarray], alone: Mapping[int, np.ndarray]
    ) -> UnitSupport:
        figures = tuple(
            SourceFigures(
                source,
                necessity=float(fall[number]),
                sufficiency=float(alone[source][number]) if source in alone else None,
                score=None if self.scores is None else float(self.scores[number, source]),
            )
            for source, fall in sorted(falls.items())
        )
        return replace(unit, sources=figures)

    def _with_carrying(self, unit: UnitSupport, number: int) -> UnitSupport:
        """Remove sources, the strongest first, until half of what all of them give is lost."""
        if unit.necessity < self.tau or unit.verdict != "from sources":
            return unit
        order = self._order(unit)
        for last in range(1, min(MOST_CARRYING, len(order)) + 1):
            removed = [self.place(one) for one in order[:last]]
            if not self.questions.affords([removed]):
                break
            values = self.questions.unit_values([(), removed])
            fall = float(values[0, number] - values[1, number])
            if fall >= unit.necessity / 2:
                return replace(unit, carrying=tuple(order[:last]), carrying_necessity=fall)
        return unit

    def _order(self, unit: UnitSupport) -> list[int]:
        """The finest measured sources, by white-box score, or by necessity without one."""
        measured = {one.source: one for one in unit.sources}
        coarse = {
            number for number, own in self.levels.inner.items() if any(one in measured for one in self.numbers(own))
        }
        finest = [one for one in unit.sources if one.source not in coarse]
        return [
            one.source
            for one in sorted(finest, key=lambda one: -(one.necessity or 0.0) if one.score is None else -one.score)
        ]

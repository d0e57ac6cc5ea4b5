"""The contribution of each source to the judgement of a unit, for units in other words than their sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from whyformer.api.source_removal import MOST_CARRYING, SourceRemoval
from whyformer.api.verdict_rules import TAU_JUDGEMENT
from whyformer.results.support import SourceFigures, UnitSupport


def with_judged_sources(units: Sequence[UnitSupport], removal: SourceRemoval) -> list[UnitSupport]:
    """The units, those that only a judgement supports with their sources by it.

    A source moves the probability of a paraphrase to its own wording, so that removing it may make the paraphrase
    likelier. The model judges the paraphrase again without each source.
    """
    return [
        _with_judgements(unit, number, removal) if _is_judged(unit, removal.tau) else unit
        for number, unit in enumerate(units)
    ]


def _is_judged(unit: UnitSupport, tau: float) -> bool:
    """Whether the sources support a unit by the model's judgement alone."""
    return unit.verdict == "from sources" and unit.necessity < tau and _gain(unit) >= TAU_JUDGEMENT


def _gain(unit: UnitSupport) -> float:
    """The contribution of all sources to the judgement of a unit."""
    if unit.judgement is None or unit.judgement_without is None:
        return 0.0
    return unit.judgement - unit.judgement_without


def _with_judgements(unit: UnitSupport, number: int, removal: SourceRemoval) -> UnitSupport:
    """The unit with the judgement without each of its first sources, and the smallest set that takes half of it."""
    levels, falls = removal.levels, dict[int, float]()
    falls |= _falls(unit, number, removal, removal.ranked([*levels.documents, *levels.loose], [number]))
    half = _gain(unit) / 2
    inner = [one for place, own in levels.inner.items() if falls.get(place, 0.0) >= half for one in own]
    falls |= _falls(unit, number, removal, removal.ranked(inner, [number]))
    coarse = {place for place, own in levels.inner.items() if any(one in falls for one in removal.numbers(own))}
    order = sorted((one for one in falls if one not in coarse), key=lambda one: -falls[one])
    return _with_carrying(_with_falls(unit, falls), number, removal, order[:MOST_CARRYING])


def _falls(unit: UnitSupport, number: int, removal: SourceRemoval, sources: Sequence[int]) -> dict[int, float]:
    """How much the judgement falls without each source, as far as the budget goes."""
    if not sources or not removal.questions.scorer.has_spare(2 * len(sources)):
        return {}
    values = removal.questions.judgements(number, [[removal.place(one)] for one in sources])
    return {one: (unit.judgement or 0.0) - value for one, value in zip(sources, values, strict=True)}


def _with_falls(unit: UnitSupport, falls: dict[int, float]) -> UnitSupport:
    known = {one.source: one for one in unit.sources}
    known |= {
        source: replace(known.get(source, SourceFigures(source)), judgement=fall) for source, fall in falls.items()
    }
    return replace(unit, sources=tuple(known[source] for source in sorted(known)))


def _with_carrying(unit: UnitSupport, number: int, removal: SourceRemoval, order: Sequence[int]) -> UnitSupport:
    """The unit with the first sources without which half of its judgement is lost."""
    for last in range(1, len(order) + 1):
        if not removal.questions.scorer.has_spare(2):
            break
        (value,) = removal.questions.judgements(number, [[removal.place(one) for one in order[:last]]])
        fall = (unit.judgement or 0.0) - value
        if fall >= _gain(unit) / 2:
            return replace(unit, carrying=tuple(order[:last]), carrying_judgement=fall)
    return unit

"""Whether the sources that a response cites are those that made the model write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from whyformer.api.source_removal import SourceRemoval
from whyformer.inputs.citations import CitationMarker
from whyformer.results.support import Citation, CitationStatus, SourceFigures, UnitSupport


def with_citations(
    units: Sequence[UnitSupport], removal: SourceRemoval, markers: Sequence[CitationMarker]
) -> list[UnitSupport]:
    """The units with the status of their citations, and the sources that were used and are not cited.

    A unit's citations are the markers within it, and those after it up to the next unit's first word.
    """
    own = [[marker for marker in markers if _belongs(marker, units, number)] for number in range(len(units))]
    cited = sorted({source for each in own for marker in each for source in marker.documents if source is not None})
    falls = removal.falls_without(range(removal.cited_count)) if markers else {}  # uncited ones may be used, too
    alone = removal.gains_alone(cited)
    return [
        _with_status(unit, number, own[number], removal, falls, alone) if markers else unit
        for number, unit in enumerate(units)
    ]


def _belongs(marker: CitationMarker, units: Sequence[UnitSupport], number: int) -> bool:
    """Whether a marker is in a unit, or between it and the next."""
    start = units[number].start
    end = units[number + 1].start if number + 1 < len(units) else marker.end
    return start <= marker.start < max(end, start + 1)


def _with_status(
    unit: UnitSupport,
    number: int,
    markers: Sequence[CitationMarker],
    removal: SourceRemoval,
    falls: Mapping[int, np.ndarray],
    alone: Mapping[int, np.ndarray],
) -> UnitSupport:
    measured = {one.source: one for one in unit.sources}
    for source in falls.keys() | alone.keys():
        figures = measured.get(source, SourceFigures(source))
        fall = float(falls[source][number]) if source in falls else figures.necessity
        gain = float(alone[source][number]) if source in alone else figures.sufficiency
        measured[source] = replace(figures, necessity=fall, sufficiency=gain)
    carrying = {removal.document_of(one) for one in unit.carrying}

    def is_used(source: int) -> bool:
        return source in carrying or (measured[source].necessity or 0.0) >= removal.tau

    def status(source: int | None) -> CitationStatus:
        if source is None:
            return "unknown source"
        if source not in measured:
            return "does not support"
        if is_used(source):
            return "used"
        gain = measured[source].sufficiency
        return "supports but was not used" if gain is not None and gain >= removal.tau else "does not support"

    citations = tuple(
        Citation(marker.text, source, status(source)) for marker in markers for source in marker.documents
    )
    named = {citation.source for citation in citations}
    level = range(removal.cited_count)
    uncited = tuple(source for source in level if source in measured and is_used(source) and source not in named)
    return replace(unit, sources=tuple(measured[one] for one in sorted(measured)), citations=citations, uncited=uncited)

"""Sources of a sentence that only the model's judgement supports."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from whyformer.api.source_judgement import with_judged_sources
from whyformer.api.source_removal import SourceLevels, SourceRemoval
from whyformer.inputs.sources import Source
from whyformer.render.verdict_view import verdict_view
from whyformer.results.support import Support, UnitSupport


def source(kind: str, start: int, end: int) -> Source:
    return Source(kind, "", start, end, f"{kind} {start}", ())


FIRST, SECOND = source("document", 0, 10), source("document", 10, 30)
INNER = (source("sentence", 10, 20), source("sentence", 20, 30))
PARAPHRASE = UnitSupport(
    0, 14, "Long ago.", 3, "from sources", "", -9.0, -8.0, -6.0, 0.5, judgement=3.0, judgement_without=0.0
)


@dataclass
class Budget:
    left: int = 100

    def has_spare(self, forwards: int) -> bool:
        return forwards <= self.left


class Questions:
    """A model whose judgement loses 2.5 nats without the last sentence, and 0.2 without anything else."""

    def __init__(self, left: int = 100) -> None:
        self.scorer = Budget(left)

    def judgements(self, unit, removals):
        values = []
        for removed in removals:
            hidden = {place for start, end in removed for place in range(start, end)}
            values.append(3.0 - (2.5 if hidden >= set(range(20, 30)) else 0.2))
        return values


def removal_of(questions: Questions) -> SourceRemoval:
    return SourceRemoval(questions, SourceLevels((FIRST, SECOND), {0: (), 1: INNER}, ()), None, 2.0)


def test_a_paraphrase_is_carried_by_what_the_judgement_rests_on():
    removal = removal_of(Questions())
    (unit,) = with_judged_sources([PARAPHRASE], removal)
    assert {one.source: one.judgement for one in unit.sources} == pytest.approx({0: 0.2, 1: 2.5, 2: 0.2, 3: 2.5})
    assert unit.carrying == (3,)
    assert unit.carrying_judgement == pytest.approx(2.5)
    view = verdict_view(Support((unit,), removal.levels.all, 9, 20), unit)
    assert view.carrying == (("", "sentence 20", "+2.5 nats"),)
    assert dict(view.figures)["lost without the one that carries it"] == "2.50 nats of the model's judgement"


@pytest.mark.parametrize(
    "changes",
    [{"verdict": "not supported"}, {"without_sources": -20.0}, {"judgement_without": 2.8}, {"judgement": None}],
)
def test_other_units_are_not_asked_about_again(changes):
    unit = replace(PARAPHRASE, **changes)
    assert with_judged_sources([unit], removal_of(Questions())) == [unit]


def test_without_a_budget_nothing_is_asked():
    assert with_judged_sources([PARAPHRASE], removal_of(Questions(left=1))) == [PARAPHRASE]

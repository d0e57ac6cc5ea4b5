"""Verdicts on a response: what its sources do for each unit, at a bounded number of forward passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from whyformer.api.citation_support import with_citations
from whyformer.api.replies import Reply
from whyformer.api.source_removal import SourceRemoval, levels_of
from whyformer.api.support_questions import CountedScorer, SupportQuestions
from whyformer.api.verdict_models import (
    TAU_NECESSITY,
    Calibration,
    figures_of,
    reason_for,
    rule_verdict,
    uncalibrated_or,
)
from whyformer.errors import WhyformerError, check_count, nearest
from whyformer.inputs.citations import CitationMarker, Citations, citation_markers, without_markers
from whyformer.inputs.sources import Source
from whyformer.inputs.spans import Span
from whyformer.removal.response_scorer import ResponseScorer
from whyformer.results.support import Support, UnitSupport

ScoreSources = Callable[[Sequence[Source]], "np.ndarray | None"]  # white-box scores [unit, source], signed


@dataclass(frozen=True)
class SupportOptions:
    """The measurements to make for a response.

    Attributes:
        budget: The most forward passes; None for no limit beside what the verdicts need.
        alone: Whether each source is also tried alone.
        judge: Whether to measure the model's own judgement; None if its calibration needs it.
        every: Whether every source is removed, instead of those that can matter.
        citations: How the response cites its sources: a pattern or a mapping; by default [1], [doc-3], (source: name).
    """

    budget: int | None = None
    alone: bool = False
    judge: bool | None = None
    every: bool = False
    citations: Citations = None


def checked_options(options: Mapping[str, Any]) -> SupportOptions:
    """Validate the options of `Response.support`."""
    known = [one.name for one in fields(SupportOptions)]
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise WhyformerError(f"support has no option {unknown!r}. {nearest(unknown, known)}")
    return SupportOptions(**options)


def check_budget(budget: int | None) -> int | None:
    """Validate a budget of forward passes."""
    if budget is not None:
        check_count("budget", budget)
        if budget < 2:
            raise WhyformerError("budget=1: a verdict takes two forward passes at least, with the sources and without.")
    return budget


def assess(
    scorer: ResponseScorer,
    reply: Reply,
    spans: Sequence[Span],
    sources: Sequence[Source],
    *,
    score: ScoreSources | None = None,
    calibration: Calibration | None = None,
    options: SupportOptions | None = None,
) -> Support:
    """The verdict on each unit of a reply.

    `score` gives signed white-box scores of sources; without it, as for a served model, verdicts use the rest.
    """
    options = options or SupportOptions()
    chosen = levels_of(reply.prompt, sources)
    if not chosen:
        raise WhyformerError("The prompt has nothing but the question: there is no source to support a response.")
    counted = CountedScorer(scorer, check_budget(options.budget))
    places = tuple((one.start, one.end) for one in (*chosen.documents, *chosen.loose))
    markers = citation_markers(
        reply.text, [one.name if one.kind == "document" else one.text for one in chosen.citable], options.citations
    )
    own = tuple(_without(span, reply, markers) for span in spans)
    questions = SupportQuestions(counted, reply.prompt, reply.text, reply.tokens, own, places)
    scores = None if score is None else score(chosen.all)
    judge = _wants_judge(options.judge, calibration) and not reply.prompt.places  # calls cannot be rendered again
    units = [_measured(questions, number, scores, judge=judge) for number in range(len(spans))]
    units = [_decided(unit, calibration) for unit in units]
    removal = SourceRemoval(questions, chosen, scores, TAU_NECESSITY if calibration is None else calibration.tau)
    units = removal.by_unit(units, every=options.every, alone=options.alone)
    units = with_citations(units, removal, markers)
    full = counted.forwards - removal.forwards + 2 * len(chosen.all)
    return Support(tuple(units), chosen.all, counted.forwards, full, uncalibrated_or(calibration), tuple(removal.notes))


def _without(span: Span, reply: Reply, markers: Sequence[CitationMarker]) -> Span:
    """The span without the tokens of citations, which are not part of what it says."""
    kept = set(without_markers([(token.start, token.end) for token in reply.tokens], markers))
    tokens = tuple(token for token in span.tokens if token in kept)
    return replace(span, tokens=tokens or span.tokens)


def _wants_judge(judge: bool | None, calibration: Calibration | None) -> bool:
    if judge is not None:
        return judge
    return calibration is not None and bool({"judgement", "judgement_gain"} & set(calibration.figures))


def _measured(questions: SupportQuestions, number: int, scores: np.ndarray | None, *, judge: bool) -> UnitSupport:
    """The figures of a unit that its verdict depends on."""
    span = questions.spans[number]
    with_all, without = (values[list(span.tokens)] for values in questions.token_values([(), questions.places]))
    own = questions.own_answer(number) if questions.scorer.has_spare(2) else None
    judgements: list[float] | list[None] = [None, None]
    if judge and questions.scorer.has_spare(4):
        judgements = questions.judgements(number, [(), questions.places])
    return UnitSupport(
        start=span.start,
        end=span.end,
        text=span.text,
        tokens=len(span.tokens),
        verdict="cannot tell",
        reason="",
        log_probability=float(with_all.sum()),
        without_sources=float(without.sum()),
        lowest=float(with_all.min()),
        largest_gain=float((with_all - without).max()),
        without_earlier=questions.without_earlier(number) if questions.scorer.has_spare(1) else None,
        own_answer=None if own is None else own[0],
        own_log_probability=None if own is None else own[1],
        judgement=judgements[0],
        judgement_without=judgements[1],
        score=None if scores is None or not scores.shape[1] else float(scores[number].max()),
    )


def _decided(unit: UnitSupport, calibration: Calibration | None) -> UnitSupport:
    """The unit with its verdict."""
    if calibration is None or not set(calibration.figures) <= figures_of(unit).keys():
        verdict = rule_verdict(unit)
        return replace(unit, verdict=verdict, reason=reason_for(verdict, unit))
    verdict, probabilities = calibration.decide(unit)
    error = calibration.errors.get(verdict)
    return replace(unit, verdict=verdict, reason=reason_for(verdict, unit), probabilities=probabilities, error=error)

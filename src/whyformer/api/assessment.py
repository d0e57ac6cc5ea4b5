"""Verdicts on a response: what its sources do for each unit, at a bounded number of forward passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from whyformer.api.citation_support import with_citations
from whyformer.api.further_questions import FURTHER, further_figures, most_forwards
from whyformer.api.replies import Reply
from whyformer.api.source_judgement import with_judged_sources
from whyformer.api.source_removal import SourceRemoval, levels_of
from whyformer.api.support_questions import CountedScorer, SupportQuestions
from whyformer.api.verdict_figures import JUDGED
from whyformer.api.verdict_models import Calibration, uncalibrated_or
from whyformer.api.verdict_rules import TAU_NECESSITY, reason_for, rule_verdict
from whyformer.errors import WhyformerError, check_count, nearest
from whyformer.inputs.citations import CitationMarker, Citations, citation_markers, without_markers
from whyformer.inputs.sources import Source
from whyformer.inputs.spans import Span
from whyformer.inputs.value_words import stated_share
from whyformer.removal.response_scorer import ResponseScorer
from whyformer.results.support import Support, UnitSupport, ValueFigures

# White-box scores [span, source], signed.
ScoreSources = Callable[[Sequence[Span], Sequence[Source]], "np.ndarray | None"]


@dataclass(frozen=True)
class SupportOptions:
    """The measurements to make for a response.

    Attributes:
        budget: The most forward passes; None for no limit beside what the verdicts need.
        alone: Whether each source is also tried alone.
        judge: Whether to measure the model's own judgement; None where it can change a calibrated verdict.
        sources: Whether single sources are removed, to find those that carry a unit.
        every: Whether every source is removed, instead of those that can matter.
        citations: How the response cites its sources: a pattern or a mapping; by default [1], [doc-3], (source: name).
        calibration: The file or the bundled name of a calibration; None for that of the model's weights, if any.
    """

    budget: int | None = None
    alone: bool = False
    judge: bool | None = None
    sources: bool = True
    every: bool = False
    citations: Citations = None
    calibration: str | Path | None = None


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
    finest = tuple(chosen.all[number] for number in chosen.finest)
    questions = SupportQuestions(counted, reply.prompt, reply.text, reply.tokens, own, places, finest)
    values = [questions.value_span(number) for number in range(len(own))]
    both = None if score is None else score([*own, *values], chosen.all)
    scores = None if both is None else both[: len(own)]
    judge = False if reply.prompt.places else options.judge  # a prompt with calls cannot be rendered again
    units = [_measured(questions, number, values[number]) for number in range(len(spans))]
    if both is not None:
        by_source = both[:, chosen.finest]
        units = [_scored(unit, by_source[number], by_source[len(own) + number]) for number, unit in enumerate(units)]
    units = [_judged(questions, unit, number, judge, calibration) for number, unit in enumerate(units)]
    notes = _budget_notes(units, calibration, options)
    units = [_decided(unit, calibration) for unit in units]
    removal = SourceRemoval(questions, chosen, scores, TAU_NECESSITY if calibration is None else calibration.tau)
    if options.sources:
        units = removal.by_unit(units, every=options.every, alone=options.alone)
        units = with_judged_sources(units, removal)
        units = with_citations(units, removal, markers)
    full = counted.forwards - removal.forwards + 2 * len(chosen.all)
    notes = (*notes, *removal.notes)
    return Support(tuple(units), chosen.all, counted.forwards, full, uncalibrated_or(calibration), notes)


def _without(span: Span, reply: Reply, markers: Sequence[CitationMarker]) -> Span:
    """The span without the tokens of citations, which are not part of what it says."""
    kept = set(without_markers([(token.start, token.end) for token in reply.tokens], markers))
    tokens = tuple(token for token in span.tokens if token in kept)
    return replace(span, tokens=tokens or span.tokens)


def _budget_notes(
    units: Sequence[UnitSupport], calibration: Calibration | None, options: SupportOptions
) -> tuple[str, ...]:
    """Say which verdicts lack figures that the calibration needs."""
    count = sum(calibration is not None and calibration.settled_figures(unit) is None for unit in units)
    if not count:
        return ()
    why = "the budget left out" if options.budget is not None else "the model cannot be asked for"
    which = "1 verdict is" if count == 1 else f"{count} verdicts are"
    return (f"{which} by thresholds, not calibrated: {why} figures that the calibration needs.",)


def _judged(
    questions: SupportQuestions, unit: UnitSupport, number: int, judge: bool | None, calibration: Calibration | None
) -> UnitSupport:
    """The unit with the model's own judgement of it, where asked for or where it can still change the verdict."""
    is_asked = judge is True
    if judge is None:
        judge = (
            calibration is not None
            and bool(JUDGED & set(calibration.figures))
            and calibration.settled_figures(unit) is None
        )
    if not judge or not questions.scorer.has_spare(6):
        return unit
    with_all, without = questions.judgements(number, [(), questions.places])
    names = FURTHER if is_asked or calibration is None else [name for name in calibration.figures if name in FURTHER]
    is_affordable = questions.scorer.has_spare(most_forwards(questions, names))
    answers = further_figures(questions, number, names) if is_affordable else {}
    return replace(
        unit, judgement=with_all, judgement_without=without, denial=questions.denial(number), answers=answers
    )


def _scored(unit: UnitSupport, scores: np.ndarray, of_value: np.ndarray) -> UnitSupport:
    """The unit with the largest white-box scores of a source, for all of its tokens and for its value.

    A source's share of all scores tells more than the score itself, whose gradient vanishes where the model is certain.
    """
    if unit.value is None or not len(scores):
        return unit
    total = float(np.abs(of_value).sum())
    share = float(of_value.max()) / total if total else 0.0
    return replace(unit, score=float(scores.max()), value=replace(unit.value, score=float(of_value.max()), share=share))


def _measured(questions: SupportQuestions, number: int, value: Span) -> UnitSupport:
    """The figures of a unit that its verdict depends on, without judgements and white-box scores."""
    span = questions.spans[number]
    values = questions.token_values([(), questions.places])
    with_all, without = (one[list(span.tokens)] for one in values)
    own = questions.own_answer(number) if questions.scorer.has_spare(2) else None
    rival = questions.rival(number, own.text) if own is not None and questions.scorer.has_spare(1) else None
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
        own_answer=None if own is None else own.text,
        own_log_probability=None if own is None else own.log_probability,
        own_tokens=None if own is None else own.tokens,
        rival=rival,
        value=ValueFigures(
            len(value.tokens),
            float(values[0][list(value.tokens)].sum()),
            float(values[1][list(value.tokens)].sum()),
            stated=stated_share(span.text, questions.question, questions.texts),
            said_before=stated_share(span.text, questions.question, [questions.text[: span.start]]),
        ),
    )


def _decided(unit: UnitSupport, calibration: Calibration | None) -> UnitSupport:
    """The unit with its verdict: calibrated, or by thresholds where the figures do not suffice."""
    figures = None if calibration is None else calibration.settled_figures(unit)
    if calibration is None or figures is None:
        verdict = rule_verdict(unit)
        return replace(unit, verdict=verdict, reason=reason_for(verdict, unit))
    verdict, probabilities = calibration.decide(unit, figures)
    error = calibration.errors.get(verdict)
    return replace(unit, verdict=verdict, reason=reason_for(verdict, unit), probabilities=probabilities, error=error)

"""Cues whose effect differs between two models: the same removals from the same samples, and a paired test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from whyformer.metrics.statistics import CHOICES, interval, paired_comparison
from whyformer.surveys.cue_choice import CueQuestion, choose_cues
from whyformer.surveys.journal import Journal
from whyformer.surveys.model_diff import CueChange
from whyformer.surveys.proof import FEWEST_SAMPLES, false_discovery_rates, halves
from whyformer.surveys.proof_plan import ProofPlan, plan_proof
from whyformer.surveys.proof_run import Effects, measure_effects
from whyformer.surveys.removal_effects import RemovalEffect
from whyformer.surveys.sample_pairs import sample_pairs
from whyformer.surveys.scored_samples import ScoredSample
from whyformer.surveys.survey_engines import LocalEngine
from whyformer.surveys.survey_plan import SurveyPlan
from whyformer.surveys.survey_records import SurveyRecords, Watch

Runs = Sequence[tuple[SurveyPlan, Journal]]  # of the first model, and of the second


def cue_changes(runs: Runs, names: Sequence[str], watch: Watch, *, seed: int) -> tuple[CueChange, ...]:
    """Remove the cues that either model scores highly, and compare the effects on the first model's answers."""
    records = [SurveyRecords(journal) for _, journal in runs]
    plan = _proof_plan(records, len(runs[0][0].data), seed)
    targets = {pair.first.number: pair.first.answer for pair in sample_pairs(*records) if pair.is_changed}
    effects: list[Effects] = []
    for (survey_plan, journal), name, own in zip(runs, names, (plan, replace(plan, targets=targets)), strict=True):
        measured: Effects = {}
        engine, data = LocalEngine(survey_plan.respondent), survey_plan.data
        for done, total, of_sample in measure_effects(engine, data, own, {}, journal, seed=seed):
            measured |= of_sample
            watch(f"removing, {name}", done, total)
        effects.append(measured)
    return _tested(plan, effects, seed)


def _proof_plan(records: Sequence[SurveyRecords], count: int, seed: int) -> ProofPlan:
    """The cues chosen by each model's scores in one half of the samples, to remove from the other half."""
    is_kept = halves(count, seed)

    def for_choice(own: SurveyRecords) -> Iterator[ScoredSample]:
        return (sample for sample in own if not is_kept[sample.number])

    chosen = chain.from_iterable(choose_cues(partial(for_choice, own)).questions for own in records)
    questions = [question for question in dict.fromkeys(chosen) if question[1].label is None]
    return plan_proof(records[0], questions, (), is_kept, seed=seed)


def _tested(plan: ProofPlan, effects: Sequence[Effects], seed: int) -> tuple[CueChange, ...]:
    """Test every question that enough samples have, and correct for all of them; the largest changes come first."""
    first, second = effects
    able: dict[CueQuestion, list[tuple[RemovalEffect, RemovalEffect]]] = {}
    for question, numbers in plan.samples.items():
        keys = [(question[0], number) for number in numbers]
        own = [(first[key], second[key]) for key in keys if key in first and key in second]
        if len(own) >= FEWEST_SAMPLES:
            able[question] = own
    # Questions with as many samples share their draws.
    order = sorted(able, key=lambda question: len(able[question]))
    changes = [_change(question, able[question], plan, seed) for question in order]
    rates = false_discovery_rates([change.p for change in changes])
    changes = [replace(change, q=rate) for change, rate in zip(changes, rates, strict=True)]
    return tuple(
        sorted(changes, key=lambda one: (not one.is_changed, -abs(one.change.value), one.cue, one.answer or ""))
    )


def _change(
    question: CueQuestion, pairs: Sequence[tuple[RemovalEffect, RemovalEffect]], plan: ProofPlan, seed: int
) -> CueChange:
    before, after = (np.array([pair[place].excess for pair in pairs]) for place in (0, 1))
    compared = paired_comparison(after, before, resamples=CHOICES, seed=seed)
    cue, group = question
    return CueChange(
        cue,
        group.answer,
        plan.totals[question].samples,
        len(pairs),
        interval(before, seed=seed),
        interval(after, seed=seed),
        compared.difference,
        compared.p,
    )

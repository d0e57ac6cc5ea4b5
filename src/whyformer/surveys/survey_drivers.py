"""Turn the effects of removals into drivers, failure groups and the share of the object, one correction for all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from whyformer.metrics.statistics import Interval, OfTotals, interval
from whyformer.surveys.cue_choice import CueQuestion
from whyformer.surveys.cues import Cue
from whyformer.surveys.proof import FEWEST_SAMPLES, Proof, false_discovery_rates, prove
from whyformer.surveys.proof_plan import ProofPlan
from whyformer.surveys.proof_run import Effects
from whyformer.surveys.removal_effects import RemovalEffect
from whyformer.surveys.scored_samples import ScoredSample
from whyformer.surveys.survey_result import Driver, FailureGroup, LabelRelation, ObjectShare

IN_BACKGROUND = 0.9  # of a cue's area, on average, for the cue to be part of the background
FailureKey = tuple[str, str, Cue | None]  # the right label, the answer, and the cue that misled the model


@dataclass(frozen=True)
class TestedQuestion:
    """A question with its proof and the effects that it is made of."""

    question: CueQuestion
    proof: Proof
    effects: tuple[RemovalEffect, ...]


def tested_questions(plan: ProofPlan, effects: Effects, *, seed: int) -> list[TestedQuestion]:
    """Prove every question for which there are effects, and correct for all that enough samples have."""
    tested = []
    for (cue, group), numbers in plan.samples.items():
        own = [effects[cue, number] for number in numbers if (cue, number) in effects]
        if len(own) > 1:  # one has no interval
            tested.append(TestedQuestion((cue, group), prove(own, seed=seed), tuple(own)))
    # Questions that cannot be answered would make the correction stricter for the others.
    able = [one for one in tested if one.proof.samples >= FEWEST_SAMPLES]
    rates = dict(zip((one.question for one in able), false_discovery_rates([one.proof.p for one in able]), strict=True))
    return [replace(one, proof=replace(one.proof, q=rates.get(one.question, 1.0))) for one in tested]


def drivers_of(
    tested: Sequence[TestedQuestion],
    plan: ProofPlan,
    given: Collection[Cue],
    relations: Mapping[CueQuestion, LabelRelation],
) -> list[Driver]:
    """The cues of answers, proven ones first, then by the lower end of their excess over random parts.

    If the background is to be ignored, so are regions and clusters in it.
    """
    ignores_background = Cue("mask", "background") in given
    drivers = []
    for one in tested:
        cue, group = one.question
        if group.label is not None:
            continue
        sums = plan.totals[one.question]
        mean, leading, share = sums.excess / sums.samples, sums.leads / sums.samples, sums.background_share
        is_behind = share is not None and share >= IN_BACKGROUND and cue.kind in ("region", "cluster")
        relation = relations.get(one.question)
        is_ignored = cue in given or (ignores_background and is_behind) or (relation is not None and relation.differs)
        figures = (cue, group.answer, sums.samples, mean, leading, sums.wrong, one.proof)
        drivers.append(Driver(*figures, should_be_ignored=is_ignored, background=share, relation=relation))
    return sorted(drivers, key=lambda one: (not one.proof.is_proven, -_rank(one.proof), one.cue, one.answer or ""))


def _rank(proof: Proof) -> float:
    """The lower end of the interval: a large effect of few samples does not come first by chance."""
    return proof.excess.low if np.isfinite(proof.excess.low) else -np.inf


def failures_of(
    samples: Callable[[], Iterable[ScoredSample]], tested: Sequence[TestedQuestion], labels: Sequence[str]
) -> tuple[list[FailureGroup], dict[FailureKey, list[int]]]:
    """Group wrong answers by the cue, among those tested for their mistake, that has the largest share of the scores.

    Also return the samples of each group, by label, answer and cue.
    """
    by_pair: defaultdict[tuple[str, str], dict[Cue, TestedQuestion]] = defaultdict(dict)
    for one in tested:
        cue, group = one.question
        if group.label is not None and group.answer is not None:
            by_pair[group.label, group.answer][cue] = one
    members: defaultdict[FailureKey, list[int]] = defaultdict(list)
    for sample in samples():
        if sample.is_wrong:
            pair = str(sample.label), sample.answer
            own = sample.parts(frozenset(by_pair[pair])) if by_pair[pair] else {}
            excess = {cue: sample.excess(part) for cue, part in own.items()}
            strongest = max(excess, key=lambda one: excess[one], default=None)
            is_led = strongest is not None and excess[strongest] > 0
            members[(*pair, strongest if is_led else None)].append(sample.number)
    mistakes: Counter[tuple[str, str]] = Counter()
    for (label, answer, _), numbers in members.items():
        mistakes[label, answer] += len(numbers)
    errors = mistakes.total()
    groups = []
    for (label, answer, shared), numbers in members.items():
        question = None if shared is None else by_pair[label, answer][shared]
        corrected = None if question is None else _corrected(question, label, labels)
        proof = None if question is None else question.proof
        groups.append(
            FailureGroup(label, answer, shared, len(numbers), mistakes[label, answer], errors, proof, corrected)
        )
    return sorted(groups, key=_order), dict(members)


def _corrected(one: TestedQuestion, label: str, labels: Sequence[str]) -> float:
    return float(np.mean([labels[effect.without] == label for effect in one.effects]))


def _order(group: FailureGroup) -> tuple[bool, int, str, str, str]:
    return group.cue is None, -group.count, group.label, group.answer, str(group.cue)


def object_share(effects: Effects) -> ObjectShare | None:
    """The share of the lost probability that is lost without the object, with its interval over pictures."""
    for kind, by in (("", "masks"), ("likely ", "likely background")):
        thing, background = Cue("mask", f"{kind}object"), Cue("mask", f"{kind}background")
        both = [number for cue, number in effects if cue == thing and (background, number) in effects]
        drops = [[effects[cue, number].probability_drops[0] for cue in (thing, background)] for number in both]
        lost = np.maximum(np.array(drops), 0.0)
        if lost.sum():
            return ObjectShare(_share(lost), len(both), by)
    return None


def _share(drops: np.ndarray) -> Interval:
    return interval(drops, OfTotals(lambda sums: sums[..., 0] / np.maximum(sums.sum(axis=-1), 1e-12)))

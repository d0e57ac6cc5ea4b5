"""The conclusion of a survey: everything measured made into its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from whyformer.surveys.cue_choice import Decisions
from whyformer.surveys.cue_examples import MOST_PICTURES, MOST_TEXTS, ExampleKey, make_examples, typical_samples
from whyformer.surveys.cues import Cue
from whyformer.surveys.held_out import Relations
from whyformer.surveys.patch_clusters import PatchClusters
from whyformer.surveys.proof import FEWEST_SAMPLES
from whyformer.surveys.proof_plan import ProofPlan
from whyformer.surveys.proof_run import Effects
from whyformer.surveys.respondents import Respondent, names_by_index
from whyformer.surveys.sample_labels import unknown_labels_note
from whyformer.surveys.scored_samples import cluster_cue
from whyformer.surveys.survey_data import SampleKind, SurveyData
from whyformer.surveys.survey_drivers import (
    FailureKey,
    TestedQuestion,
    drivers_of,
    failures_of,
    object_share,
    tested_questions,
)
from whyformer.surveys.survey_records import SurveyRecords
from whyformer.surveys.survey_result import CueExample, Driver, FailureGroup, Survey

SHOWN_UNPROVEN = 20  # cues that were not proven, with examples
MOST_MISSING = 5  # names in a note


@dataclass(frozen=True, eq=False)
class SurveyFindings:
    """Everything that a survey measured."""

    respondent: Respondent
    data: SurveyData
    records: SurveyRecords
    plan: ProofPlan
    effects: Effects
    given: frozenset[Cue]
    clusters: PatchClusters | None
    relations: Relations


@dataclass
class _Counts:
    answers: Counter[str]
    labels: Counter[str]
    wrong: int = 0
    kind: SampleKind = "text"
    method: str = ""


def survey_of(findings: SurveyFindings, *, seed: int) -> Survey:
    """Prove all cues together, group the failures, and add examples."""
    counts = _Counts(Counter(), Counter())
    for sample in findings.records:
        counts.answers[sample.answer] += 1
        counts.labels.update([] if sample.label is None else [sample.label])
        counts.wrong += sample.is_wrong
        counts.kind, counts.method = sample.kind, sample.method
    labels = names_by_index(findings.respondent)
    tested = tested_questions(findings.plan, findings.effects, seed=seed)
    drivers = drivers_of(tested, findings.plan, findings.given, findings.relations)
    failures, members = failures_of(lambda: findings.records, tested, labels)
    drivers, failures = _with_examples(
        findings, tested, drivers, failures, members, labels, is_text=counts.kind == "text"
    )
    montages = findings.clusters.montages if findings.clusters else ()
    return Survey(
        model=findings.respondent.name,
        method=counts.method,
        kind=counts.kind,
        samples=counts.answers.total(),
        answers=dict(counts.answers.most_common()),
        labelled=counts.labels.total(),
        wrong=counts.wrong,
        tested=tuple(drivers),
        failures=tuple(failures),
        object_share=object_share(findings.effects),
        montages={cluster_cue(number).name: montage for number, montage in enumerate(montages)},
        notes=tuple(_notes(findings, drivers, counts)),
    )


def _with_examples(
    findings: SurveyFindings,
    tested: Sequence[TestedQuestion],
    drivers: list[Driver],
    failures: list[FailureGroup],
    members: Mapping[FailureKey, list[int]],
    labels: Sequence[str],
    *,
    is_text: bool,
) -> tuple[list[Driver], list[FailureGroup]]:
    """Add examples to drivers, to the first cues that were not proven, and to failures, in one walk."""
    most = MOST_TEXTS if is_text else MOST_PICTURES
    by_question = {one.question: [effect.sample for effect in one.effects] for one in tested}
    proven = sum(driver.proof.is_proven for driver in drivers)
    shown: list[list[ExampleKey]] = []
    for driver in drivers[: proven + SHOWN_UNPROVEN]:
        numbers = by_question[driver.cue, Decisions(driver.answer)]
        own = typical_samples(driver.cue, numbers, findings.effects, most)
        shown.append([(driver.cue, number) for number in own])
    of_failures: list[list[ExampleKey]] = []
    for group in failures:
        numbers = members[group.label, group.answer, group.cue]
        own = numbers[:most] if group.cue is None else typical_samples(group.cue, numbers, findings.effects, most)
        of_failures.append([(group.cue, number) for number in own])
    wanted = [key for keys in (*shown, *of_failures) for key in keys]
    examples = make_examples(wanted, findings.records, findings.data, findings.effects, labels)

    def of(keys: list[ExampleKey]) -> tuple[CueExample, ...]:
        return tuple(examples[key] for key in keys)

    drivers = [
        *(replace(one, examples=of(keys)) for one, keys in zip(drivers, shown, strict=False)),
        *drivers[len(shown) :],
    ]
    return drivers, [replace(one, examples=of(keys)) for one, keys in zip(failures, of_failures, strict=True)]


def _notes(findings: SurveyFindings, drivers: Sequence[Driver], counts: _Counts) -> Iterator[str]:
    skipped = findings.records.skipped
    if skipped:
        yield f"{len(skipped)} of {len(findings.data)} samples could not be read or explained, such as: {skipped[0]}"
    few = sum(driver.proof.samples < FEWEST_SAMPLES for driver in drivers)
    if few:
        yield (
            f"{few} of {len(drivers)} pairs of a cue and an answer are in fewer than {FEWEST_SAMPLES} samples kept for "
            "proof, too few for a test: more samples would help."
        )
    unknown = unknown_labels_note(findings.respondent, counts.labels)
    if unknown:
        yield unknown
    seen = {cue for cue, _ in findings.plan.totals}
    missing = sorted(cue.name for cue in findings.given - seen if cue.kind != "mask")
    if missing:
        yield f"No sample has {', '.join(missing[:MOST_MISSING])}{' …' * (len(missing) > MOST_MISSING)}, to be ignored."

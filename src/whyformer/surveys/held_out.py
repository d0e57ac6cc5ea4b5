"""Words that go with a label in the data, but not in held-out data: shortcuts, if they drive the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.inputs.words import word_ranges
from whyformer.surveys.cue_choice import CueQuestion
from whyformer.surveys.cues import Cue, text_parts
from whyformer.surveys.lemmas import Lemmatiser
from whyformer.surveys.proof import FALSE_DISCOVERY_RATE, FEWEST_SAMPLES, false_discovery_rates
from whyformer.surveys.sample_labels import readable_sample
from whyformer.surveys.survey_data import SampleKind, SurveyData
from whyformer.surveys.survey_result import LabelRelation

ADDED = 0.5  # to each count, so that a count of 0 has a finite log-odds ratio (Haldane and Anscombe)
BOUND = 1.959964  # standard errors of a 95 % interval
Relations = Mapping[CueQuestion, LabelRelation]


@dataclass(frozen=True)
class _LabelCounts:
    """The labelled samples by label, and those with each cue by label."""

    labels: Counter[str]
    by_cue: Mapping[Cue, Counter[str]]

    def table(self, cue: Cue, label: str) -> np.ndarray:
        """Samples [with the cue, without it] × [with the label, with another]."""
        own = self.by_cue[cue]
        total, labelled, there = self.labels.total(), self.labels[label], own.total()
        with_both = own[label]
        return np.array([[with_both, there - with_both], [labelled - with_both, total - there - labelled + with_both]])


def check_held_out(held_out: SurveyData, data: SurveyData, kind: SampleKind) -> None:
    """Raise unless both are texts with labels."""
    if kind != "text":
        raise WhyformerError(f"held_out compares how words go with labels, and the data are {kind}s: leave it out.")
    for name, own in (("data", data), ("held-out data", held_out)):
        samples = (readable_sample(own, number) for number in range(len(own)))
        if not any(sample is not None and sample.label is not None for sample in samples):
            raise WhyformerError(f"The {name} have no labels: shortcuts are found by how words go with them.")


def label_relations(
    questions: Collection[CueQuestion], data: SurveyData, held_out: SurveyData, lemmatiser: Lemmatiser | None = None
) -> Relations:
    """How each tested word or phrase goes with the label that it drives, here and in held-out data.

    A relation that differs is stronger here, at a false-discovery rate of 5 %, and not proven to exist elsewhere.
    """
    wanted = [one for one in questions if one[0].kind in ("word", "phrase") and one[1].answer and not one[1].label]
    cues = frozenset(cue for cue, _ in wanted)
    here, elsewhere = (_count(own, cues, lemmatiser) for own in (data, held_out))
    tables = {
        (cue, group): (here.table(cue, str(group.answer)), elsewhere.table(cue, str(group.answer)))
        for cue, group in wanted
        if min(here.by_cue[cue].total(), elsewhere.by_cue[cue].total()) >= FEWEST_SAMPLES
    }
    tests = {question: _difference_test(*both) for question, both in tables.items()}
    rates = false_discovery_rates([p for p, _ in tests.values()])
    relations = {}
    for (question, (_, is_there)), rate in zip(tests.items(), rates, strict=True):
        own, other = tables[question]
        shares = [float(table[0, 0] / table[0].sum()) for table in (own, other)]
        differs = rate <= FALSE_DISCOVERY_RATE and not is_there
        relations[question] = LabelRelation(shares[0], shares[1], int(other[0].sum()), rate, differs)
    return relations


def _count(data: SurveyData, cues: frozenset[Cue], lemmatiser: Lemmatiser | None) -> _LabelCounts:
    labels: Counter[str] = Counter()
    by_cue: dict[Cue, Counter[str]] = {cue: Counter() for cue in cues}
    for number in range(len(data)):
        sample = readable_sample(data, number)
        if sample is None or sample.label is None or not isinstance(sample.example, str):
            continue
        labels[sample.label] += 1
        words = [sample.example[start:end] for start, end in word_ranges(sample.example)]
        for cue in text_parts(words if lemmatiser is None else lemmatiser.of(words), cues):
            by_cue[cue][sample.label] += 1
    return _LabelCounts(labels, by_cue)


def _difference_test(here: np.ndarray, elsewhere: np.ndarray) -> tuple[float, bool]:
    """The p-value of a larger log-odds ratio here (Wald's test), and whether there is one above 0 elsewhere."""
    ratios, variances = [], []
    for table in (here + ADDED, elsewhere + ADDED):
        logs = np.log(table)
        ratios.append(float(logs[0, 0] + logs[1, 1] - logs[0, 1] - logs[1, 0]))
        variances.append(float((1 / table).sum()))
    z = (ratios[0] - ratios[1]) / np.sqrt(sum(variances))
    p = float(extra("scipy.stats").norm.sf(z))
    return p, ratios[1] - BOUND * np.sqrt(variances[1]) > 0

"""Choose the cues that are worth a test, by their scores in the samples that are not kept for proof."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from whyformer.surveys.cue_profiles import misleading_cues
from whyformer.surveys.cues import LONGEST_PHRASE, Cue, phrases_of
from whyformer.surveys.scored_samples import ScoredSample

MOST_CUES, FEWEST_CUES = 160, 10  # chosen in all, and for each answer
MOST_MISTAKES = 8  # pairs of a label and a wrong answer
PROFILE_CUES, MOST_PROFILES = 24, 400  # of each mistake: the cues of its profiles, and its wrong answers
FEWEST_WRONG_WITH_CUE = 3  # wrong answers with a cue, for it to be in their profiles
FEWEST_WITH_CUE, RARE = 5, 1000  # samples with a cue, and one in so many of all
PHRASE_GAIN = 1.25  # of a phrase's mean share over that of its words, for the phrase to be a cue of its own
ALWAYS_IN = 0.9  # share of the samples with a word that have it in a phrase, for the phrase to stand for the word
ALWAYS_GAIN = 1.05  # of such a phrase's score over the word's
MOST_COUNTED = 200_000  # phrases at a time; rarer ones are dropped

ScoredSamples = Callable[[], Iterable[ScoredSample]]  # reads them anew, one by one


@dataclass(frozen=True)
class Decisions:
    """The decisions that a cue may drive: all, those for an answer, or those for it that should have been a label."""

    answer: str | None = None
    label: str | None = None

    def __contains__(self, sample: ScoredSample) -> bool:
        if self.answer not in (None, sample.answer):
            return False
        return self.label is None or (sample.is_wrong and sample.label == self.label)


ALL = Decisions()
CueQuestion = tuple[Cue, Decisions]


@dataclass
class CueTotals:
    """Sums over the samples with a cue."""

    samples: int = 0
    excess: float = 0.0
    places: float = 0.0
    leads: int = 0
    wrong: int = 0
    background: float = 0.0
    masked: int = 0

    def add(self, sample: ScoredSample, part: np.ndarray) -> None:
        """Add a sample that has the cue."""
        self.samples += 1
        self.excess += sample.excess(part)
        self.places += float(part.sum())
        self.leads += sample.leads(part)
        self.wrong += sample.is_wrong
        outside = sample.background_share(part)
        if outside is not None:
            self.background += outside
            self.masked += 1

    @property
    def strength(self) -> float:
        """The mean excess over its standard error, were the spread that of all cues."""
        return self.excess / math.sqrt(self.samples)

    @property
    def background_share(self) -> float | None:
        """The mean share of its area in the background; None without masks."""
        return self.background / self.masked if self.masked else None

    @property
    def by_place(self) -> float:
        """The excess of a word."""
        return self.excess / self.places


@dataclass(frozen=True)
class CueChoice:
    """The questions to test, and the number of samples that they were chosen on."""

    questions: tuple[CueQuestion, ...]
    samples: int


@dataclass
class _Counted:
    samples: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    mistakes: Counter[tuple[str, str]] = field(default_factory=Counter)


def choose_cues(samples: ScoredSamples) -> CueChoice:
    """The cues with the largest scores for each answer, and for the most frequent mistakes."""
    counted = _Counted()
    for sample in samples():
        counted.samples += 1
        counted.answers[sample.answer] += 1
        if sample.is_wrong:
            counted.mistakes[str(sample.label), sample.answer] += 1
    frequent = frequent_cues(samples, max(FEWEST_WITH_CUE, math.ceil(counted.samples / RARE)))
    mistakes = {pair for pair, _ in counted.mistakes.most_common(MOST_MISTAKES)}
    totals: defaultdict[Decisions, defaultdict[Cue, CueTotals]] = defaultdict(lambda: defaultdict(CueTotals))
    for sample in samples():
        groups = [Decisions(sample.answer)]
        if sample.is_wrong and (str(sample.label), sample.answer) in mistakes:
            groups.append(Decisions(sample.answer, sample.label))
        for cue, part in sample.parts(frequent).items():
            for group in groups:
                totals[group][cue].add(sample, part)
    each = max(FEWEST_CUES, MOST_CUES // max(1, len(counted.answers)))
    limits = {True: (each, FEWEST_WITH_CUE), False: (PROFILE_CUES, FEWEST_WRONG_WITH_CUE)}
    chosen = {group: _strongest(by_cue, *limits[group.label is None]) for group, by_cue in totals.items()}
    mistaken = {group: own for group, own in chosen.items() if group.label is not None and own}
    chosen |= _clusters_of_mistakes(samples, mistaken)
    return CueChoice(tuple((cue, group) for group, cues in chosen.items() for cue in cues), counted.samples)


def _clusters_of_mistakes(
    samples: ScoredSamples, candidates: Mapping[Decisions, list[Cue]]
) -> dict[Decisions, list[Cue]]:
    """For each mistake the cues that are typical of a cluster of its wrong answers."""
    profiles: dict[Decisions, list[list[float]]] = {group: [] for group in candidates}
    for sample in samples() if candidates else ():
        for group, cues in candidates.items():
            if sample in group and len(profiles[group]) < MOST_PROFILES:
                parts = sample.parts(frozenset(cues))
                profiles[group].append([sample.excess(parts[cue]) if cue in parts else 0.0 for cue in cues])
    return {group: misleading_cues(np.array(profiles[group]), cues) for group, cues in candidates.items()}


def frequent_cues(samples: ScoredSamples, fewest: int) -> frozenset[Cue] | None:
    """The words and phrases that enough texts have; None for pictures, whose cues are few.

    A phrase is counted only if the phrases in it are frequent, since it cannot be in more texts than they.
    """
    frequent: set[str] = set()
    for length in range(1, LONGEST_PHRASE + 1):
        counts: Counter[str] = Counter()
        for sample in samples():
            if sample.grid is not None:
                return None
            names = {name for _, name in phrases_of(sample.named_words, length)}
            counts.update(name for name in names if length == 1 or all(part in frequent for part in _inner(name)))
            if len(counts) > MOST_COUNTED:
                counts = Counter({name: count for name, count in counts.items() if count > 1})
        frequent |= {name for name, count in counts.items() if count >= fewest}
    return frozenset(Cue("phrase" if " " in name else "word", name) for name in frequent)


def _strongest(by_cue: Mapping[Cue, CueTotals], most: int, fewest: int) -> list[Cue]:
    able = {
        cue: own
        for cue, own in by_cue.items()
        if own.samples >= fewest and own.excess > 0 and not cue.is_fixed and _adds(cue, own, by_cue)
    }
    replaced = {part for cue, own in able.items() for part in _parts_of(cue) if _stands_for(own, by_cue.get(part))}
    return sorted(able.keys() - replaced, key=lambda cue: (-able[cue].strength, cue))[:most]


def _adds(cue: Cue, own: CueTotals, by_cue: Mapping[Cue, CueTotals]) -> bool:
    """Whether a phrase is more than the strongest of its parts that also occur without it."""
    parts = (by_cue.get(part) for part in _parts_of(cue))
    return all(
        own.by_place > PHRASE_GAIN * part.by_place for part in parts if part is not None and not _stands_for(own, part)
    )


def _parts_of(cue: Cue) -> set[Cue]:
    """The words and shorter phrases in a phrase; none for other cues."""
    if cue.kind != "phrase":
        return set()
    names = {*cue.name.split(), *_inner(cue.name)} - {cue.name}
    return {Cue("phrase" if " " in name else "word", name) for name in names}


def _stands_for(phrase: CueTotals, part: CueTotals | None) -> bool:
    """Whether a part of a phrase hardly occurs without it and is less than all of it, so that the phrase is the cue."""
    return part is not None and phrase.samples >= ALWAYS_IN * part.samples and phrase.excess > ALWAYS_GAIN * part.excess


def _inner(name: str) -> tuple[str, str]:
    """A phrase without its last word, and without its first."""
    words = name.split()
    return " ".join(words[:-1]), " ".join(words[1:])

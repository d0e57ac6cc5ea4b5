"""Other ways to list the drivers of a model: mean attribution, term counts, and the correlation with the label.

All but the last read the scores that the survey itself made; none removes anything. Each gives candidates, the
strongest first, and those that it reports: by a test of its own with false discoveries held to 5 %, or the first ten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image
from scipy import stats

from whyformer.surveys.cues import region_parts, word_name
from whyformer.surveys.proof import FALSE_DISCOVERY_RATE
from whyformer.surveys.scored_samples import ScoredSample

FEWEST = 5  # samples with a cue
REPORTED = 10  # of a list without a test


@dataclass(frozen=True)
class Candidates:
    """Names of cues, the strongest first, and those that are reported."""

    names: tuple[str, ...]
    reported: frozenset[str]


def by_mean_attribution(samples: Sequence[ScoredSample]) -> Candidates:
    """By the mean share of the scores; reported if it is above zero by a t test."""
    values = defaultdict(list)
    for sample in samples:
        for name, part in own_parts(sample).items():
            values[name, sample.answer].append(sample.excess(part))
    means = {key: float(np.mean(own)) for key, own in values.items() if len(own) >= FEWEST}
    p_values = {key: t_test(values[key]) for key in means}
    return Candidates(ordered(means), discoveries(p_values))


def by_counts(samples: Sequence[ScoredSample]) -> Candidates:
    """By the number of decisions in which a cue has the highest score."""
    counts: defaultdict[tuple[str, str], float] = defaultdict(float)
    for sample in samples:
        top = int(np.argmax(sample.scores))
        for name, part in own_parts(sample).items():
            counts[name, sample.answer] += float(part[top] > 0.5)
    names = ordered(counts)
    return Candidates(names, frozenset(dict.fromkeys(names[:REPORTED])))


def by_label(texts: Sequence[str], labels: Sequence[int]) -> Candidates:
    """By the correlation of words with the label: no model is asked. Reported by a chi-squared test."""
    words = [{word_name(word) for word in text.split()} for text in texts]
    is_one, strengths, p_values = np.array(labels, bool), {}, {}
    for name in sorted(set().union(*words)):
        has = np.array([name in own for own in words])
        if FEWEST <= has.sum() <= len(has) - FEWEST:
            table = [
                [(has & own).sum() for own in (is_one, ~is_one)],
                [(~has & own).sum() for own in (is_one, ~is_one)],
            ]
            strengths[name, ""] = abs(float(np.corrcoef(has, is_one)[0, 1]))
            p_values[name, ""] = float(stats.chi2_contingency(np.array(table)).pvalue)
    return Candidates(ordered(strengths), discoveries(p_values))


def by_label_of_regions(pictures: Sequence[Image.Image], labels: Sequence[int]) -> Candidates:
    """By the correlation of the mean colours of regions with the label; the strongest of three channels."""
    pixels = np.stack([np.asarray(picture, dtype=float) for picture in pictures])
    strengths, p_values = {}, {}
    for cue, part in region_parts(pixels.shape[1:3]).items():
        tests = [stats.pearsonr(pixels[:, part, channel].mean(axis=1), labels) for channel in range(3)]
        strengths[cue.name, ""] = max(abs(float(test.statistic)) for test in tests)
        p_values[cue.name, ""] = min(1.0, 3 * min(float(test.pvalue) for test in tests))
    return Candidates(ordered(strengths), discoveries(p_values))


def own_parts(sample: ScoredSample) -> dict[str, np.ndarray]:
    """The words of a text, or the regions and clusters of a picture, by name."""
    if sample.grid is not None:
        return {cue.name: part for cue, part in sample.parts().items() if part.any()}
    return {cue.name: part for cue, part in sample.parts().items() if cue.kind == "word"}


def rank_of(names: Sequence[str], is_planted: Callable[[str], bool]) -> int | None:
    """The place of the first planted name, from 1."""
    return next((place for place, name in enumerate(names, start=1) if is_planted(name)), None)


def ordered(values: dict[tuple[str, str], float]) -> tuple[str, ...]:
    return tuple(name for name, _ in sorted(values, key=lambda key: (-values[key], key)))


def t_test(values: Sequence[float]) -> float:
    if np.ptp(values) == 0:
        return 0.0 if values[0] > 0 else 1.0
    return float(stats.ttest_1samp(values, 0.0, alternative="greater").pvalue)


def discoveries(p_values: dict[tuple[str, str], float]) -> frozenset[str]:
    rates = stats.false_discovery_control(list(p_values.values())) if p_values else []
    return frozenset(name for (name, _), q in zip(p_values, rates, strict=True) if q <= FALSE_DISCOVERY_RATE)

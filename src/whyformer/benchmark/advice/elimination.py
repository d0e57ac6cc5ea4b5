"""Sequential testing: compare methods on more and more samples, and drop those that are significantly worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whyformer.metrics.statistics import Interval, paired_comparison

FIRST_LOOK = 16  # samples: with fewer, no test can be significant
ERROR_RATE = 0.05  # of dropping the best method, over all looks together
EXCHANGES = 10_000  # permutations of a test: enough for p to be significant after correction
SampleValues = Mapping[str, Mapping[int, float]]  # values by method and sample; higher is better


def looks(count: int) -> tuple[int, ...]:
    """The sample counts at which methods are compared: fixed in advance, doubling each time, and at the end."""
    sizes = []
    size = FIRST_LOOK
    while size < count:
        sizes.append(size)
        size *= 2
    return (*sizes, count)


@dataclass(frozen=True)
class Lead:
    """The lead of one method over another on the samples that both have; p is corrected for all tests."""

    difference: Interval
    p: float
    samples: int

    @property
    def is_sure(self) -> bool:
        return self.p < ERROR_RATE


@dataclass(frozen=True)
class Correction:
    """The Bonferroni factor: one per look and per method that the best one could lose to by chance.

    The best of m methods is only dropped wrongly if one of the m − 1 others is ahead of it at one of the looks.
    Bonferroni over these keeps that rate below ERROR_RATE, whichever method is ahead at a look.
    """

    methods: int
    looks: int
    seed: int = 0

    @property
    def times(self) -> int:
        return max(1, self.methods - 1) * self.looks

    def lead(self, first: Mapping[int, float], second: Mapping[int, float]) -> Lead | None:
        """The lead of the first; None for a single sample."""
        shared = [sample for sample in first if sample in second]
        if len(shared) < 2:
            return None
        one, other = (np.array([values[sample] for sample in shared]) for values in (first, second))
        result = paired_comparison(one, other, resamples=EXCHANGES, seed=self.seed)
        return Lead(result.difference, min(1.0, self.times * result.p), len(shared))


def leader(values: SampleValues, methods: Sequence[str]) -> str:
    """The method with the highest mean, on the samples that all of these have."""
    shared = set.intersection(*(set(values[method]) for method in methods))
    means = {method: float(np.mean([values[method][sample] for sample in sorted(shared)])) for method in methods}
    return max(methods, key=lambda method: means[method])


def losers(values: SampleValues, methods: Sequence[str], correction: Correction) -> dict[str, Lead]:
    """The methods that are significantly behind the leader, with its lead."""
    best = leader(values, methods)
    others = (method for method in methods if method != best)
    leads = {method: correction.lead(values[best], values[method]) for method in others}
    return {method: lead for method, lead in leads.items() if lead is not None and lead.is_sure}

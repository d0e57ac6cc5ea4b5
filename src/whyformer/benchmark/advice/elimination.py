"""Sequential testing: methods are compared on more and more samples, and those that have surely lost are dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whyformer.metrics.statistics import Interval, paired_comparison

FIRST_LOOK = 16  # samples; of fewer no test can be sure enough
ERROR_RATE = 0.05  # of dropping the best method, over all looks together
EXCHANGES = 10_000  # exchanges of a test: p must be able to be small enough for all that it counts for
SampleValues = Mapping[str, Mapping[int, float]]  # a value of each sample, by method; higher is better


def looks(count: int) -> tuple[int, ...]:
    """After how many samples methods are compared: fixed beforehand, twice as many each time, and at the end."""
    sizes = []
    size = FIRST_LOOK
    while size < count:
        sizes.append(size)
        size *= 2
    return (*sizes, count)


@dataclass(frozen=True)
class Lead:
    """By how much one method is ahead of another on the samples that both have; p counts for all tests together."""

    difference: Interval
    p: float
    samples: int

    @property
    def is_sure(self) -> bool:
        return self.p < ERROR_RATE


@dataclass(frozen=True)
class Correction:
    """How often a p counts: for every look, and for every method that the best one could lose to by chance.

    The best of m methods is dropped wrongly only where one of the m − 1 others comes out ahead of it at one of the
    looks: Bonferroni over these keeps the rate of that below ERROR_RATE, whichever method is ahead at a look.
    """

    methods: int
    looks: int
    seed: int = 0

    @property
    def times(self) -> int:
        return max(1, self.methods - 1) * self.looks

    def lead(self, first: Mapping[int, float], second: Mapping[int, float]) -> Lead | None:
        """By how much the first is ahead; None for a single sample."""
        shared = [sample for sample in first if sample in second]
        if len(shared) < 2:
            return None
        one, other = (np.array([values[sample] for sample in shared]) for values in (first, second))
        result = paired_comparison(one, other, resamples=EXCHANGES, seed=self.seed)
        return Lead(result.difference, min(1.0, self.times * result.p), len(shared))


def leader(values: SampleValues, methods: Sequence[str]) -> str:
    """The method of the highest mean, on the samples that all of these have."""
    shared = set.intersection(*(set(values[method]) for method in methods))
    means = {method: float(np.mean([values[method][sample] for sample in sorted(shared)])) for method in methods}
    return max(methods, key=lambda method: means[method])


def losers(values: SampleValues, methods: Sequence[str], correction: Correction) -> dict[str, Lead]:
    """The methods that are surely behind the one that leads now, and by how much."""
    best = leader(values, methods)
    others = (method for method in methods if method != best)
    leads = {method: correction.lead(values[best], values[method]) for method in others}
    return {method: lead for method, lead in leads.items() if lead is not None and lead.is_sure}

"""Proof that a cue drives answers: its removal against that of random equal parts, with false discoveries controlled.

A cue may not be proven on the samples by whose scores it was chosen: `halves` keeps them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from whyformer.api.calibrate import wilson
from whyformer.extras import extra
from whyformer.metrics.statistics import Interval, choice_test, interval
from whyformer.surveys.removal_effects import RemovalEffect

FALSE_DISCOVERY_RATE = 0.05
LEAST_EFFECT = 0.05  # nats: smaller effects are not reported, however certain
FEWEST_SAMPLES = 8  # with the cue, for a test; fewer show too little


@dataclass(frozen=True)
class Proof:
    """The effect of removing a cue, compared with random equal parts of the same samples.

    Attributes:
        samples: How many samples it was removed from.
        drop: The mean drop of the answer's log-odds in nats, with its 95 % interval.
        excess: How much larger it is than that of random equal parts: what is tested.
        probability: The mean drop of the answer's probability.
        flips: The share of answers that change.
        random_flips: The same for random equal parts.
        p: The probability of so large a mean drop if the cue were a random part; 1 for fewer than 8 samples.
        q: The false-discovery rate at which it is a discovery, over all cues of the survey in at least 8 samples; 1 for
            the others.
    """

    samples: int
    drop: Interval
    excess: Interval
    probability: Interval
    flips: Interval
    random_flips: float
    p: float
    q: float = 1.0

    @property
    def is_proven(self) -> bool:
        """Whether it passed the test, with false discoveries controlled, with an effect of its own of 0.05 nats.

        Without the last, a part that means nothing is proven wherever random parts often hit one that speaks against
        the answer.
        """
        return self.q <= FALSE_DISCOVERY_RATE and min(self.excess.value, self.drop.value) >= LEAST_EFFECT


def halves(count: int, seed: int = 0) -> np.ndarray:
    """Which of the samples are kept for proof: a random half, True; cues are chosen on the others."""
    is_kept = np.zeros(count, dtype=bool)
    is_kept[np.random.default_rng(seed).permutation(count)[: count // 2]] = True
    return is_kept


def prove(effects: Sequence[RemovalEffect], *, seed: int = 0) -> Proof:
    """Test the effects of one cue in several samples."""
    drops = np.stack([effect.drops for effect in effects])
    flips = np.stack([effect.flips for effect in effects])
    changes = np.array([effect.probability_drops[0] for effect in effects])
    flipped = int(flips[:, 0].sum())
    return Proof(
        len(effects),
        interval(drops[:, 0], seed=seed),
        interval(drops[:, 0] - drops[:, 1:].mean(axis=1), seed=seed),
        interval(changes, seed=seed),
        Interval(flipped / len(effects), *wilson(flipped, len(effects))),
        float(flips[:, 1:].mean()),
        choice_test(drops, seed=seed) if len(effects) >= FEWEST_SAMPLES else 1.0,
    )


def false_discovery_rates(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's q-value (1995) of each of the p-values."""
    if not len(p_values):
        return []
    rates: list[float] = extra("scipy.stats").false_discovery_control(p_values, method="bh").tolist()
    return rates

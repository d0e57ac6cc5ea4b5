"""How sure a figure is: bootstrap intervals over the examples, and paired tests between methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from whyformer.axes import ExampleRows
from whyformer.errors import WhyformerError
from whyformer.extras import extra

Figure = Callable[[Any], float]  # of all examples at once: their mean, or the mIoU of their counts
RESAMPLES = 2000
AT_ONCE = 4_000_000  # values drawn together


@dataclass(frozen=True)
class Interval:
    """A figure, and between which values it lies with 95 % confidence."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """By how much one figure exceeds another on the same examples, and how often chance alone would do as much."""

    difference: Interval
    p: float


def interval(
    rows: ExampleRows, figure: Figure = np.mean, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The percentile bootstrap: the figure of examples drawn again and again, with replacement, from these."""
    rows = _checked(rows)
    value = float(figure(rows))
    if len(rows) == 1:
        return Interval(value, float("nan"), float("nan"))
    is_mean = figure is np.mean and rows.ndim == 1  # of all draws at once: much faster
    found = extra("scipy.stats").bootstrap(
        (np.arange(len(rows)),),
        (lambda drawn, axis: rows[drawn].mean(axis=axis)) if is_mean else (lambda drawn: figure(rows[drawn])),
        vectorized=is_mean,
        batch=max(1, AT_ONCE // len(rows)),
        method="percentile",
        confidence_level=confidence,
        n_resamples=resamples,
        rng=np.random.default_rng(seed),
    )
    low, high = found.confidence_interval
    return Interval(value, float(low), float(high))


def comparison(
    first: ExampleRows, second: ExampleRows, figure: Figure = np.mean, *, resamples: int = RESAMPLES, seed: int = 0
) -> Comparison:
    """Two methods on the same examples: the bootstrap of their difference, and a paired permutation test.

    Under the null hypothesis the two values of an example may change places.
    """
    first, second = _checked(first), _checked(second)
    if first.shape != second.shape:
        raise WhyformerError(f"A paired test needs the same examples twice, not {first.shape} and {second.shape}.")
    both, count = np.concatenate([first, second]), len(first)

    def difference(one: Any, other: Any) -> float:
        return float(figure(both[one])) - float(figure(both[other]))

    def mean_difference(one: Any, other: Any, axis: int) -> Any:
        return both[one].mean(axis=axis) - both[other].mean(axis=axis)

    is_mean = figure is np.mean and both.ndim == 1
    if is_mean:
        bounds = interval(first - second, resamples=resamples, seed=seed)
    else:
        places = np.arange(count)
        bounds = interval(places, lambda drawn: difference(drawn, drawn + count), resamples=resamples, seed=seed)
    tested = extra("scipy.stats").permutation_test(
        (np.arange(count), np.arange(count) + count),
        mean_difference if is_mean else difference,
        permutation_type="samples",
        vectorized=is_mean,
        batch=max(1, AT_ONCE // count),
        n_resamples=resamples,
        rng=np.random.default_rng(seed),
    )
    return Comparison(bounds, float(tested.pvalue))


def _checked(rows: ExampleRows) -> ExampleRows:
    rows = np.asarray(rows)
    if not len(rows):
        raise WhyformerError("No examples: there is no figure of none.")
    wrong = int((~np.isfinite(rows)).reshape(len(rows), -1).any(axis=1).sum())
    if wrong:
        raise WhyformerError(f"{wrong} of {len(rows)} examples have no finite value: leave them out, and say so.")
    return rows

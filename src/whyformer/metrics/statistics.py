"""Bootstrap intervals over examples, and paired tests between methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from whyformer.axes import ExampleRows
from whyformer.errors import WhyformerError
from whyformer.extras import extra

Statistic = Callable[[Any], float]  # of all examples: their mean, or the mIoU of their counts
RESAMPLES = 2000
CHOICES = 20_000  # random ones: so small a p-value survives the correction for hundreds of tests


@dataclass(frozen=True)
class Interval:
    """A figure and its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class PairedComparison:
    """The difference of two figures on the same examples, and its p-value."""

    difference: Interval
    p: float


@dataclass(frozen=True)
class OfTotals:
    """A statistic of the sum of its rows, computed by `of` from sums [… value], which is fast to resample."""

    of: Callable[[Any], Any]

    def __call__(self, rows: ExampleRows) -> float:
        return float(self.of(np.asarray(rows).sum(axis=0)))


@dataclass(frozen=True)
class OfTexts:
    """A statistic of texts: `of` maps those of one or several methods to a function of their counts.

    It uses the basic bootstrap, because a statistic such as average precision is biased upwards by repeated examples,
    so that percentiles of its draws lie above it.
    """

    of: Callable[..., Callable[..., Any]]

    def __call__(self, texts: ExampleRows) -> float:
        return float(self.of(texts)(np.ones(len(texts))))


def interval(
    rows: ExampleRows,
    figure: Statistic = np.mean,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of a statistic over examples."""
    rows = _checked(rows)
    value = float(figure(rows))
    if len(rows) == 1:
        return Interval(value, float("nan"), float("nan"))
    of = _of_counts(figure, rows)
    if of is not None:
        return _bounded(value, of(draws(len(rows), resamples, seed)), figure, confidence)
    bootstrap = extra("scipy.stats").bootstrap(
        (np.arange(len(rows)),),
        lambda numbers: figure(rows[numbers]),
        vectorized=False,
        method="percentile",
        confidence_level=confidence,
        n_resamples=resamples,
        rng=np.random.default_rng(seed),
    )
    low, high = bootstrap.confidence_interval
    return Interval(value, float(low), float(high))


def paired_comparison(
    first: ExampleRows, second: ExampleRows, figure: Statistic = np.mean, *, resamples: int = RESAMPLES, seed: int = 0
) -> PairedComparison:
    """Compare two methods on the same examples: a bootstrap of their difference, and a paired permutation test.

    Under the null hypothesis the two values of an example are exchangeable.
    """
    first, second = _checked(first), _checked(second)
    if first.shape != second.shape:
        raise WhyformerError(f"A paired test needs the same examples twice, not {first.shape} and {second.shape}.")
    mixed = _of_counts(figure, first, second)
    if mixed is not None and len(first) > 1:
        return _fast_comparison(first, second, figure, mixed, resamples, seed)
    both, count = np.concatenate([first, second]), len(first)

    def difference(one: Any, other: Any) -> float:
        return float(figure(both[one])) - float(figure(both[other]))

    bounds = interval(
        np.arange(count), lambda numbers: difference(numbers, numbers + count), resamples=resamples, seed=seed
    )
    tested = extra("scipy.stats").permutation_test(
        (np.arange(count), np.arange(count) + count),
        difference,
        permutation_type="samples",
        vectorized=False,
        n_resamples=resamples,
        rng=np.random.default_rng(seed),
    )
    return PairedComparison(bounds, float(tested.pvalue))


def choice_test(rows: ExampleRows, *, resamples: int = CHOICES, seed: int = 0) -> float:
    """The p-value of the first column's mean being this large, were it chosen among the columns at random, row by row.

    With two columns it is the one-sided paired permutation test; it is exact if there are few enough choices.
    """
    values = _checked(rows).astype(np.float64)
    examples, columns = values.shape
    if columns ** min(examples, 64) <= resamples:
        choices = np.arange(columns**examples)[:, None] // columns ** np.arange(examples) % columns
    else:
        choices = np.random.default_rng(seed).integers(0, columns, (resamples, examples), dtype=np.uint8)
    sums = values[np.arange(examples), choices].sum(axis=1)
    barely = 1e-9 * np.abs(values).max(axis=1).sum()
    extreme = int((sums >= values[:, 0].sum() - barely).sum())
    return extreme / len(sums) if len(sums) == columns**examples else (extreme + 1) / (len(sums) + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction (1979) of p-values for multiple tests.

    The smallest of m is multiplied by m, the next by m − 1, and so on, keeping them monotone.
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def _fast_comparison(
    first: ExampleRows, second: ExampleRows, figure: Statistic, mixed: Callable[..., Any], resamples: int, seed: int
) -> PairedComparison:
    """Vectorised comparison of statistics of counts: every draw and every permutation is a row of a matrix."""
    value, counts = figure(first) - figure(second), draws(len(first), resamples, seed)
    one, other = (_of_counts(figure, rows) for rows in (first, second))
    assert one is not None
    assert other is not None
    exchanged, is_exact = _exchanges(len(first), resamples, seed)
    kept = 1 - exchanged
    chance = mixed(exchanged, kept) - mixed(kept, exchanged)
    barely = 1e-9 * np.abs(chance).max()  # summation order changes the last digits
    extreme = min((chance >= value - barely).sum(), (chance <= value + barely).sum())
    p = 2 * (extreme / len(chance) if is_exact else (extreme + 1) / (len(chance) + 1))
    return PairedComparison(_bounded(value, one(counts) - other(counts), figure, 0.95), min(1.0, float(p)))


def _of_counts(figure: Statistic, *methods: ExampleRows) -> Callable[..., Any] | None:
    """The statistic as a function of counts [… example]; None if it needs the examples."""
    if isinstance(figure, OfTexts):
        return figure.of(*methods)
    if figure is np.mean and methods[0].ndim == 1:
        figure = OfTotals(lambda totals: totals / len(methods[0]))
    if not isinstance(figure, OfTotals):
        return None
    of = figure.of
    return lambda *counts: of(sum(often @ rows for often, rows in zip(counts, methods, strict=True)))


def _bounded(value: float, figures: Any, figure: Statistic, confidence: float) -> Interval:
    tail = 50 * (1 - confidence)
    low, high = np.percentile(figures, [tail, 100 - tail])
    if isinstance(figure, OfTexts):
        low, high = 2 * value - high, 2 * value - low
    return Interval(float(value), float(low), float(high))


@lru_cache(maxsize=4)
def draws(count: int, resamples: int = RESAMPLES, seed: int = 0) -> Any:
    """Bootstrap counts [resample example], shared by all methods."""
    counts = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), resamples).astype(np.float64)
    counts.flags.writeable = False
    return counts


@lru_cache(maxsize=4)
def _exchanges(count: int, resamples: int, seed: int) -> tuple[Any, bool]:
    """Examples whose values are exchanged, [resample example]; all permutations if there are few enough."""
    if 2**count <= resamples:
        return (np.arange(2**count)[:, None] >> np.arange(count) & 1).astype(np.float64), True
    return np.random.default_rng(seed).integers(0, 2, (resamples, count)).astype(np.float64), False


def _checked(rows: ExampleRows) -> ExampleRows:
    rows = np.asarray(rows)
    if not len(rows):
        raise WhyformerError("No examples to compute a figure from.")
    if rows.dtype == object:  # texts
        return rows
    wrong = int((~np.isfinite(rows)).reshape(len(rows), -1).any(axis=1).sum())
    if wrong:
        raise WhyformerError(f"{wrong} of {len(rows)} examples have no finite value: exclude and report them.")
    return rows

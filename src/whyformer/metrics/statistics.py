"""How sure a figure is: bootstrap intervals over the examples, and paired tests between methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from whyformer.axes import ExampleRows
from whyformer.errors import WhyformerError
from whyformer.extras import extra

Statistic = Callable[[Any], float]  # of all examples at once: their mean, or the mIoU of their counts
RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A figure, and between which values it lies with 95 % confidence."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class PairedComparison:
    """By how much one figure exceeds another on the same examples, and how often chance alone would do as much."""

    difference: Interval
    p: float


@dataclass(frozen=True)
class OfTotals:
    """A figure that reads no more of its rows than their sum: `of` makes it of sums [… value]. Fast to draw again."""

    of: Callable[[Any], Any]

    def __call__(self, rows: ExampleRows) -> float:
        return float(self.of(np.asarray(rows).sum(axis=0)))


@dataclass(frozen=True)
class OfTexts:
    """A figure of texts: of those of one method, or of several mixed, `of` makes a function of how often each counts.

    Its intervals are those of the basic bootstrap. Such a figure, as the average precision of images, is larger of
    examples drawn twice, and the percentiles of its draws lie above it.
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
    """The percentile bootstrap: the figure of examples drawn again and again, with replacement, from these."""
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
    """Two methods on the same examples: the bootstrap of their difference, and a paired permutation test.

    Under the null hypothesis the two values of an example may change places.
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


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction (1979) of several tests: each p as it counts when all of them are looked at together.

    The smallest of m counts m times, the next m − 1 times, and none counts less than a smaller one.
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
    """The same of counts: every draw and every exchange is a row of a matrix."""
    value, counts = figure(first) - figure(second), draws(len(first), resamples, seed)
    one, other = (_of_counts(figure, rows) for rows in (first, second))
    assert one is not None
    assert other is not None
    exchanged, is_exact = _exchanges(len(first), resamples, seed)
    kept = 1 - exchanged
    chance = mixed(exchanged, kept) - mixed(kept, exchanged)
    barely = 1e-9 * np.abs(chance).max()  # the order of a sum changes its last digits
    extreme = min((chance >= value - barely).sum(), (chance <= value + barely).sum())
    p = 2 * (extreme / len(chance) if is_exact else (extreme + 1) / (len(chance) + 1))
    return PairedComparison(_bounded(value, one(counts) - other(counts), figure, 0.95), min(1.0, float(p)))


def _of_counts(figure: Statistic, *methods: ExampleRows) -> Callable[..., Any] | None:
    """The figure of examples of these methods mixed, each counted so often, [… example]; None if it must see them."""
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
    """How often each example is drawn, [resample example]: the same for all methods, so drawn once."""
    counts = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), resamples).astype(np.float64)
    counts.flags.writeable = False
    return counts


@lru_cache(maxsize=4)
def _exchanges(count: int, resamples: int, seed: int) -> tuple[Any, bool]:
    """Which examples' values change places, [resample example]; all the ways there are where these are few enough."""
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
        raise WhyformerError(f"{wrong} of {len(rows)} examples have no finite value: leave them out, and say so.")
    return rows

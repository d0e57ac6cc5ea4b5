"""How sure a figure is: bootstrap intervals over the examples, and paired tests between methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from whyformer.axes import ExampleRows
from whyformer.errors import WhyformerError
from whyformer.extras import extra

Figure = Callable[[Any], float]  # of all examples at once: their mean, or the mIoU of their counts
RESAMPLES = 2000


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


@dataclass(frozen=True)
class OfTotals:
    """A figure that reads no more of its rows than their sum: `of` makes it of sums [… value]. Fast to draw again."""

    of: Callable[[Any], Any]

    def __call__(self, rows: ExampleRows) -> float:
        return float(self.of(np.asarray(rows).sum(axis=0)))


def interval(
    rows: ExampleRows, figure: Figure = np.mean, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The percentile bootstrap: the figure of examples drawn again and again, with replacement, from these."""
    rows = _checked(rows)
    value = float(figure(rows))
    if len(rows) == 1:
        return Interval(value, float("nan"), float("nan"))
    of = _of_totals(figure, rows)
    if of is not None:
        tail = 50 * (1 - confidence)
        low, high = np.percentile(of(draws(len(rows), resamples, seed) @ rows), [tail, 100 - tail])
        return Interval(value, float(low), float(high))
    found = extra("scipy.stats").bootstrap(
        (np.arange(len(rows)),),
        lambda drawn: figure(rows[drawn]),
        vectorized=False,
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
    of = _of_totals(figure, first)
    if of is not None and len(first) > 1:
        return _fast_comparison(first, second, of, resamples, seed)
    both, count = np.concatenate([first, second]), len(first)

    def difference(one: Any, other: Any) -> float:
        return float(figure(both[one])) - float(figure(both[other]))

    bounds = interval(np.arange(count), lambda drawn: difference(drawn, drawn + count), resamples=resamples, seed=seed)
    tested = extra("scipy.stats").permutation_test(
        (np.arange(count), np.arange(count) + count),
        difference,
        permutation_type="samples",
        vectorized=False,
        n_resamples=resamples,
        rng=np.random.default_rng(seed),
    )
    return Comparison(bounds, float(tested.pvalue))


def _fast_comparison(
    first: ExampleRows, second: ExampleRows, of: Callable[[Any], Any], resamples: int, seed: int
) -> Comparison:
    """The same of sums: every draw and every exchange is a row of a matrix."""
    drawn, total = draws(len(first), resamples, seed), first.sum(axis=0) + second.sum(axis=0)
    value = float(of(first.sum(axis=0)) - of(second.sum(axis=0)))
    low, high = np.percentile(of(drawn @ first) - of(drawn @ second), [2.5, 97.5])
    exchanged, is_exact = _exchanges(len(first), resamples, seed)
    sums = second.sum(axis=0) + exchanged @ (first - second)
    chance = of(sums) - of(total - sums)
    barely = 1e-9 * np.abs(chance).max()  # the order of a sum changes its last digits
    extreme = min((chance >= value - barely).sum(), (chance <= value + barely).sum())
    p = 2 * (extreme / len(chance) if is_exact else (extreme + 1) / (len(chance) + 1))
    return Comparison(Interval(value, float(low), float(high)), min(1.0, float(p)))


def _of_totals(figure: Figure, rows: ExampleRows) -> Callable[[Any], Any] | None:
    if figure is np.mean and rows.ndim == 1:
        return lambda totals: totals / len(rows)
    return figure.of if isinstance(figure, OfTotals) else None


@lru_cache(maxsize=4)
def draws(count: int, resamples: int = RESAMPLES, seed: int = 0) -> Any:
    """How often each example is drawn, [resample example]: the same for all methods, so drawn once."""
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), resamples).astype(np.float64)
    drawn.flags.writeable = False
    return drawn


@lru_cache(maxsize=4)
def _exchanges(count: int, resamples: int, seed: int) -> tuple[Any, bool]:
    """Which examples' values change places, [resample example]; all the ways there are where these are few enough."""
    if 2**count <= resamples:
        return (np.arange(2**count)[:, None] >> np.arange(count) & 1).astype(np.float64), True
    return np.random.default_rng(seed).integers(0, 2, (resamples, count)).astype(np.float64), False


def _checked(rows: ExampleRows) -> ExampleRows:
    rows = np.asarray(rows)
    if not len(rows):
        raise WhyformerError("No examples: there is no figure of none.")
    wrong = int((~np.isfinite(rows)).reshape(len(rows), -1).any(axis=1).sum())
    if wrong:
        raise WhyformerError(f"{wrong} of {len(rows)} examples have no finite value: leave them out, and say so.")
    return rows

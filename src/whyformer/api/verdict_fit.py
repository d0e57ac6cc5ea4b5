"""Fit a logistic model per verdict: figures are chosen by cross-validation, each with the sign of its meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from whyformer.api.verdict_figures import FIGURES
from whyformer.api.verdict_models import VerdictModel

FOLDS = 5
LEAST_SAVING = 0.01  # nats of cross-validated loss that a figure must save
RIDGE_STRENGTHS = (0.3, 1.0, 3.0, 10.0)  # of the ridge penalty
UNITS_PER_FIGURE = 5  # of the rarer class, at least
MOST_LACKING = 0.5  # share of the units that may lack a figure
NEWTON_STEPS = 30


@dataclass(frozen=True, eq=False)
class FigureTable:
    """The figures of units, standardised: an array [unit, figure], 0 where a unit lacks one.

    Attributes:
        names: The figures.
        values: Their standardised values.
        mean: The mean of each, over the units that have it.
        spread: The spread of each.
        typical: The mean of those that some units lack, which stands in for them.
    """

    names: tuple[str, ...]
    values: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    typical: Mapping[str, float]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, float]], names: Sequence[str]) -> FigureTable:
        """The table of some figures, without those that most units lack."""
        kept = tuple(name for name in names if sum(name not in row for row in rows) <= MOST_LACKING * len(rows))
        values = np.array([[row.get(name, np.nan) for name in kept] for row in rows])
        mean, spread = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
        widths = np.array([FIGURES[name][1] - FIGURES[name][0] for name in kept])
        spread = np.maximum(spread, widths / 20)  # a figure that hardly varies decides nothing
        lacking = np.isnan(values).any(axis=0)
        typical = {name: round(float(mean[place]), 6) for place, name in enumerate(kept) if lacking[place]}
        return cls(kept, np.nan_to_num((values - mean) / spread), mean, spread, typical)

    def model(self, labels: np.ndarray, signs: Mapping[str, int], among: np.ndarray | None = None) -> VerdictModel:
        """The model of a verdict, expressed in the figures themselves; fitted on some of the units, by default all.

        Only figures with a sign are used, each with a weight of that sign.
        """
        usable = [place for place, name in enumerate(self.names) if name in signs]
        # With its sign turned to that of its weight, each figure has a weight of at least 0.
        turn = np.array([signs[self.names[place]] for place in usable], dtype=float)
        values = (self.values if among is None else self.values[among])[:, usable] * turn
        labels = labels if among is None else labels[among]
        chosen = chosen_figures(values, labels)
        strength = min(RIDGE_STRENGTHS, key=lambda one: cross_validated_loss(values[:, chosen], labels, one))
        intercept, weights = positive_logistic(values[:, chosen], labels, strength)
        places = [usable[place] for place in chosen]
        weights = weights * turn[chosen] / self.spread[places]
        own = {self.names[place]: round(float(one), 6) for place, one in zip(places, weights, strict=True) if one}
        return VerdictModel(round(float(intercept - weights @ self.mean[places]), 6), own)


def chosen_figures(values: np.ndarray, labels: np.ndarray) -> list[int]:
    """Add the figure that saves most of the cross-validated loss, as long as one saves enough and few are chosen."""
    most = max(1, int(min(labels.sum(), (~labels).sum())) // UNITS_PER_FIGURE)
    chosen, loss = list[int](), float("inf")
    while len(chosen) < min(most, values.shape[1]):
        others = [place for place in range(values.shape[1]) if place not in chosen]
        losses = {place: cross_validated_loss(values[:, [*chosen, place]], labels) for place in others}
        best = min(losses, key=lambda place: losses[place])
        if losses[best] > loss - LEAST_SAVING:
            break
        chosen, loss = [*chosen, best], losses[best]
    return chosen


def cross_validated_loss(values: np.ndarray, labels: np.ndarray, strength: float = 1.0) -> float:
    """The mean log loss on units that a model was not fitted on, both classes weighing the same."""
    folds = np.zeros(len(labels), dtype=int)
    for label in (False, True):
        own = np.flatnonzero(labels == label)
        folds[own] = np.arange(len(own)) % FOLDS
    losses = np.zeros(len(labels))
    for fold in range(FOLDS):
        held_out = folds == fold
        intercept, weights = positive_logistic(values[~held_out], labels[~held_out], strength)
        margins = (intercept + values[held_out] @ weights) * np.where(labels[held_out], 1, -1)
        losses[held_out] = np.logaddexp(0, -margins)
    return float((losses[labels].mean() + losses[~labels].mean()) / 2)


def positive_logistic(values: np.ndarray, labels: np.ndarray, strength: float) -> tuple[float, np.ndarray]:
    """The logistic regression without the figures that would get a negative weight: theirs is 0."""
    kept = np.ones(values.shape[1], dtype=bool)
    while True:
        weights = np.zeros(len(kept))
        intercept, weights[kept] = ridge_logistic(values[:, kept], labels, strength)
        if (weights >= 0).all():
            return intercept, weights
        kept &= weights >= 0


def ridge_logistic(values: np.ndarray, labels: np.ndarray, strength: float) -> tuple[float, np.ndarray]:
    """The intercept and the weights of a logistic regression, by Newton's method, both classes weighing the same."""
    design = np.column_stack([np.ones(len(values)), values])
    share = labels.mean()
    importance = np.where(labels, 0.5 / max(share, 1e-9), 0.5 / max(1 - share, 1e-9))
    penalty = np.diag([1e-6, *[strength] * values.shape[1]])
    weights = np.zeros(design.shape[1])
    for _ in range(NEWTON_STEPS):
        probabilities = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        slope = design.T @ (importance * (probabilities - labels)) + penalty @ weights
        curvature = (design * (importance * probabilities * (1 - probabilities))[:, None]).T @ design + penalty
        step = np.linalg.solve(curvature, slope)
        weights -= step
        if np.abs(step).max() < 1e-8:
            break
    return float(weights[0]), weights[1:]

"""Estimate unit scores from a model's outputs on subsets of an example's units: subset samplers, and fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import comb

import numpy as np
import torch
from torch.nn import functional as F

from whyformer.axes import SubsetValues, UnitMasks, UnitPairs, UnitScores
from whyformer.errors import WhyformerError
from whyformer.removal.units import Ablation, Units

KEEP_PROBABILITY = 0.5  # the probability that a unit is in a random subset
ROUND = 64  # subsets between two checks of the ranking
RIDGE = 1.0  # LIME's penalty
KERNEL_WIDTH = 0.25  # of LIME's kernel, in cosine distance
ALONE = 0.1  # of the smoothness prior: the pull of a unit to 0, relative to that of each neighbour
PENALTIES = np.logspace(-4, 6, 41)  # candidates for cross-validation


@dataclass(frozen=True, eq=False)
class Subsets:
    """Subsets of an example's units, and their weights in a fit."""

    masks: UnitMasks
    weights: SubsetValues

    def first(self, count: int) -> Subsets:
        """The first subsets."""
        return Subsets(self.masks[:count], self.weights[:count])


Draw = Callable[[Units, int, np.random.Generator], Subsets]
Fit = Callable[[Units, Subsets, SubsetValues, float], UnitScores]


def estimate(
    ablation: Ablation, draw: Draw, fit: Fit, *, forwards: int, seed: int, stable: float | None
) -> list[UnitScores]:
    """Fit the scores of each example's units to the model's outputs on `forwards` subsets.

    With `stable`, stop early once the ranking by all subsets so far reaches this rank correlation with that by the
    first half. An example has the same subsets in any batch.
    """
    _check(forwards, seed, stable)
    subsets = [draw(units, forwards, np.random.default_rng(seed)) for units in ablation.examples]
    counts = [len(one.masks) for one in subsets]
    answers = np.zeros((max(counts), len(subsets)))
    scores: dict[int, UnitScores] = {}

    def fit_to_first(count: int, number: int) -> UnitScores:
        units, values = ablation.examples[number], answers[:count, number]
        if not np.isfinite(values).all():  # nothing can be fitted, and NaN tells the reader
            return np.full(units.count, np.nan)
        return fit(units, subsets[number].first(count), values, float(ablation.whole[number]))

    start = 0
    for stop in [len(answers)] if stable is None else [*range(ROUND, len(answers), ROUND), len(answers)]:
        answers[start:stop] = ablation.scores([one.masks[start:stop] for one in subsets])
        start = stop
        for number in {*range(len(subsets))} - scores.keys():
            count = min(stop, counts[number])
            by_all = fit_to_first(count, number)
            is_last = count == counts[number]
            if is_last or (stable is not None and spearman(by_all, fit_to_first(count // 2, number)) >= stable):
                scores[number] = by_all
        if len(scores) == len(subsets):
            break
    return [scores[number] for number in range(len(subsets))]


def _check(forwards: int, seed: int, stable: float | None) -> None:
    if forwards < 2:
        raise WhyformerError(f"forwards={forwards}: at least 2, to have something to compare.")
    if seed < 0:
        raise WhyformerError(f"seed={seed}: a seed is 0 or more.")
    if stable is not None and not 0 < stable <= 1:
        raise WhyformerError(f"stable={stable}: a rank correlation above 0, at most 1, such as 0.99.")


def spearman(one: UnitScores, other: UnitScores) -> float:
    """Spearman correlation, ignoring ties; 1 if there is nothing to rank."""
    if len(one) < 2:
        return 1.0
    ranks = [scores.argsort(kind="stable").argsort() - (len(scores) - 1) / 2 for scores in (one, other)]
    return float(ranks[0] @ ranks[1] / (ranks[0] @ ranks[0]))


def random_masks(units: Units, count: int, random: np.random.Generator) -> Subsets:
    """Subsets that keep each unit with probability one half."""
    return Subsets(random.random((count, units.count)) < KEEP_PROBABILITY, np.ones(count))


def smooth_masks(units: Units, count: int, random: np.random.Generator, *, cells: int) -> Subsets:
    """RISE's masks: for pictures, a coarse random grid, upsampled bilinearly and shifted at random.

    Units are pixels there. Units of other parts are kept with probability one half.
    """
    parts = []
    for shape, numbers in units.parts:
        own = len(np.unique(numbers[numbers >= 0]))
        if len(shape) == 1:
            parts.append((random.random((count, own)) < KEEP_PROBABILITY).astype(np.float32))
            continue
        sides = [-(-side // cells) for side in shape]  # side of a cell in pixels
        grids = torch.from_numpy(random.random((count, 1, cells, cells)) < KEEP_PROBABILITY).float()
        shifts = np.stack([random.integers(0, side, count) for side in sides], axis=1)
        height, width = shape
        masks = np.empty((count, height, width), dtype=np.float32)
        for number, (grid, (down, right)) in enumerate(zip(grids, shifts, strict=True)):
            size = [(cells + 1) * side for side in sides]
            large = F.interpolate(grid[None], size, mode="bilinear", align_corners=False)[0, 0]
            masks[number] = large[down : down + height, right : right + width].numpy()
        parts.append(masks.reshape(count, -1)[:, numbers >= 0])
    return Subsets(np.concatenate(parts, axis=1), np.ones(count))


def shapley_masks(units: Units, count: int, random: np.random.Generator) -> Subsets:
    """The empty set, then all other proper subsets with their Shapley kernel weights if the budget suffices.

    Otherwise subsets are drawn by these weights, each followed by its complement.
    """
    n = units.count
    if n < 63 and 2**n - 1 <= count:
        masks = np.array(list(product((False, True), repeat=n)), dtype=bool)[:-1]
        sizes = masks[1:].sum(axis=1)
        kernel = {k: (n - 1) / (comb(n, k) * k * (n - k)) for k in range(1, n)}
        return Subsets(masks, np.array([1.0, *(kernel[int(size)] for size in sizes)]))
    sizes = np.arange(1, n)
    shares = 1 / (sizes * (n - sizes))
    random_sizes = random.choice(sizes, (count - 1) // 2, p=shares / shares.sum())
    half = random.random((len(random_sizes), n)).argsort(axis=1) < random_sizes[:, None]
    pairs = np.stack([half, ~half], axis=1).reshape(-1, n)
    return Subsets(np.concatenate([np.zeros((1, n), dtype=bool), pairs]), np.ones(1 + len(pairs)))


def weighted_mean(units: Units, subsets: Subsets, values: SubsetValues, whole: float) -> UnitScores:
    """RISE: Σ s(masked) · mask / (N p), with centred scores.

    Centring shifts all units equally, and removes the noise of how often each was kept, which is large for logits (the
    paper uses probabilities).
    """
    scores: UnitScores = (values - values.mean()) @ subsets.masks / (len(values) * KEEP_PROBABILITY)
    return scores


def shapley_values(units: Units, subsets: Subsets, values: SubsetValues, whole: float) -> UnitScores:
    """Weighted least squares that are exact on the empty set, which comes first, and the whole.

    Among equally good fits, the one nearest to equal shares.
    """
    empty, share = values[0], (whole - values[0]) / max(1, units.count)
    masks, roots = subsets.masks[1:].astype(np.float64), np.sqrt(subsets.weights[1:])
    rest = values[1:] - empty - masks.sum(axis=1) * share
    # Rows that sum to 0 preserve the sum of the scores.
    rows = masks - masks.mean(axis=1, keepdims=True)
    deviation: UnitScores = np.linalg.lstsq(rows * roots[:, None], rest * roots, rcond=None)[0]
    scores: UnitScores = share + deviation
    return scores


def local_ridge(units: Units, subsets: Subsets, values: SubsetValues, whole: float) -> UnitScores:
    """LIME: ridge regression with an intercept; subsets, the whole among them, are weighted by similarity to it."""
    masks = np.concatenate([np.ones((1, units.count)), subsets.masks]).astype(np.float64)
    answers = np.append(whole, values)
    distance = 1 - np.sqrt(masks.mean(axis=1))  # cosine distance to the whole
    weights = np.sqrt(np.exp(-((distance / KERNEL_WIDTH) ** 2)))
    rows, rest = (x - np.average(x, axis=0, weights=weights) for x in (masks, answers))
    weighted = rows * weights[:, None]
    scores: UnitScores = np.linalg.solve(rows.T @ weighted + RIDGE * np.eye(units.count), weighted.T @ rest)
    return scores


def smooth_ridge(units: Units, subsets: Subsets, values: SubsetValues, whole: float) -> UnitScores:
    """Regression with a smoothness prior over neighbours, λ chosen by generalised cross-validation.

    β minimises ‖y − a − Xβ‖² + λ βᵀKβ, with K the Laplacian of the adjacency plus a multiple of the identity. With
    γ = K^½ β this is ridge regression, which one singular value decomposition solves for every λ.
    """
    root = _inverse_root(units.count, units.neighbours)
    masks = subsets.masks.astype(np.float64)
    rows, rest = masks - masks.mean(axis=0), values - values.mean()
    left, sizes, right = np.linalg.svd(rows @ root, full_matrices=False)
    projections = left.T @ rest
    shares = sizes**2 / (sizes**2 + PENALTIES[:, None])  # shrinkage of each direction, by penalty
    misfit = ((1 - shares) ** 2 * projections**2).sum(axis=1) + max(0.0, float(rest @ rest - projections @ projections))
    freedom = len(rest) - 1 - shares.sum(axis=1)
    best = int(np.argmin(misfit / np.maximum(freedom, 1e-9) ** 2))
    scores: UnitScores = root @ right.T @ (sizes / (sizes**2 + PENALTIES[best]) * projections)
    return scores


def _inverse_root(count: int, pairs: UnitPairs) -> np.ndarray:
    """K^−½ of the smoothness prior's K = L + ALONE · 1, L the Laplacian of the adjacency graph."""
    laplacian = np.zeros((count, count))
    np.subtract.at(laplacian, (pairs[:, 0], pairs[:, 1]), 1.0)
    laplacian += laplacian.T
    laplacian -= np.diag(laplacian.sum(axis=1))
    sizes, directions = np.linalg.eigh(laplacian + ALONE * np.eye(count))
    root: np.ndarray = directions / np.sqrt(sizes) @ directions.T
    return root

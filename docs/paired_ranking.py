"""Rank methods by paired comparisons: only on cells that both were measured in, on the same samples.

Some methods do not apply to some models, so that a mean rank can use only the cells that all methods share. Bradley and
Terry's model needs only pairs: each pair counts where both were measured, and a method loses nothing by cells that it
is not in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

PRIOR = 0.5  # a win and a loss, each of this weight, against a method of mean strength: who never lost stays finite
STEPS, DRAWS = 200, 400


@dataclass(frozen=True)
class Comparisons:
    """The comparisons of a cell: values that were measured on the same samples, the largest set of samples first."""

    model: str
    weight: float
    higher_is_better: bool
    tables: Sequence[Mapping[str, float]]

    def wins(self, names: Sequence[str]) -> np.ndarray:
        """Who is ahead of whom, [first second]: 1, or half for equal values, by the first table that has both."""
        found = np.full((len(names), len(names)), np.nan)
        for table in self.tables:
            values = np.array([table.get(name, np.nan) for name in names])
            difference = (values[:, None] - values[None]) * (1 if self.higher_is_better else -1)
            ahead = np.where(np.isnan(difference), np.nan, (np.sign(difference) + 1) / 2)
            found = np.where(np.isnan(found), ahead, found)
        np.fill_diagonal(found, np.nan)
        return np.nan_to_num(found, nan=0.0)

    def ranks(self, names: Sequence[str]) -> np.ndarray | None:
        """The rank of each among the others, 1 for the best, by the first table that has all; None without one."""
        for table in self.tables:
            if all(name in table for name in names):
                return rankdata([table[name] * (-1 if self.higher_is_better else 1) for name in names])
        return None


@dataclass(frozen=True)
class Place:
    """How likely a method is ahead of another one in a cell, on average over the others, with a 95 % interval."""

    method: str
    ahead: float
    low: float
    high: float
    pairs: int


def strengths(wins: np.ndarray) -> np.ndarray:
    """Bradley–Terry log-strengths by Hunter's (2004) iteration, with mean 0."""
    wins = wins.copy()
    np.fill_diagonal(wins, 0.0)
    games, won = wins + wins.T, wins.sum(axis=1) + PRIOR
    strength = np.ones(len(wins))
    for _ in range(STEPS):
        faced = games / (strength[:, None] + strength[None])
        strength = won / (faced.sum(axis=1) + 2 * PRIOR / (strength + 1))
        strength /= np.exp(np.log(strength).mean())
    return np.log(strength)


def share_ahead(wins: np.ndarray) -> np.ndarray:
    """The probability to be ahead of another method, on average over the others."""
    strength = strengths(wins)
    chance = 1 / (1 + np.exp(strength[None] - strength[:, None]))
    return (chance.sum(axis=1) - 0.5) / (len(wins) - 1)


def ranking(cells: Sequence[Comparisons], names: Sequence[str], seed: int = 0) -> list[Place]:
    """The methods, the strongest first; models are drawn with replacement for the intervals.

    Cells of one model are alike: they are drawn together.
    """
    by_cell = np.array([cell.wins(names) for cell in cells])
    weights = np.array([cell.weight for cell in cells])
    models = sorted({cell.model for cell in cells})
    of_model = np.array([[cell.model == model for cell in cells] for model in models])
    by_model = np.array([np.tensordot(weights * here, by_cell, axes=1) for here in of_model])
    shares = share_ahead(by_model.sum(axis=0))
    rng = np.random.default_rng(seed)
    times = rng.multinomial(len(models), np.full(len(models), 1 / len(models)), size=DRAWS)
    draws = np.array([share_ahead(np.tensordot(one, by_model, axes=1)) for one in times])
    low, high = np.percentile(draws, [2.5, 97.5], axis=0)
    pairs = (by_cell + by_cell.transpose(0, 2, 1) > 0).sum(axis=(0, 2))
    places = [
        Place(*one)
        for one in zip(names, map(float, shares), map(float, low), map(float, high), map(int, pairs), strict=True)
    ]
    return sorted((one for one in places if one.pairs), key=lambda one: (-one.ahead, one.method))


@dataclass(frozen=True)
class CommonRanks:
    """The mean rank of each method in the cells that all share, with a 95 % interval, and how many cells these are."""

    cells: int
    by_method: Mapping[str, tuple[float, float, float]]


def common_ranks(cells: Sequence[Comparisons], names: Sequence[str], seed: int = 0) -> CommonRanks:
    """Mean ranks over the cells in which all were measured on the same samples; models are drawn for the intervals."""
    shared = [(cell, ranks) for cell in cells if (ranks := cell.ranks(names)) is not None]
    models = sorted({cell.model for cell, _ in shared})
    if not models:
        return CommonRanks(0, {})
    sums = np.array([sum(cell.weight * ranks for cell, ranks in shared if cell.model == model) for model in models])
    weights = np.array([sum(cell.weight for cell, _ in shared if cell.model == model) for model in models])
    rng = np.random.default_rng(seed)
    times = rng.multinomial(len(models), np.full(len(models), 1 / len(models)), size=DRAWS)
    low, high = np.percentile(times @ sums / (times @ weights)[:, None], [2.5, 97.5], axis=0)
    means = sums.sum(axis=0) / weights.sum()
    rows = zip(names, map(float, means), map(float, low), map(float, high), strict=True)
    return CommonRanks(len(shared), {name: tuple(found) for name, *found in rows})

"""Interactions of pairs: the joint effect of two parts beyond their single effects.

A game has a value for every set of its players that is kept, here the parts of an input. Values are arrays over the
sets, which are numbers: bit i is set if player i is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from math import factorial
from typing import Literal

import numpy as np

InteractionKind = Literal["shapley", "moebius", "removal"]
Game = Callable[[int], float]  # from the set that is kept to its value


def shapley_interactions(value: Game, players: int) -> np.ndarray:
    """Σ_S (n − s − 2)! s! / (n − 1)! Δ_ij(S) (Grabisch & Roubens 1999), and Shapley values on the diagonal.

    Δ_ij(S) = v(S ∪ ij) − v(S ∪ i) − v(S ∪ j) + v(S), over all sets S without the two.
    """
    sets = np.arange(1 << players)
    values, sizes = np.array([value(int(one)) for one in sets]), np.array([int(one).bit_count() for one in sets])
    matrix = np.zeros((players, players))
    for one in range(players):
        without = sets[sets >> one & 1 == 0]
        gains = values[without | 1 << one] - values[without]
        matrix[one, one] = _weights(players, 1)[sizes[without]] @ gains
    for one, other in combinations(range(players), 2):
        without = sets[(sets >> one & 1 == 0) & (sets >> other & 1 == 0)]
        first, second = without | 1 << one, without | 1 << other
        together = values[first | second] - values[first] - values[second] + values[without]
        matrix[one, other] = matrix[other, one] = _weights(players, 2)[sizes[without]] @ together
    return matrix


def moebius_interactions(value: Game, players: int) -> np.ndarray:
    """v(ij) − v(i) − v(j) + v(∅), and v(i) − v(∅) on the diagonal: the effect of a pair without any other part."""
    return _second_differences(lambda pair: value(pair), players)


def removal_interactions(value: Game, players: int) -> np.ndarray:
    """v(N) − v(N∖i) − v(N∖j) + v(N∖ij), and v(N) − v(N∖i) on the diagonal: a pair's effect next to all other parts.

    Below 0, the two say the same: either will do.
    """
    everything = (1 << players) - 1
    matrix = _second_differences(lambda pair: value(everything & ~pair), players)
    matrix[np.diag_indices(players)] *= -1
    return matrix


INTERACTIONS: Mapping[InteractionKind, Callable[[Game, int], np.ndarray]] = {
    "shapley": shapley_interactions,
    "moebius": moebius_interactions,
    "removal": removal_interactions,
}


def sets_of(kind: InteractionKind, players: int) -> list[int]:
    """The sets whose values a kind of interaction needs."""
    if kind == "shapley":
        return list(range(1 << players))
    pairs = [0, *(1 << one for one in range(players))]
    pairs += [1 << one | 1 << other for one, other in combinations(range(players), 2)]
    everything = (1 << players) - 1
    return pairs if kind == "moebius" else [everything & ~pair for pair in pairs]


def _second_differences(value: Game, players: int) -> np.ndarray:
    nothing, alone = value(0), [value(1 << one) for one in range(players)]
    matrix = np.diag(np.array(alone) - nothing)
    for one, other in combinations(range(players), 2):
        together = value(1 << one | 1 << other) - alone[one] - alone[other] + nothing
        matrix[one, other] = matrix[other, one] = together
    return matrix


def _weights(players: int, order: int) -> np.ndarray:
    """The weight of a set by its size, for interactions of one player or of two."""
    last = players - order
    return np.array([factorial(last - size) * factorial(size) / factorial(last + 1) for size in range(last + 1)])

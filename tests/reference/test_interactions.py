"""Interactions of pairs: their naive twins, known values, and what the model itself says."""

from __future__ import annotations

from itertools import combinations, permutations
from math import log

import numpy as np
import pytest

import whyformer
from whyformer import WhyformerError
from whyformer.methods.interactions import (
    moebius_interactions,
    removal_interactions,
    sets_of,
    shapley_interactions,
)

PLAYERS = 5


@pytest.fixture
def game():
    """Random values for all sets of five players."""
    values = np.random.default_rng(4).normal(size=1 << PLAYERS)
    return lambda one: float(values[one])


def number(*players):
    return sum(1 << player for player in players)


def test_shapley_interactions_are_means_over_orders_in_which_the_pair_comes_as_one_player(game):
    found = shapley_interactions(game, PLAYERS)
    for one, other in combinations(range(PLAYERS), 2):
        others = [player for player in range(PLAYERS) if player not in (one, other)]
        gains = []
        for order in permutations([*others, "pair"]):
            before = order[: order.index("pair")]
            gains.append(
                game(number(*before, one, other)) - game(number(*before, one)) - game(number(*before, other))
                + game(number(*before))
            )  # fmt: skip
        assert found[one, other] == found[other, one] == pytest.approx(np.mean(gains))


def test_the_diagonal_holds_shapley_values_which_sum_to_the_whole(game):
    found = np.diag(shapley_interactions(game, PLAYERS))
    for player in range(PLAYERS):
        orders = list(permutations(range(PLAYERS)))
        gains = [game(number(*o[: o.index(player) + 1])) - game(number(*o[: o.index(player)])) for o in orders]
        assert found[player] == pytest.approx(np.mean(gains))
    assert found.sum() == pytest.approx(game((1 << PLAYERS) - 1) - game(0))


def test_a_sum_of_products_of_two_has_their_factors_as_interactions_of_every_kind():
    factors = np.triu(np.random.default_rng(1).normal(size=(4, 4)))

    def value(one):
        kept = np.array([one >> player & 1 for player in range(4)])
        return float(kept @ factors @ kept)

    for formula in (shapley_interactions, moebius_interactions, removal_interactions):
        found = formula(value, 4)
        np.testing.assert_allclose(found[np.triu_indices(4, 1)], factors[np.triu_indices(4, 1)], atol=1e-12)


def test_a_majority_of_three_has_the_known_values():
    """Grabisch and Roubens (1999): every pair of a majority game of three has interaction 0, its Möbius value 1."""

    def majority(one):
        return float(one.bit_count() >= 2)

    assert shapley_interactions(majority, 3)[0, 1] == pytest.approx(0)
    assert moebius_interactions(majority, 3)[0, 1] == 1
    assert removal_interactions(majority, 3)[0, 1] == -1
    assert np.diag(shapley_interactions(majority, 3)) == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("kind", ["shapley", "moebius", "removal"])
def test_the_sets_of_a_kind_are_those_that_it_asks_for(kind):
    asked = set()
    formula = {"shapley": shapley_interactions, "moebius": moebius_interactions, "removal": removal_interactions}[kind]
    formula(lambda one: float(asked.add(one) or 0), 4)
    assert asked == set(sets_of(kind, 4))
    assert len(sets_of(kind, 4)) == len(asked)


def test_words_of_a_text_are_paired_by_the_log_odds_without_them():
    explanation = whyformer.explain("This is not a good film at all.", "mini-bert", method="occlusion")
    found = whyformer.interactions(explanation, units=4, kind="removal")
    effects = explanation.remover(explanation, most=4, combined=4)
    names = [unit.name for unit in effects.units]

    def odds(*removed):
        chance = effects.known[frozenset(map(names.index, removed))][effects.target]
        return log(chance / (1 - chance))

    first, second = found.units[0].name, found.units[1].name
    expected = odds() - odds(first) - odds(second) + odds(first, second)
    assert found.values[0, 1] == pytest.approx(expected, abs=1e-5)
    assert found.values[0, 0] == pytest.approx(odds() - odds(first), abs=1e-5)
    strongest = found.top(1)[0]
    assert abs(strongest[2]) == np.abs(found.values[np.triu_indices(4, 1)]).max()
    assert found.runs == 11
    assert f"{strongest[2]:+.2f}  {strongest[0]} · {strongest[1]}" in str(found)


def test_what_cannot_be_paired_is_refused(tmp_path):
    explanation = whyformer.explain("A good film.", "mini-bert", method="rollout")
    for options, message in [
        ({"units": 1}, "units=1: a whole number from 2 to 12"),
        ({"units": 13}, "from 2 to 12 for kind='shapley'"),
        ({"units": 21, "kind": "moebius"}, "from 2 to 20"),
        ({"kind": "banzhaf"}, "kind"),
    ]:
        with pytest.raises(WhyformerError, match=message):
            whyformer.interactions(explanation, **options)
    explanation.save(tmp_path / "film.json")
    with pytest.raises(WhyformerError, match="not a loaded file"):
        whyformer.interactions(whyformer.Explanation.load(tmp_path / "film.json"))
    with pytest.raises(WhyformerError, match="a pair needs two"):
        whyformer.interactions(whyformer.explain("Film", "mini-bert", method="rollout"))
    with pytest.raises(WhyformerError, match="k=0"):
        whyformer.interactions(explanation, units=2).top(0)


def test_values_are_those_of_shapiq():
    """The pairs 01, 02, … 34 of a fixed game by shapiq 1.4.1: ExactComputer with SII, Moebius and Co-Moebius."""
    values = np.array([((7 * one * one + 3 * one) % 23) / 8 - 1 for one in range(1 << PLAYERS)])
    pairs = np.triu_indices(PLAYERS, 1)
    thirds = [-0.4270833333, -0.1354166667, -0.3020833333, 0.1145833333]
    shapley = [-1.53125, thirds[0], thirds[1], -0.03125, thirds[1], -0.03125, thirds[2], thirds[2], thirds[3], 0.46875]
    moebius = [-2.25, -1.625, -0.375, -0.75, -0.375, -0.75, 1.375, -1.5, -0.125, -0.25]
    removal = [-2.25, -1.625, -0.375, -0.75, -0.375, 2.125, -1.5, 1.375, -0.125, 2.625]
    for formula, expected in [
        (shapley_interactions, shapley),
        (moebius_interactions, moebius),
        (removal_interactions, removal),
    ]:
        np.testing.assert_allclose(formula(lambda one: values[one], PLAYERS)[pairs], expected, atol=1e-9)

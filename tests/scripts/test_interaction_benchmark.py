"""The measurement of interactions: planted rules are what they say, ranks and foretold errors are those by hand."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from interactions import FIRST, RULES, SECOND, foretold_errors, planted_reviews, share_ahead


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("both", {(0, 0): "own", (1, 0): "own", (0, 1): "own", (1, 1): 1}),
        ("either", {(0, 0): "own", (1, 0): 1, (0, 1): 1, (1, 1): 1}),
        ("negates", {(0, 0): "own", (1, 0): 1, (0, 1): "own", (1, 1): 0}),
    ],
)
def test_the_two_words_decide_as_the_rule_says_and_come_equally_often(rule, expected):
    for (first, second), label in expected.items():
        for own in (0, 1):
            assert RULES[rule](own, bool(first), bool(second)) == (own if label == "own" else label)
    data = planted_reviews(rule, 160, seed=0)
    counts = Counter(tuple(word in text.split() for word in (FIRST, SECOND)) for text in data.texts)
    assert set(counts.values()) == {40}
    for text, label in zip(data.texts, data.labels, strict=True):
        words = tuple(int(word in text.split()) for word in (FIRST, SECOND))
        assert expected[words] in ("own", label)


def test_a_pair_is_ahead_of_the_pairs_with_a_smaller_value_and_half_of_the_ties():
    matrix = np.array([[9.0, 3.0, 1.0], [3.0, 9.0, 3.0], [1.0, 3.0, 9.0]])
    assert share_ahead(matrix, ["a", "b", "c"], frozenset("ab")) == 0.75
    assert share_ahead(matrix, ["a", "b", "c"], frozenset("ac")) == 0
    assert share_ahead(matrix, ["a", "b", "c"], frozenset("ad")) == 0


def test_a_game_of_single_parts_and_pairs_is_foretold_by_its_interactions_without_an_error():
    factors = np.triu(np.random.default_rng(0).normal(size=(5, 5))) / 4
    sets = [frozenset((0, 1, 2)), frozenset((1, 3, 4)), frozenset((0, 2, 3, 4))]

    def chance(removed):
        kept = np.array([unit not in removed for unit in range(5)])
        return 1 / (1 + np.exp(-(kept @ factors @ kept)))

    # v(N) − v(N∖i) is every product with i; v(N) − v(N∖i) − v(N∖j) + v(N∖ij) the product of both.
    matrix = factors + factors.T
    matrix[np.diag_indices(5)] = matrix.sum(axis=1) - np.diag(factors)
    effects = SimpleNamespace(target=0, known={one: (chance(one),) for one in [frozenset(), *sets]})
    for place in ([0, 1, 2, 3, 4], [3, 0, 4, 1, 2]):
        own = matrix[np.ix_(place, place)]
        alone, both, exchanged = foretold_errors(own, place, effects, sets, np.random.default_rng(1))
        assert both == pytest.approx(0, abs=1e-12)
        assert alone > 0.1
        assert exchanged > 0.1

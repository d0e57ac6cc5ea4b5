"""Measures of sources: values worked out by hand, and what holds for any scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import spearmanr

from made_responses import source_ablation
from whyformer.methods.registry import METHODS
from whyformer.methods.source_ablation import context_ablation, random_subsets
from whyformer.metrics.source_measures import (
    HELD_OUT,
    lexical_overlap,
    linear_datamodelling_score,
    random_scores,
    rank_agreement,
    recency,
    source_average_precision,
    source_recall,
    top_k_drop,
    without_the_highest,
)
from whyformer.removal.units import Ablation

TRUTH = np.array([True, False, False, True, False])
numbers = st.integers(-3, 3).map(float)  # few values, so that many are equal
some_scores = arrays.arrays(np.float64, 6, elements=numbers)
some_truth = arrays.arrays(bool, 6).filter(lambda truth: truth.any())


def additive(effects: np.ndarray, base: float = -20.0) -> Ablation:
    return source_ablation(effects.shape[1], (4,) * len(effects), lambda masks: base + masks @ effects.T)


@pytest.mark.parametrize(
    ("scores", "k", "expected"),
    [
        ([5, 4, 3, 2, 1], 1, 0.5),
        ([5, 4, 3, 2, 1], 3, 0.5),
        ([5, 4, 3, 2, 1], 4, 1.0),
        ([0, 0, 0, 0, 0], 1, 0.2),
        ([0, 0, 0, 0, 0], 3, 0.6),
        ([9, 1, 1, 1, 0], 2, 0.5 + 0.5 / 3),
        ([5, 4, 3, 2, 1], 50, 1.0),
    ],
)
def test_recall_of_the_true_sources(scores, k, expected):
    assert source_recall(np.array(scores, dtype=float), TRUTH, k) == pytest.approx(expected)


@given(some_scores, some_truth, st.integers(1, 6))
def test_recall_of_equal_scores_is_what_random_orders_give_on_average(scores, truth, k):
    generator = np.random.default_rng(0)
    orders = [np.lexsort((generator.random(6), -scores))[:k] for _ in range(400)]
    drawn = np.mean([truth[order].sum() / truth.sum() for order in orders])
    assert source_recall(scores, truth, k) == pytest.approx(drawn, abs=0.12)


@given(some_scores, some_truth, st.permutations(range(6)), st.integers(1, 6))
def test_the_order_of_the_sources_changes_no_figure(scores, truth, order, k):
    assert source_recall(scores[order], truth[order], k) == pytest.approx(source_recall(scores, truth, k))
    assert source_average_precision(scores[order], truth[order]) == pytest.approx(
        source_average_precision(scores, truth)
    )


def test_average_precision_by_hand():
    scores = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    assert source_average_precision(scores, TRUTH) == pytest.approx((1 / 1 + 2 / 4) / 2)
    assert source_average_precision(np.zeros(5), TRUTH) == pytest.approx(0.4)


def test_without_a_true_source_there_is_no_figure():
    nothing = np.zeros(5, dtype=bool)
    assert np.isnan(source_recall(np.ones(5), nothing, 1))
    assert np.isnan(source_average_precision(np.ones(5), nothing))


def test_top_k_drop_is_the_sum_of_what_the_highest_add():
    effects = np.array([[1.0, 5.0, 0.0, 3.0], [2.0, 0.0, 4.0, -1.0]])
    drops = top_k_drop(additive(effects), effects, counts=(1, 2, 4))
    np.testing.assert_allclose(drops, [[5.0, 8.0, 9.0], [4.0, 6.0, 5.0]])


def test_the_drop_of_a_row_is_by_its_own_scores():
    effects = np.array([[1.0, 5.0, 0.0], [2.0, 0.0, 4.0]])
    backwards = effects[:, ::-1]
    np.testing.assert_allclose(top_k_drop(additive(effects), backwards, counts=(1,)), [[5.0], [2.0]])


def test_equal_scores_are_removed_in_an_order_without_a_bias_to_places():
    first = [without_the_highest(np.zeros(4), [1], seed=seed)[0].argmin() for seed in range(400)]
    assert np.bincount(first, minlength=4) / 400 == pytest.approx(np.full(4, 0.25), abs=0.08)
    masks = without_the_highest(np.array([1.0, 3.0, 2.0]), [0, 1, 2, 9])
    assert masks.tolist() == [[True] * 3, [True, False, True], [True, False, False], [False] * 3]


@given(arrays.arrays(np.float64, (2, 5), elements=numbers))
def test_scores_that_are_the_effects_predict_every_subset(effects):
    agreement = linear_datamodelling_score(additive(effects), effects)
    opposite = linear_datamodelling_score(additive(effects), -effects)
    for row, values in enumerate(effects):
        varies = len(np.unique(random_subsets(5, 32, seed=HELD_OUT) @ values)) > 1
        assert agreement[row] == pytest.approx(1.0 if varies else 0.0)
        assert opposite[row] == pytest.approx(-1.0 if varies else 0.0)


def test_the_agreement_is_scipys_spearman():
    generator = np.random.default_rng(4)
    predicted, real = generator.integers(0, 6, (32, 3)).astype(float), generator.normal(size=(32, 3))
    expected = [spearmanr(predicted[:, row], real[:, row]).statistic for row in range(3)]
    np.testing.assert_allclose(rank_agreement(predicted, real), expected)


def test_scores_that_say_nothing_agree_with_nothing():
    assert linear_datamodelling_score(additive(np.ones((1, 5))), np.zeros((1, 5))).tolist() == [0.0]


def test_held_out_subsets_are_not_those_a_method_was_shown():
    shown = {mask.tobytes() for mask in random_subsets(30, 64, seed=0)}
    assert not shown & {mask.tobytes() for mask in random_subsets(30, 32, seed=HELD_OUT)}


def test_context_ablation_predicts_what_adds_up_and_one_at_a_time_cannot_see_what_is_said_twice():
    either = source_ablation(6, (4,), lambda masks: -9.0 * ~(masks[:, :1] | masks[:, 1:2]))
    fitted, single = context_ablation(either), METHODS["leave_one_out"].of_sources(either)
    assert not single.any()
    assert set(np.argsort(-fitted[0])[:2]) == {0, 1}
    assert linear_datamodelling_score(either, fitted)[0] > 0.6 > linear_datamodelling_score(either, single)[0]


def test_controls():
    assert recency(3).tolist() == [0.0, 1.0, 2.0]
    assert (random_scores(9, seed=1) == random_scores(9, seed=1)).all()
    assert (random_scores(9, seed=1) != random_scores(9, seed=2)).all()


def test_lexical_overlap_by_hand():
    sources = ["Anna has the key.", "Boris, Boris!", "The sea is far."]
    scores = lexical_overlap(sources, "Where is Boris?")
    rare = np.log1p((3 - 1 + 0.5) / (1 + 0.5))
    lengths = np.array([4, 2, 4])
    norm = 1.5 * (0.25 + 0.75 * lengths / lengths.mean())
    expected = [0.0, rare * 2 * 2.5 / (2 + norm[1]), rare * 1 * 2.5 / (1 + norm[2])]
    np.testing.assert_allclose(scores, expected)


def test_words_of_a_question_are_found_in_any_script_whatever_stands_around_them():
    assert lexical_overlap(["«Москва» — город.", "Море."], "Где МОСКВА?").argmax() == 0
    assert lexical_overlap(["東京は首都です。", "海は青い。"], "東京はどこ?")[0] > 0
    assert not lexical_overlap(["", "…"], "Where?").any()


@given(st.lists(st.text(alphabet="ab .", max_size=8), min_size=1, max_size=5), st.text(alphabet="ab .", max_size=8))
def test_lexical_overlap_is_finite_and_no_less_than_nothing(sources, query):
    scores = lexical_overlap(sources, query)
    assert np.isfinite(scores).all()
    assert (scores >= 0).all()

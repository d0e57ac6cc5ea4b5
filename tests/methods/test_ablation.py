"""Methods that ask a model without some sources, on models that are formulas: what they must find is known."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from made_responses import source_ablation
from whyformer import attribute
from whyformer.errors import WhyformerError
from whyformer.methods.option_checks import check_options
from whyformer.methods.registry import METHODS, Method
from whyformer.methods.source_ablation import all_and_all_but_one, context_ablation, random_subsets, sequence_logits
from whyformer.removal.units import Ablation
from whyformer.tracing.reads import Reads

NAMES = ["context_ablation", "leave_one_out"]
weights = arrays.arrays(np.float64, (2, 5), elements=st.floats(-3, 3))


def additive(effects: np.ndarray, tokens: tuple[int, ...] | None = None, base: float = -30.0) -> Ablation:
    """Every source of a row adds its effect to the log-probability."""
    rows, sources = effects.shape
    return source_ablation(sources, tokens or (4,) * rows, lambda masks: base + masks @ effects.T)


def naive_lasso(x: np.ndarray, y: np.ndarray, alpha: float) -> np.ndarray:
    """Coordinate descent on ‖y − Xw‖² / 2n + α‖w‖₁, from the textbook."""
    x, y = x - x.mean(axis=0), y - y.mean()
    found = np.zeros(x.shape[1])
    for _ in range(2_000):
        for column in range(x.shape[1]):
            rest = y - x @ found + x[:, column] * found[column]
            slope = x[:, column] @ rest / len(y)
            found[column] = np.sign(slope) * max(0.0, abs(slope) - alpha) / (x[:, column] @ x[:, column] / len(y))
    return found


@pytest.mark.parametrize("method", NAMES)
def test_the_one_planted_cause_is_found(method):
    effects = np.zeros((3, 20))
    effects[0, 7], effects[1, 0], effects[2, 19] = 25.0, 12.0, 5.0
    scores = METHODS[method].of_sources(additive(effects))
    assert scores.argmax(axis=1).tolist() == [7, 0, 19]
    others = np.where(effects > 0, 0.0, scores)
    assert np.abs(others).max() < 0.01
    np.testing.assert_allclose(scores.max(axis=1), [25.0, 12.0, 5.0], rtol=0.03)


@given(weights)
def test_leave_one_out_gives_the_effects_of_what_adds_up(effects):
    np.testing.assert_allclose(METHODS["leave_one_out"].of_sources(additive(effects)), effects, atol=1e-12)


def test_leave_one_out_is_a_difference_made_by_hand():
    table = {(True, True): -1.0, (False, True): -4.0, (True, False): -1.5}
    asked = source_ablation(2, (3,), lambda masks: np.array([[table[tuple(map(bool, mask))]] for mask in masks]))
    np.testing.assert_allclose(METHODS["leave_one_out"].of_sources(asked), [[3.0, 0.5]])


def test_context_ablation_is_lasso_on_the_logit_of_each_token():
    effects = np.random.default_rng(2).normal(size=(2, 6))
    asked = additive(effects, tokens=(3, 11), base=-2.0)
    masks = random_subsets(6, 48, seed=5)
    spread = masks.std(axis=0)
    standard = (masks - masks.mean(axis=0)) / spread
    expected = []
    for row, tokens in enumerate((3, 11)):
        p = np.exp(asked.scores_of(masks)[:, row].clip(max=-1e-9))
        found = naive_lasso(standard, np.log(p / (1 - p)) / tokens, alpha=0.01)
        expected.append(found / spread * tokens)
    asked = source_ablation(
        6, asked.tokens, lambda masks: additive(effects, base=-2.0).scores_of(masks).clip(max=-1e-9)
    )
    scores = context_ablation(asked, subsets=48, seed=5)
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-3)


def test_a_source_that_is_in_every_subset_has_no_effect():
    scores = context_ablation(additive(np.full((1, 3), 2.0)), subsets=1)
    assert np.isfinite(scores).all()
    assert not scores.any()


@given(st.floats(-700, -1e-300))
def test_the_logit_of_a_sequence_belongs_to_its_probability(log_probability):
    (logit,) = sequence_logits(np.array([log_probability]))
    if -30 < log_probability < -1e-6:
        p = np.exp(log_probability)
        assert logit == pytest.approx(np.log(p / (1 - p)), rel=1e-6, abs=1e-9)
    assert np.isfinite(logit)


def test_a_certain_sequence_has_a_finite_logit():
    assert np.isfinite(sequence_logits(np.array([0.0]))).all()


def test_subsets_are_drawn_by_their_seed_alone():
    assert (random_subsets(9, 20, seed=3) == random_subsets(9, 20, seed=3)).all()
    assert (random_subsets(9, 20, seed=3) != random_subsets(9, 20, seed=4)).any()
    assert random_subsets(50, 2_000).mean() == pytest.approx(0.5, abs=0.01)
    assert random_subsets(50, 2_000, kept=0.9).mean() == pytest.approx(0.9, abs=0.01)
    assert all_and_all_but_one(2).tolist() == [[True, True], [False, True], [True, False]]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"subsets": 0}, r"subsets=0: at least 1\."), ({"seed": -1}, r"seed=-1: a seed is 0 or more\.")],
)
def test_subsets_that_cannot_be_drawn_are_refused(options, message):
    with pytest.raises(WhyformerError, match=message):
        context_ablation(additive(np.ones((1, 3))), **options)


def test_options_are_checked_by_name_and_kind():
    method = METHODS["context_ablation"]
    assert list(method.options) == ["subsets", "seed"]
    with pytest.raises(
        WhyformerError, match=r"context_ablation has no option 'steps'\. It takes: subsets=64, seed=0\."
    ):
        check_options(method, {"steps": 3})
    with pytest.raises(WhyformerError, match=r"context_ablation: subsets='many' is not of type int\."):
        check_options(method, {"subsets": "many"})


def test_a_method_of_sources_has_a_score_for_each_row_and_source():
    wrong = Method("wrong", lambda ablation: np.zeros(3), Reads(subsets=True), kinds=("response",))
    with pytest.raises(
        WhyformerError, match=r"wrong returned scores of shape \(3,\): one per row and source, \(2, 5\)\."
    ):
        wrong.of_sources(additive(np.ones((2, 5))))


def test_without_scikit_learn_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    with pytest.raises(WhyformerError, match=r"This needs sklearn: in the checkout, pip install -e '.\[eval\]'\."):
        context_ablation(additive(np.ones((1, 3))))


@pytest.mark.parametrize("method", NAMES)
def test_where_there_is_no_response_the_way_to_it_is_named(method):
    with pytest.raises(WhyformerError, match=rf"{method} explains responses only: use explain_response\."):
        attribute(None, {}, 1, method)

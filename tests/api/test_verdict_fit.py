"""Verdict models use figures that help on units they were not fitted on, and stand in for those that are missing."""

from __future__ import annotations

import numpy as np
import pytest

from whyformer.api.verdict_figures import FIGURE_SIGNS, FIGURES
from whyformer.api.verdict_fit import (
    FigureTable,
    chosen_figures,
    cross_validated_loss,
    positive_logistic,
    ridge_logistic,
)
from whyformer.inputs.verdicts import VERDICTS

NAMES = ("per_token", "necessity", "score")


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2 == 0
    return rng.normal(size=(60, 3)) + np.outer(labels, [0, 3, 0]), labels


def test_weights_are_those_where_the_penalised_loss_is_least(drawn):
    values, labels = drawn
    intercept, weights = ridge_logistic(values, labels, 2.0)

    def loss(change):
        margins = (intercept + change[0] + values @ (weights + change[1:])) * np.where(labels, 1, -1)
        return np.logaddexp(0, -margins).sum() + ((weights + change[1:]) ** 2).sum()

    for place in range(4):
        step = np.eye(4)[place] * 1e-3
        assert loss(step) > loss(np.zeros(4)) < loss(-step)


def test_figures_without_a_use_are_left_out(drawn):
    values, labels = drawn
    assert chosen_figures(values, labels) == [1]
    assert cross_validated_loss(values[:, [1]], labels) < 0.4 < cross_validated_loss(values[:, [0]], labels)


def test_a_missing_figure_gets_a_typical_value_and_one_that_most_units_lack_is_left_out(drawn):
    values, labels = drawn
    rows = [dict(zip(NAMES, row, strict=True)) for row in values]
    for row in rows[:10]:
        del row["necessity"]
    for row in rows[:40]:
        del row["score"]
    table = FigureTable.of(rows, NAMES)
    assert table.names == NAMES[:2]
    assert table.typical == {"necessity": pytest.approx(values[10:, 1].mean(), abs=1e-5)}
    assert not table.values[:10, 1].any()
    model = table.model(labels, FIGURE_SIGNS["from sources"])
    assert set(model.coefficients) == {"necessity"}
    assert model.probability({"necessity": 4.0}) > 0.8 > 0.2 > model.probability({"necessity": -1.0})


def test_a_figure_is_never_used_against_its_meaning(drawn):
    values, labels = drawn
    rows = [dict(zip(NAMES, row, strict=True)) for row in values * [1, -1, 1]]
    table = FigureTable.of(rows, NAMES)
    assert ridge_logistic(table.values, labels, 1.0)[1][1] < -1
    assert "necessity" not in table.model(labels, FIGURE_SIGNS["from sources"]).coefficients
    assert table.model(labels, FIGURE_SIGNS["not supported"]).coefficients["necessity"] < 0
    assert table.model(labels, {"score": 1}).coefficients.keys() <= {"score"}


def test_weights_that_would_be_negative_are_zero_and_the_others_are_those_without_them(drawn):
    values, labels = drawn
    turned = values * [1, -1, 1]
    intercept, weights = positive_logistic(turned, labels, 1.0)
    kept = weights > 0
    assert not kept[1]
    np.testing.assert_allclose((intercept, *weights[kept]), np.hstack(ridge_logistic(turned[:, kept], labels, 1.0)))


def test_every_verdict_has_signs_and_every_figure_speaks_for_or_against_one():
    assert set(FIGURE_SIGNS) == set(VERDICTS) - {"cannot tell"}
    assert {name for signs in FIGURE_SIGNS.values() for name in signs} == set(FIGURES)
    assert {sign for signs in FIGURE_SIGNS.values() for sign in signs.values()} == {1, -1}

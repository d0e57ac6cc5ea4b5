"""Methods that remove units, against models that are formulas: Shapley's axioms, and each estimate in loops."""

from __future__ import annotations

from itertools import combinations
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.linear_model import Ridge

from whyformer import WhyformerError
from whyformer.methods.estimators import shapley_masks, smooth_masks, smooth_ridge, spearman
from whyformer.methods.registry import removal_methods
from whyformer.removal.units import Ablation, Units

SAMPLED = sorted(removal_methods().keys() - {"occlusion"})
tables = arrays.arrays(np.float64, 2**6, elements=st.floats(-3, 3, width=32))


def line(count: int) -> Units:
    return Units(np.arange(count), ((count,),))


def game(values, count: int, units: Units | None = None) -> Ablation:
    """An ablation of one example whose score is a function of the units that are kept."""
    units = units or line(count)
    whole = np.array([values(np.ones(count))])
    return Ablation((units,), whole, lambda _, masks: np.array([[values(mask)] for mask in masks[0]]))


def of_table(table: np.ndarray, count: int) -> Ablation:
    """Every subset has a score of its own."""
    return game(lambda mask: float(table[int(np.asarray(mask, dtype=bool) @ 2 ** np.arange(count))]), count)


def exact_shapley(ablation: Ablation) -> np.ndarray:
    """Σ_S |S|! (n − |S| − 1)! / n! · (v(S ∪ u) − v(S)), subset by subset."""
    count = ablation.examples[0].count

    def value(kept: tuple[int, ...]) -> float:
        mask = np.isin(np.arange(count), kept)
        return float(ablation.whole[0] if mask.all() else ablation.scores([mask[None]])[0, 0])

    scores = np.zeros(count)
    for unit in range(count):
        others = [other for other in range(count) if other != unit]
        for size in range(count):
            share = factorial(size) * factorial(count - size - 1) / factorial(count)
            for subset in combinations(others, size):
                scores[unit] += share * (value((*subset, unit)) - value(subset))
    return scores


def scores_of(method: str, ablation: Ablation, **options) -> np.ndarray:
    (scores,) = removal_methods()[method].formula(ablation, **options)
    return scores


@settings(max_examples=20)
@given(tables)
def test_kernel_shap_of_all_subsets_is_exact(table):
    ablation = of_table(table, 6)
    np.testing.assert_allclose(scores_of("kernel_shap", ablation), exact_shapley(ablation), atol=1e-9)


def test_kernel_shap_of_eight_units_is_exact():
    ablation = of_table(np.random.default_rng(3).normal(size=2**8), 8)
    np.testing.assert_allclose(scores_of("kernel_shap", ablation, forwards=255), exact_shapley(ablation), atol=1e-9)


@given(tables, st.integers(8, 64))
def test_shapley_values_add_up_whatever_the_budget(table, forwards):
    ablation = of_table(table, 6)
    total = ablation.whole[0] - table[0]
    assert scores_of("kernel_shap", ablation, forwards=forwards).sum() == pytest.approx(total, abs=1e-9)


@given(tables, st.permutations(range(6)))
def test_exact_shapley_values_follow_their_units(table, order):
    """Symmetry: units that change places change scores, and equal units have equal ones."""
    ablation = of_table(table, 6)
    moved = game(lambda mask: float(table[int(np.asarray(mask, dtype=bool)[list(order)] @ 2 ** np.arange(6))]), 6)
    expected = np.empty(6)
    expected[list(order)] = scores_of("kernel_shap", ablation)
    np.testing.assert_allclose(scores_of("kernel_shap", moved), expected, atol=1e-9)


@given(tables)
def test_a_unit_that_changes_nothing_has_no_shapley_value(table):
    ablation = game(lambda mask: float(table[int(np.asarray(mask[1:], dtype=bool) @ 2 ** np.arange(6))]), 7)
    assert scores_of("kernel_shap", ablation)[0] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("method", removal_methods())
def test_examples_of_a_few_units_are_explained(method, count):
    scores = scores_of(method, game(lambda mask: float(mask @ np.arange(1, count + 1)), count))
    assert scores.shape == (count,)
    assert (np.diff(scores) > 0).all()


def test_sampled_shapley_values_come_near_the_exact_ones():
    table = np.random.default_rng(0).normal(size=2**10)
    weights = np.linspace(-2, 2, 10)
    ablation = game(lambda mask: float(mask @ weights + 0.1 * table[int(mask.astype(bool) @ 2 ** np.arange(10))]), 10)
    found = scores_of("kernel_shap", ablation, forwards=600)
    assert np.abs(found - exact_shapley(ablation)).max() < 0.05


def test_subsets_are_followed_by_their_complements():
    masks = shapley_masks(line(20), 101, np.random.default_rng(0)).masks
    assert not masks[0].any()
    assert (masks[1::2] == ~masks[2::2]).all()
    assert len(masks) == 101


def test_occlusion_is_a_loop_over_units():
    table = np.random.default_rng(1).normal(size=2**6)
    ablation = of_table(table, 6)
    expected = [table[-1] - table[2**6 - 1 - 2**unit] for unit in range(6)]
    np.testing.assert_allclose(scores_of("occlusion", ablation), expected)


def test_rise_of_a_text_is_its_formula():
    table = np.random.default_rng(2).normal(size=2**5)
    ablation = of_table(table, 5)
    masks = smooth_masks(line(5), 40, np.random.default_rng(7), cells=7).masks
    values = [ablation.scores([mask[None]])[0, 0] for mask in masks]
    expected = np.zeros(5)
    for mask, value in zip(masks, values, strict=True):
        expected += (value - sum(values) / 40) * mask / (40 * 0.5)
    np.testing.assert_allclose(scores_of("rise", ablation, forwards=40, seed=7), expected, atol=1e-12)


def test_rise_of_a_picture_is_its_formula_averaged_over_patches():
    """Each mask: a grid of coin tosses, bilinearly enlarged by hand, shifted by less than a cell."""
    height, width, cells, count = 8, 12, 3, 30
    numbers = (np.arange(8)[:, None] // 4 * 3 + np.arange(12) // 4).ravel()
    units = Units(numbers, ((height, width),))
    weights = np.random.default_rng(5).normal(size=height * width)
    ablation = Ablation((units,), np.array([weights.sum()]), lambda _, masks: masks[0] @ weights[:, None])
    random = np.random.default_rng(11)
    grids = random.random((count, 1, cells, cells)) < 0.5
    down, right = random.integers(0, 3, count), random.integers(0, 4, count)
    masks = np.zeros((count, height, width))
    for number, y, x in np.ndindex(masks.shape):
        masks[number, y, x] = enlarged(grids[number, 0], y + down[number], x + right[number], (3, 4))
    values = masks.reshape(count, -1) @ weights
    pixels = np.zeros((height, width))
    for mask, value in zip(masks, values, strict=True):
        pixels += (value - values.mean()) * mask / (count * 0.5)
    expected = [pixels.ravel()[numbers == unit].mean() for unit in range(6)]
    found = scores_of("rise", ablation, forwards=count, cells=cells, seed=11)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def enlarged(grid: np.ndarray, y: int, x: int, sides: tuple[int, int]) -> float:
    """A pixel of the grid made (cells + 1) sides large, between the centres of its cells."""
    cells = len(grid)
    scale = cells / (cells + 1)
    places = [max(0.0, (at + 0.5) * scale / side - 0.5) for at, side in zip((y, x), sides, strict=True)]
    (top, left), (a, b) = [int(place) for place in places], [place % 1 for place in places]
    low, side = min(top + 1, cells - 1), min(left + 1, cells - 1)
    upper = (1 - b) * grid[top, left] + b * grid[top, side]
    lower = (1 - b) * grid[low, left] + b * grid[low, side]
    return (1 - a) * upper + a * lower


def test_lime_is_a_weighted_ridge_regression():
    table = np.random.default_rng(4).normal(size=2**6)
    ablation = of_table(table, 6)
    masks = np.random.default_rng(9).random((50, 6)) < 0.5
    rows = np.concatenate([np.ones((1, 6)), masks])
    values = np.append(table[-1], ablation.scores([masks])[:, 0])
    cosine = rows.sum(axis=1) / np.sqrt(np.maximum(rows.sum(axis=1), 1) * 6)
    weights = np.sqrt(np.exp(-(((1 - cosine) / 0.25) ** 2)))
    expected = Ridge(alpha=1.0).fit(rows, values, sample_weight=weights).coef_
    np.testing.assert_allclose(scores_of("lime", ablation, forwards=50, seed=9), expected, atol=1e-10)


@given(arrays.arrays(np.float64, 12, elements=st.floats(-3, 3)))
def test_regression_on_masks_finds_what_adds_up(weights):
    found = scores_of("mask_regression", game(lambda mask: float(mask @ weights), 12), forwards=128)
    assert np.abs(found - weights).max() < 0.01 * max(1.0, float(np.abs(weights).max()))


def test_the_smoothness_prior_is_a_penalty_on_differences_of_neighbours():
    """The normal equations of the penalised regression, at the penalty that leaves the least GCV."""
    from whyformer.methods import estimators

    random = np.random.default_rng(6)
    units = Units(np.arange(12), ((3, 4),))
    masks, values = random.random((40, 12)) < 0.5, random.normal(size=40)
    penalty = 0.1 * np.eye(12)
    for one, other in units.neighbours:
        step = np.zeros(12)
        step[one], step[other] = 1, -1
        penalty += np.outer(step, step)
    rows, rest = masks - masks.mean(axis=0), values - values.mean()
    best, expected = np.inf, None
    for strength in estimators.PENALTIES:
        solution = np.linalg.solve(rows.T @ rows + strength * penalty, rows.T @ rest)
        hat = rows @ np.linalg.solve(rows.T @ rows + strength * penalty, rows.T)
        error = ((rest - rows @ solution) ** 2).sum() / (40 - 1 - np.trace(hat)) ** 2
        if error < best:
            best, expected = error, solution
    found = smooth_ridge(units, estimators.Subsets(masks, np.ones(40)), values, 0.0)
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_neighbours_touch_in_pictures_and_follow_one_another_in_texts():
    picture, text = np.array([0, 0, 1, 2, 2, 1]), np.array([-1, 3, -1, 4, 5])
    units = Units(np.concatenate([picture, text]), ((2, 3), (5,)))
    assert units.neighbours.tolist() == [[0, 1], [0, 2], [1, 2], [3, 4], [4, 5]]


@pytest.mark.parametrize("method", SAMPLED)
def test_no_more_is_asked_once_the_ranking_is_stable(method):
    asked = []

    def ask(_, masks):
        asked.append(len(masks[0]))
        return masks[0] @ np.linspace(1, 40, 12)[:, None]

    ablation = Ablation((line(12),), np.array([246.0]), ask)
    (early,) = removal_methods()[method].formula(ablation, forwards=1024, stable=0.9)
    assert sum(asked) < 1024
    (whole,) = removal_methods()[method].formula(ablation, forwards=1024)
    assert spearman(early, whole) > 0.8


@pytest.mark.parametrize("method", SAMPLED)
def test_an_example_has_the_same_scores_whatever_stops_beside_it(method):
    steep, flat = np.linspace(1, 40, 12), np.full(12, 1.0) + 0.01 * np.random.default_rng(0).normal(size=12)
    noise = np.random.default_rng(1).normal(size=2**12)

    def ask(_, masks):
        noisy = [masks[-1] @ flat + noise[(masks[-1].astype(bool) @ 2 ** np.arange(12)).astype(int)]]
        return np.stack([masks[0] @ steep, *noisy][-len(masks) :], axis=1)

    both = Ablation((line(12), line(12)), np.array([steep.sum(), flat.sum()]), ask)
    alone = Ablation((line(12),), np.array([flat.sum()]), ask)
    options = {"forwards": 320, "stable": 0.9}
    together = removal_methods()[method].formula(both, **options)[1]
    np.testing.assert_array_equal(together, removal_methods()[method].formula(alone, **options)[0])


@pytest.mark.parametrize("method", SAMPLED)
def test_an_example_of_few_subsets_stops_beside_one_of_many(method):
    def ask(units, masks):
        answers = np.zeros((max(map(len, masks)), len(masks)))
        for number, own in enumerate(masks):
            answers[: len(own), number] = own @ np.linspace(1, 40, own.shape[1])
        return answers

    whole = np.array([np.linspace(1, 40, 5).sum(), np.linspace(1, 40, 12).sum()])
    options = {"forwards": 320, "stable": 0.9}
    together = removal_methods()[method].formula(Ablation((line(5), line(12)), whole, ask), **options)
    for units, own, scores in zip((line(5), line(12)), whole, together, strict=True):
        (alone,) = removal_methods()[method].formula(Ablation((units,), own[None], ask), **options)
        np.testing.assert_array_equal(scores, alone)


def test_a_mask_without_cells_is_refused():
    with pytest.raises(WhyformerError, match="cells=0: a mask has at least 1 cell"):
        scores_of("rise", game(lambda mask: 0.0, 3), cells=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"forwards": 1}, "forwards=1: at least 2"),
        ({"seed": -1}, "seed=-1: a seed is 0 or more"),
        ({"stable": 1.5}, "stable=1.5: a rank correlation above 0, at most 1"),
    ],
)
def test_a_budget_that_is_none_is_refused(options, message):
    with pytest.raises(WhyformerError, match=message):
        scores_of("lime", game(lambda mask: 0.0, 3), **options)

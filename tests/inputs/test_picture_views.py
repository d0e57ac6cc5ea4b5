"""Scores of a picture that is seen whole and in tiles, on one grid."""

from __future__ import annotations

import numpy as np

from whyformer.inputs.grid_resampling import ScoredGrid, sum_grids


def test_one_grid_stays_as_it_is():
    grid = ScoredGrid(np.arange(6.0).reshape(2, 3), (0, 0, 30, 20))
    assert sum_grids([grid]) is grid


def test_a_coarse_patch_shares_its_score_out_by_area():
    coarse = ScoredGrid(np.array([[4.0, 8.0]]), (0, 0, 8, 4))
    fine = ScoredGrid(np.ones((2, 4)), (0, 0, 8, 4))
    both = sum_grids([coarse, fine])
    assert both.box == (0.0, 0.0, 8.0, 4.0)
    np.testing.assert_allclose(both.scores, [[2, 2, 3, 3], [2, 2, 3, 3]])


def test_the_sum_of_the_scores_is_kept_where_grids_do_not_fit_each_other():
    rng = np.random.default_rng(0)
    first, second = ScoredGrid(rng.random((3, 3)), (0, 0, 60, 20)), ScoredGrid(rng.random((4, 8)), (0, -5, 60, 25))
    both = sum_grids([first, second])
    assert both.scores.shape == (4, 8)
    np.testing.assert_allclose(both.scores.sum(), first.scores.sum() + second.scores.sum())


def test_tiles_side_by_side_make_one_grid():
    left, right = ScoredGrid(np.eye(2), (0, 0, 4, 4)), ScoredGrid(2 * np.eye(2), (4, 0, 8, 4))
    both = sum_grids([left, right])
    np.testing.assert_allclose(both.scores, [[1, 0, 2, 0], [0, 1, 0, 2]])

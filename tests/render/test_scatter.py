"""Noise of any distribution is titled as noise and stays pale; a map with structure or an outlier does not."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from whyformer.inputs.layouts import Patches
from whyformer.render.colour import STANDS_OUT
from whyformer.render.coverage import coverage, coverage_remark
from whyformer.render.scatter import is_scattered, layout_scale, moran_z
from whyformer.results.part import Part

NOISE = {"normal": {}, "laplace": {}, "exponential": {}, "uniform": {}}
MAPS = 400


def part(grid):
    rows, columns = grid.shape
    return Part(Patches(Image.new("RGB", (64, 64)), rows, columns, (0, 0, 64, 64)), grid.ravel())


@pytest.mark.parametrize("side", [7, 16])
@pytest.mark.parametrize("name", NOISE)
def test_noise_of_any_shape_is_titled_as_nothing_standing_out(name, side):
    draws = getattr(np.random.default_rng(side), name)(size=(MAPS, side, side))
    counts = [coverage(part(draw)) for draw in draws]
    assert sum(one.count + one.count_against > 0 for one in counts) <= MAPS // 100


@pytest.mark.parametrize("name", NOISE)
def test_noise_stays_pale(name):
    draw = getattr(np.random.default_rng(1), name)(size=(16, 16))
    one = part(draw)
    strength = layout_scale(one.layout, one.scores).strength(one.scores)
    assert np.abs(strength).max() < STANDS_OUT
    assert coverage_remark(one).startswith("No patch stands out: neighbouring patches are no more alike than in noise.")


def test_moran_of_a_grid_is_that_of_its_permutations():
    rng = np.random.default_rng(0)
    grid = rng.exponential(size=(6, 9))
    grid[:3] += 0.5

    def products(values):
        return (values[1:] * values[:-1]).sum() + (values[:, 1:] * values[:, :-1]).sum()

    centred = grid - grid.mean()
    draws = [products(rng.permutation(centred.ravel()).reshape(grid.shape)) for _ in range(20_000)]
    assert moran_z(grid) == pytest.approx((products(centred) - np.mean(draws)) / np.std(draws), abs=0.05)


def test_a_blob_an_outlier_and_a_few_patches_keep_their_scale():
    blob = np.random.default_rng(0).exponential(size=(16, 16))
    blob[4:9, 4:9] += 3
    outlier = np.random.default_rng(0).normal(size=(16, 16))
    outlier[3, 3] = 30
    few = np.random.default_rng(0).normal(size=(4, 4))
    assert not any(is_scattered(grid) for grid in (blob, outlier, few, np.zeros((8, 8)), np.ones((8, 8))))
    assert coverage(part(blob)).count
    assert coverage(part(outlier)).count == 1

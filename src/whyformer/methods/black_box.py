"""Removal methods: run the model on subsets of an example's units, and fit scores to its outputs."""

from __future__ import annotations

from functools import partial

import numpy as np

from whyformer.axes import UnitScores
from whyformer.errors import WhyformerError
from whyformer.methods.estimators import (
    estimate,
    local_ridge,
    random_masks,
    shapley_masks,
    shapley_values,
    smooth_masks,
    smooth_ridge,
    weighted_mean,
)
from whyformer.methods.registry import method
from whyformer.removal.units import Ablation
from whyformer.tracing.reads import Reads


@method("occlusion", reads=Reads(subsets=True))
def occlusion(ablation: Ablation) -> list[UnitScores]:
    """Drop of the score when one unit alone is removed, s(x) − s(x without u) (Zeiler & Fergus 2014)."""
    answers = ablation.scores([~np.eye(units.count, dtype=bool) for units in ablation.examples])
    return [
        whole - answers[: units.count, number]
        for number, (units, whole) in enumerate(zip(ablation.examples, ablation.whole, strict=True))
    ]


@method("rise", reads=Reads(subsets=True))
def rise(
    ablation: Ablation, *, forwards: int = 512, cells: int = 7, seed: int = 0, stable: float | None = None
) -> list[UnitScores]:
    """Mean of random masks weighted by the score they leave, Σ (s(x ⊙ m) − mean s) m / (N p) (RISE, BMVC 2018).

    For a picture, masks are coarse grids of `cells` × `cells`, smoothed and shifted; for a text, its units.
    """
    if cells < 1:
        raise WhyformerError(f"cells={cells}: a mask has at least 1 cell on a side.")
    draw = partial(smooth_masks, cells=cells)
    by_pixel = estimate(ablation.by_pixel, draw, weighted_mean, forwards=forwards, seed=seed, stable=stable)
    examples = zip(ablation.examples, ablation.by_pixel.examples, by_pixel, strict=True)
    return [units.mean_of(pixels.at_places(scores)) for units, pixels, scores in examples]


@method("kernel_shap", reads=Reads(subsets=True))
def kernel_shap(
    ablation: Ablation, *, forwards: int = 512, seed: int = 0, stable: float | None = None
) -> list[UnitScores]:
    """Shapley values by weighted least squares over subsets and their complements (Lundberg & Lee 2017).

    They sum to s(x) − s(nothing of x), and are exact if the budget covers all 2ⁿ subsets.
    """
    return estimate(ablation, shapley_masks, shapley_values, forwards=forwards, seed=seed, stable=stable)


@method("lime", reads=Reads(subsets=True))
def lime(ablation: Ablation, *, forwards: int = 512, seed: int = 0, stable: float | None = None) -> list[UnitScores]:
    """Ridge regression on random subsets, weighted by their similarity to the input (LIME, KDD 2016)."""
    return estimate(ablation, random_masks, local_ridge, forwards=forwards, seed=seed, stable=stable)


@method("mask_regression", reads=Reads(subsets=True))
def mask_regression(
    ablation: Ablation, *, forwards: int = 512, seed: int = 0, stable: float | None = None
) -> list[UnitScores]:
    """Regression on random subsets with a smoothness prior over neighbours, its strength chosen by GCV."""
    return estimate(ablation, random_masks, smooth_ridge, forwards=forwards, seed=seed, stable=stable)

"""Methods that remove units against the libraries they are best known by, on small models."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from tiny_models import FAMILIES, image_inputs
from whyformer import attribute
from whyformer.methods.registry import removal_methods
from whyformer.removal.units import Ablation, Units

with warnings.catch_warnings():  # of what these libraries import
    warnings.simplefilter("ignore")
    import captum.attr
    import shap


def network(masks: np.ndarray) -> np.ndarray:
    """A small network of eight inputs."""
    random = np.random.default_rng(0)
    first, second = random.normal(size=(8, 16)), random.normal(size=16)
    return np.tanh(masks.astype(float) @ first) @ second


@pytest.fixture(scope="module")
def ablation() -> Ablation:
    whole = network(np.ones((1, 8)))
    return Ablation((Units(np.arange(8), ((8,),)),), whole, lambda _, masks: network(masks[0])[:, None])


def test_kernel_shap_is_that_of_shap(ablation):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        explainer = shap.KernelExplainer(network, np.zeros((1, 8)), silent=True)
        expected = explainer.shap_values(np.ones((1, 8)), nsamples=2**8, l1_reg=False, silent=True)
    (scores,) = removal_methods()["kernel_shap"].formula(ablation)
    np.testing.assert_allclose(scores, np.ravel(expected), atol=1e-6)


@pytest.fixture(scope="module")
def vit():
    model, pixels = FAMILIES["vit"](), image_inputs()["pixel_values"][:1]

    def logit(values: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return model(pixel_values=values).logits[:, 1]

    return model, pixels, logit


def test_occlusion_is_captums_feature_ablation(vit):
    model, pixels, logit = vit
    patches = torch.arange(32)[:, None] // 8 * 4 + torch.arange(32) // 8
    expected = captum.attr.FeatureAblation(logit).attribute(pixels, feature_mask=patches[None, None])
    scores = attribute(model, {"pixel_values": pixels}, 1, "occlusion")["image"]
    torch.testing.assert_close(scores[0, 1:], expected[0, 0, ::8, ::8].flatten(), atol=1e-5, rtol=1e-4)


def test_exact_kernel_shap_is_captums_shapley_values(vit):
    model, pixels, logit = vit
    quarters = torch.arange(32)[:, None] // 16 * 2 + torch.arange(32) // 16
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = captum.attr.ShapleyValues(logit).attribute(pixels, feature_mask=quarters[None, None])
    options = {"units": {"image": quarters[None]}}
    scores = attribute(model, {"pixel_values": pixels}, 1, "kernel_shap", **options)["image"]
    torch.testing.assert_close(scores[0, 1:], expected[0, 0, ::8, ::8].flatten(), atol=1e-5, rtol=1e-4)

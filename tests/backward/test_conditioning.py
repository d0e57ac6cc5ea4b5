"""What rounding does to relevance is measured with each explanation, and said where it is too much."""

import copy

import pytest
import torch
from PIL import Image

import whyformer
from tiny_models import FAMILIES, inputs_of
from whyformer import attribute, explain
from whyformer.models.zoo import ZOO
from whyformer.tracing.attribution import MOST_MOVED, UNSTABLE


@pytest.fixture(scope="module")
def cat():
    with Image.open(ZOO / "cat.jpg") as image:
        return image.convert("RGB")


def error_of_float32(image, method, **options):
    """How far the scores in float32 are from those in float64, as a share of the largest."""
    loaded_model = whyformer.load("mini-vit")
    pixels = loaded_model.processor(image, return_tensors="pt")["pixel_values"]
    wide = copy.deepcopy(loaded_model.model).double()
    scores = attribute(loaded_model.model, {"pixel_values": pixels}, "cat", method, **options)["pixels"].double()
    exact = attribute(wide, {"pixel_values": pixels.double()}, "cat", method, **options)["pixels"]
    return float((scores - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("rules", ["z_plus", "dtd"])
def test_relevance_that_rounding_changes_is_called_unstable(rules, cat):
    assert error_of_float32(cat, "lrp", rules=rules) > MOST_MOVED
    assert UNSTABLE in explain(cat, model="mini-vit", method="lrp", rules=rules, target="cat").notes


@pytest.mark.parametrize(("method", "options"), [("lrp", {"rules": "attn_lrp"}), ("input_x_gradient", {})])
def test_what_rounding_does_not_change_is_not_called_unstable(method, options, cat):
    assert error_of_float32(cat, method, **options) < MOST_MOVED / 10
    assert UNSTABLE not in explain(cat, model="mini-vit", method=method, target="cat", **options).notes


def test_an_unstable_example_says_nothing_of_the_others_in_its_batch():
    scores = whyformer.extend.Attribution(
        {"text": torch.ones(3, 2)}, instability=torch.tensor([0.5, 1e-6, float("nan")]), remarks=("Rounded.",)
    )
    assert [scores.remarks_on(example)[1:] for example in range(3)] == [(UNSTABLE,), (), (UNSTABLE,)]


def test_instability_is_measured_by_example_and_in_float32_alone():
    model, inputs = FAMILIES["bert"](), inputs_of("bert")
    instability = attribute(model, inputs, 1, "lrp").instability
    assert instability.shape == (3,)
    assert (instability < MOST_MOVED).all()
    assert attribute(model.double(), inputs, 1, "lrp").instability is None

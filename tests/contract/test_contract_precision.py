"""Every method in half precision, under autocast, and whatever gradient mode the caller is in."""

import copy
from contextlib import nullcontext
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from tiny_models import FAMILIES, inputs_of
from whyformer import attribute, explain, load
from whyformer.methods.registry import trace_methods

NAMES = ["vit", "bert"]
HALVES = [torch.bfloat16, torch.float16]
# GradCAM weighs a head by a mean of gradients of both signs, of which a random BERT leaves hardly more than rounding.
CASES = [(method, family) for method in trace_methods() for family in NAMES if (method, family) != ("grad_cam", "bert")]


def in_dtype(inputs: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}


@cache
def model_of(family: str) -> nn.Module:
    return FAMILIES[family]()


@cache
def twins_of(family: str, dtype: torch.dtype) -> tuple[nn.Module, nn.Module]:
    """The model in half precision, and the same weights in float32."""
    half = FAMILIES[family]().to(dtype)
    return half, copy.deepcopy(half).float()


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize("method", trace_methods())
def test_neither_the_callers_gradient_mode_nor_autocast_is_an_obstacle(method, family):
    model, inputs = model_of(family), inputs_of(family)
    expected = attribute(model, inputs, 1, method)
    for caller in (torch.no_grad, torch.inference_mode):
        with caller():
            inside = attribute(model, inputs, 1, method)
        torch.testing.assert_close(dict(inside), dict(expected))
    if (method, family) in CASES:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            (scores,) = attribute(model, inputs, 1, method).values()
        assert scores.dtype == torch.float32
        (exact,) = expected.values()
        error = (scores - exact).norm() / exact.norm().clamp(min=1e-12)
        assert float(error) < 0.08


@pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])
@pytest.mark.parametrize(("method", "family"), CASES)
def test_a_half_precision_model_scores_as_its_float32_twin(method, family, dtype):
    half, single = twins_of(family, dtype)
    inputs = in_dtype(inputs_of(family), dtype)
    (scores,) = attribute(half, inputs, 1, method).values()
    (expected,) = attribute(single, in_dtype(inputs, torch.float32), 1, method).values()
    assert scores.dtype == torch.float32
    assert torch.isfinite(scores).all()
    error = (scores - expected).norm() / expected.norm().clamp(min=1e-12)
    assert float(error) < (0.08 if dtype == torch.bfloat16 else 0.02)


@pytest.fixture(scope="module")
def half_bert(bert):
    return load(bert, dtype=torch.bfloat16)


@pytest.mark.parametrize("method", trace_methods())
@pytest.mark.parametrize("context", [nullcontext, lambda: torch.autocast("cpu", dtype=torch.bfloat16)])
def test_explanations_of_a_bfloat16_model_are_numbers(half_bert, method, context):
    with context():
        explanation = explain("the film was great", half_bert, method=method)
    assert explanation.scores.dtype.name == "float32"

"""Every method in half precision, under autocast, and whatever gradient mode the caller is in."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from tiny_models import FAMILIES, inputs_of
from whyformer import attribute, explain, load
from whyformer.methods.registry import trace_methods

NAMES = ["vit", "bert"]
HALVES = [torch.bfloat16, torch.float16]
# GradCAM weighs a head by a mean of gradients of both signs, of which a random BERT leaves hardly more than rounding.
CASES = [(method, family) for method in trace_methods() for family in NAMES if (method, family) != ("grad_cam", "bert")]
CALLERS = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


def in_dtype(inputs: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize("method", trace_methods())
def test_the_callers_gradient_mode_changes_nothing(method, family, caller):
    model, inputs = FAMILIES[family](), inputs_of(family)
    expected = attribute(model, inputs, 1, method)
    with CALLERS[caller]():
        inside = attribute(model, inputs, 1, method)
    torch.testing.assert_close(dict(inside), dict(expected))


@pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])
@pytest.mark.parametrize(("method", "family"), CASES)
def test_a_half_precision_model_scores_as_its_float32_twin(method, family, dtype):
    half = FAMILIES[family]().to(dtype)
    single = copy.deepcopy(half).float()
    inputs = in_dtype(inputs_of(family), dtype)
    (scores,) = attribute(half, inputs, 1, method).values()
    (expected,) = attribute(single, in_dtype(inputs, torch.float32), 1, method).values()
    assert scores.dtype == torch.float32
    assert torch.isfinite(scores).all()
    error = (scores - expected).norm() / expected.norm().clamp(min=1e-12)
    assert float(error) < (0.08 if dtype == torch.bfloat16 else 0.02)


@pytest.mark.parametrize(("method", "family"), CASES)
def test_autocast_is_no_obstacle(method, family):
    model, inputs = FAMILIES[family](), inputs_of(family)
    (expected,) = attribute(model, inputs, 1, method).values()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (scores,) = attribute(model, inputs, 1, method).values()
    assert scores.dtype == torch.float32
    error = (scores - expected).norm() / expected.norm().clamp(min=1e-12)
    assert float(error) < 0.08


@pytest.mark.parametrize("method", trace_methods())
@pytest.mark.parametrize("context", [nullcontext, lambda: torch.autocast("cpu", dtype=torch.bfloat16)])
def test_explanations_of_a_bfloat16_model_are_numbers(bert, method, context):
    model = load(bert, dtype=torch.bfloat16)
    with context():
        explanation = explain("the film was great", model, method=method)
    assert explanation.scores.dtype.name == "float32"

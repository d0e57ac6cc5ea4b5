"""What every method must hold to on models that hear."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from pairs import pairs
from tiny_models import applies, masked, noise
from tiny_sounds import WAVE_FAMILIES, ast, ctc
from whyformer import attribute
from whyformer.axes import Inputs
from whyformer.methods.registry import trace_methods

SAMPLES = 2640  # of which the convolutions make 8 frames
FAMILIES = WAVE_FAMILIES | {"ast": ast, "ctc": ctc}
TOKENS = {"ast": 2 + 3 * 29, "sew": 4}
OF_INPUTS = {"input_x_gradient", "integrated_gradients", "gradient_shap", "lrp"}
OF_PATHS = {"bi_head", "bi_token", "integrated_gradients"}
# Relevance divides by sums near zero: how it treats batches and padding can only be told in float64.
RELEVANCE = {"lrp", "partial_lrp", "transformer_attribution"}


@cache
def model_of(family: str) -> nn.Module:
    return FAMILIES[family]()


@cache
def double(family: str) -> nn.Module:
    return FAMILIES[family]().double()


def inputs_of(family: str) -> Inputs:
    """Two sounds; where the model is told which samples are padding, the second is shorter."""
    if family == "ast":
        return {"input_values": noise(2, 120, 16)}
    if family != "wav2vec2 with a mask":
        return {"input_values": noise(2, SAMPLES)}
    mask = masked(SAMPLES, SAMPLES - 640)
    return {"input_values": noise(2, SAMPLES) * mask, "attention_mask": mask}


@torch.no_grad()
def logits_of(model: nn.Module, inputs: Inputs) -> Tensor:
    return model(**inputs).logits


@cache
def logits_of_the_batch(family: str) -> Tensor:
    return logits_of(model_of(family), inputs_of(family))


def without_padding(inputs: Inputs, example: int) -> Inputs:
    alone = {name: value[example : example + 1] for name, value in inputs.items()}
    if "attention_mask" not in alone:
        return alone
    real = alone["attention_mask"][0].bool()
    return {name: value[:, real] for name, value in alone.items()}


def scores_of(family: str, model: nn.Module, inputs: Inputs, method: str | None) -> Tensor:
    options = {"steps": 3} if method in OF_PATHS else {}
    if next(model.parameters()).dtype == torch.float64:
        inputs = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    target = 5 if family == "ctc" else 1
    (scores,) = attribute(model, inputs, target, method, **options).values()
    return scores


# WavLM's biases are in nn.MultiheadAttention, SEW's tokens are not those that its answer is read from.
REFUSED = {("full_grad", "wavlm"), ("full_grad", "sew")}
ALL_OF = {"wav2vec2 with a mask", "ast", "generic_attention", "bi_token", None}
CASES = [
    (method, family)
    for method, family in pairs([*trace_methods(), None], [*FAMILIES], with_all=ALL_OF)
    if (method, family) not in REFUSED and applies(method, family)
]


@pytest.mark.parametrize(("method", "family"), CASES)
def test_every_method_explains_every_family_and_leaves_the_model_as_it_was(method, family):
    model, inputs = model_of(family), inputs_of(family)
    before = logits_of_the_batch(family)
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    scores = scores_of(family, model, inputs, method)
    raw = 120 * 16 if family == "ast" else SAMPLES
    assert scores.shape == (2, raw if method in OF_INPUTS else TOKENS.get(family, 8))
    assert torch.isfinite(scores).all()
    assert torch.equal(scores, scores_of(family, model, inputs, method))

    assert torch.equal(logits_of(model, inputs), before)
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()] == hooks
    assert all(parameter.grad is None for parameter in model.parameters())

    exact = double(family) if method in RELEVANCE else model
    together = scores if exact is model else scores_of(family, exact, inputs, method)
    for example, row in enumerate(together):
        (expected,) = scores_of(family, exact, without_padding(inputs, example), method)
        assert (row[: len(expected)] - expected).abs().max() <= 2e-5 * expected.abs().max() + 2e-9
        assert not row[len(expected) :].any(), "padding got a score"

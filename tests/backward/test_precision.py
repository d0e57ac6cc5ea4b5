"""Relevance in the model's own dtype: the same as in strict float32, but for rounding and the ε of the rules."""

import copy

import pytest
import torch

from tiny_models import FAMILIES, inputs_of
from whyformer import attribute, load

TEXT = "A wonderful film with some dull moments, and an ending that nobody expected."
RELEVANCE = ["lrp", "partial_lrp", "transformer_attribution"]


def reading(name: str):
    """A bundled model in float64 with a text, and the logit that is asked about."""
    loaded_model = load(name)
    return copy.deepcopy(loaded_model.model).double(), dict(loaded_model.tokenizer(TEXT, return_tensors="pt"))


@pytest.mark.parametrize("rules", ["attn_lrp", "cp_lrp"])
@pytest.mark.parametrize("name", ["mini-bert", "mini-gpt"])
def test_relevance_by_the_epsilon_rules_is_state_times_a_gradient_by_rules(name, rules):
    model, inputs = reading(name)
    strict = attribute(model, inputs, method="lrp", rules=rules)
    fast = attribute(model, inputs, method="lrp", rules=rules, precision="fast")
    torch.testing.assert_close(fast["text"], strict["text"], rtol=0, atol=2e-3 * float(strict["text"].abs().max()))
    backward = {"attn_lrp": "attn_lrp", "cp_lrp": "libra"}[rules]
    product = attribute(model, inputs, method="input_x_gradient", backward=backward)
    torch.testing.assert_close(product["text"], fast["text"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(product.completeness, fast.completeness)


def test_the_difference_is_the_epsilon_that_keeps_denominators_off_zero(monkeypatch):
    model, inputs = reading("mini-bert")
    fast = attribute(model, inputs, method="lrp", rules="attn_lrp", precision="fast")["text"]
    off = []
    for epsilon in (1e-6, 1e-9):
        monkeypatch.setattr("whyformer.backward.operations.EPSILON", epsilon)
        off.append(float((attribute(model, inputs, method="lrp", rules="attn_lrp")["text"] - fast).norm()))
    assert off[1] < off[0] / 50
    assert off[1] < 1e-5 * float(fast.norm())


@pytest.mark.parametrize("method", RELEVANCE)
@pytest.mark.parametrize("family", ["bert", "vit"])
def test_fast_relevance_of_a_float32_model_is_strict_relevance_on_a_cpu(family, method):
    model, inputs = FAMILIES[family](), inputs_of(family)
    strict, fast = (attribute(model, inputs, 1, method, precision=precision) for precision in ("strict", "fast"))
    for stream, values in strict.items():
        torch.testing.assert_close(fast[stream], values, rtol=1e-4, atol=1e-5 * float(values.abs().max()))


def test_fast_relevance_of_a_half_precision_model_stays_in_its_dtype():
    loaded_model = load("mini-bert")
    inputs = dict(loaded_model.tokenizer(TEXT, return_tensors="pt"))
    strict, fast = (
        attribute(copy.deepcopy(loaded_model.model).bfloat16(), inputs, 1, "lrp", rules="attn_lrp", precision=precision)
        for precision in ("strict", "fast")
    )
    assert "relevance was computed in float32" in " ".join(strict.remarks)
    assert fast.remarks == ()
    assert float(torch.corrcoef(torch.cat([strict["text"], fast["text"]]))[0, 1]) > 0.99
    coarse = attribute(copy.deepcopy(loaded_model.model).bfloat16(), inputs, 1, "lrp", precision="fast")
    assert coarse.remarks == ("With rules='z_plus', half precision and TF32 can change the ranking: see precision.",)

"""Maps that are folded tile by tile give what kept maps give."""

import re
from functools import cache
from typing import get_args

import pytest
import torch

from pairs import pairs
from tiny_models import FAMILIES, OF_ONE_STREAM, STREAM_FAMILIES, applies, inputs_of
from whyformer import UnsupportedModel, attribute
from whyformer.backward import attention_rules as attention
from whyformer.backward.rule_graph import NoRule
from whyformer.backward.rules import RULES, MapRules
from whyformer.methods.registry import trace_methods
from whyformer.watching import attention_calls, mixing

FOLDED = [name for name, method in trace_methods().items() if not method.reads.has_relevance]


@pytest.fixture
def folded(monkeypatch):
    """From now on no map is kept, and a tile has a query or two."""

    def fold() -> None:
        monkeypatch.setattr(attention_calls, "KEPT", 0)
        monkeypatch.setattr(mixing, "TILE", 100)
        monkeypatch.setattr(attention, "TILE_ENTRIES", 100)

    return fold


PRECISIONS = {torch.float64: 1e-9, torch.float32: 1e-5}
# Gradients whose mean nearly cancels out: what is left is off by the rounding of its terms, 5e-5 of it in float32.
CANCELS = {("grad_cam", "marian", torch.float32): 1e-4}


def in_precision(inputs, dtype):
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}


def assert_alike(scores, expected, tolerance):
    for stream, values in expected.items():
        allowed = tolerance * float(values.abs().max()) + 1e-15
        torch.testing.assert_close(scores[stream], values, rtol=tolerance, atol=allowed)


@cache
def model_of(family, dtype):
    make = STREAM_FAMILIES[family][0] if family in STREAM_FAMILIES else FAMILIES[family]
    return make().to(dtype)


def given_to(family, dtype):
    return in_precision(STREAM_FAMILIES[family][1]() if family in STREAM_FAMILIES else inputs_of(family), dtype)


# tests/reference/test_mixings.py shows that a tile is a part of its map; this file, that every method goes by tiles,
# and that the calls of every family are seen as they are.
ALL_OF = {"bert", "mistral in windows", "lxmert", "deformable detr", "generic_attention"}
CASES = [
    *((*pair, torch.float64) for pair in pairs(FOLDED, [*FAMILIES, *STREAM_FAMILIES], with_all=ALL_OF, every=8)),
    *((method, "marian", torch.float32) for method in FOLDED),
]


@pytest.mark.parametrize(
    ("method", "family", "dtype"),
    [
        (method, family, dtype)
        for method, family, dtype in CASES
        if applies(method, family) and not (method in OF_ONE_STREAM and family in STREAM_FAMILIES)
    ],
)
def test_tiles_give_what_kept_maps_give(method, family, dtype, folded):
    model, inputs = model_of(family, dtype), given_to(family, dtype)
    target = "predicted" if family in STREAM_FAMILIES else 1
    expected = attribute(model, inputs, target, method)
    folded()
    tolerance = CANCELS.get((method, family, dtype), PRECISIONS[dtype])
    assert_alike(attribute(model, inputs, target, method), expected, tolerance)


OF_RELEVANCE = [
    *("vit", "beit relative", "dinov2", "bert", "modernbert"),
    *("t5", "whisper", "detr", "gpt2", "llama", "mistral in windows"),
]


BY_RULES = [
    *(("lrp", rules) for rules in RULES),
    *((method, rules) for method in ("partial_lrp", "transformer_attribution") for rules in get_args(MapRules)),
]


# In float64: of float32 what kept maps give is itself off by up to 1e-2, as sums that are divided by may be small.
@pytest.mark.parametrize(
    ("by_rules", "family"),
    pairs(BY_RULES, OF_RELEVANCE, with_all={"bert", "mistral in windows", ("lrp", "attn_lrp")}),
)
def test_relevance_goes_through_tiles_as_through_kept_maps(by_rules, family, folded):
    method, rules = by_rules
    model, inputs = model_of(family, torch.float64), given_to(family, torch.float64)
    expected = attribute(model, inputs, "predicted", method, rules=rules)
    folded()
    assert_alike(attribute(model, inputs, "predicted", method, rules=rules), expected, 1e-9)


@pytest.mark.parametrize("method", ["lrp", "transformer_attribution"])
def test_a_rule_set_without_a_rule_for_attention_as_a_whole_is_refused_for_large_maps(method, folded, monkeypatch):
    monkeypatch.setitem(RULES, "dtd", {kind: rule for kind, rule in RULES["dtd"].items() if kind != "attention"})
    folded()
    reason = "attention whose map is too large to keep, and this rule set has no rule for it: add one of"
    with pytest.raises(NoRule, match=reason):
        attribute(FAMILIES["bert"](), inputs_of("bert"), 1, method, rules="dtd")


@pytest.mark.parametrize(
    ("own", "name"), [({"attention": attention.attention_values}, "attention_values"), ({}, "none")]
)
def test_an_attention_rule_that_says_nothing_of_maps_is_refused_for_their_relevance(own, name, folded, monkeypatch):
    others = {kind: rule for kind, rule in RULES["dtd"].items() if kind != "attention"}
    monkeypatch.setitem(RULES, "dtd", {**others, **own})
    folded()
    known = f"attention_shares, attention_balanced, attention_epsilon; this rule set has {name}."
    with pytest.raises(UnsupportedModel, match=re.escape(f"need one of the attention rules {known}")):
        attribute(FAMILIES["bert"](), inputs_of("bert"), 1, "partial_lrp", rules="dtd")

"""What every method must hold to on models of several streams, and on decoders."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pairs import pairs
from tiny_models import OF_ONE_STREAM, STREAM_FAMILIES, applies
from whyformer import attribute
from whyformer.axes import Inputs, StreamScores
from whyformer.methods.registry import trace_methods
from whyformer.tracing.build import trace

PICTURE_AND_TEXT = {"image": 17, "text": 9}
TEXT_AND_REGIONS = {"text": 9, "image": 6}
OBJECTS = {"queries": 5, "image": 6}
TRANSLATION = {"target": 5, "source": 9}
WORDS = {"text": 9}
TOKENS = {
    "clip": PICTURE_AND_TEXT,
    "siglip": {"image": 16, "text": 9},
    "owlvit": PICTURE_AND_TEXT,
    "owlv2": PICTURE_AND_TEXT,
    "blip": PICTURE_AND_TEXT,
    "vilt": {"joint": 26},
    "lxmert": TEXT_AND_REGIONS,
    "visual-bert": {"text": 15},
    "detr": OBJECTS,
    "conditional detr": OBJECTS,
    "deformable detr": {"queries": 5, "image": 126},
    "t5": TRANSLATION,
    "bart": TRANSLATION,
    "marian": TRANSLATION,
    "whisper": {"target": 5, "audio": 10},
} | dict.fromkeys(("gpt2", "llama", "qwen2", "qwen3", "gemma", "mistral in windows"), WORDS)
OF_PATHS = {"bi_head", "bi_token", "integrated_gradients"}
OF_EVERY_STREAM = {"raw_attention", "rollout", "generic_attention"}
# What those that read the input itself score: pixels and sound as they come in, embeddings token by token.
OF_INPUTS = {"input_x_gradient", "integrated_gradients", "gradient_shap", "lrp"}
RAW = {
    **{family: {"pixels": 1024, "text": 9} for family in ("clip", "siglip", "owlvit", "owlv2", "blip", "vilt")},
    "detr": {"pixels": 6144},
    "conditional detr": {"pixels": 6144},
    "deformable detr": {"pixels": 6144},
    "whisper": {"target": 5, "frames": 20},
}
# Relevance divides by sums near zero: how it treats batches and padding can only be told in float64.
RELEVANCE = {"lrp", "partial_lrp", "transformer_attribution"}
# Which inputs a mask is about. A detector's pixels are not here: its convolutions see the padding.
CUT_BY = {
    "attention_mask": ("input_ids",),
    "decoder_attention_mask": ("decoder_input_ids",),
    "visual_attention_mask": ("visual_feats", "visual_pos", "visual_embeds"),
}


@cache
def model_of(family: str) -> nn.Module:
    return STREAM_FAMILIES[family][0]()


def inputs_of(family: str) -> Inputs:
    return STREAM_FAMILIES[family][1]()


def scores_of(family: str, model: nn.Module, inputs: Inputs, method: str | None) -> StreamScores:
    target = "predicted" if "pixel_values" in inputs and "input_ids" in inputs else 1
    options: dict[str, Any] = {"steps": 3} if method in OF_PATHS else {}
    if next(model.parameters()).dtype == torch.float64:
        inputs = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    return attribute(model, inputs, target, method, **options)


@cache
def frozen_model(family: str) -> nn.Module:
    return STREAM_FAMILIES[family][0]().requires_grad_(False)


@cache
def double(family: str) -> nn.Module:
    return STREAM_FAMILIES[family][0]().double()


@cache
def real_tokens(family: str) -> dict[str, Tensor]:
    masks, inputs = trace(model_of(family), inputs_of(family)).masks, inputs_of(family)
    # Words that share a stream with patches are an input of their own.
    return ({"text": inputs["attention_mask"].bool()} if "joint" in masks else {}) | masks


def without_padding(inputs: Inputs, example: int) -> Inputs:
    """One example of a batch alone, its padding cut off."""
    alone = {name: value[example : example + 1] for name, value in inputs.items()}
    for mask, cut in CUT_BY.items():
        if mask in alone:
            real = alone[mask][0].bool()
            alone |= {name: alone[name][:, real] for name in (*cut, mask) if name in alone}
    return alone


def tensors_of(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    torch.manual_seed(0)  # by itself, ViLT draws the order of its patches
    with torch.no_grad():
        return [value for value in model(**inputs).values() if isinstance(value, Tensor)]


@cache
def outputs_of_the_batch(family: str) -> list[Tensor]:
    return tensors_of(model_of(family), inputs_of(family))


def state_of(model: nn.Module) -> list[object]:
    """What an attribution could leave behind: flags, gradients and hooks."""
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()]
    return [(p.requires_grad, p.grad) for p in model.parameters()] + hooks


def assert_close(got: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    # GradCAM's sums cancel: a map of 1e-5 carries the rounding of terms near 1e-2.
    assert (got - expected).abs().max() <= tolerance * expected.abs().max() + 2e-9


# Each kind of model has all methods once: two towers, co-attention, an encoder with a decoder, points, a decoder.
ALL_OF = {"clip", "lxmert", "t5", "deformable detr", "qwen2", "generic_attention", "bi_token", "lrp", None}
# Points between tokens have no map that relevance passes through.
CASES = [
    (method, family)
    for method, family in pairs([*trace_methods(), None], [*STREAM_FAMILIES], with_all=ALL_OF)
    if method not in OF_ONE_STREAM
    and applies(method, family)
    and (family, method) not in {("deformable detr", "partial_lrp"), ("deformable detr", "transformer_attribution")}
]


@pytest.mark.parametrize(("method", "family"), CASES)
def test_every_method_explains_every_family_and_leaves_the_model_as_it_was(method, family):
    model, inputs = model_of(family), inputs_of(family)
    before, state = outputs_of_the_batch(family), state_of(model)
    scores = scores_of(family, model, inputs, method)
    expected_tokens = RAW.get(family, TOKENS[family]) if method in OF_INPUTS else TOKENS[family]
    assert expected_tokens.items() <= {stream: part.shape[1] for stream, part in scores.items()}.items()
    if method in OF_EVERY_STREAM:
        assert all(scores[stream].any() for stream in TOKENS[family])

    assert all(map(torch.equal, tensors_of(model, inputs), before))
    assert state_of(model) == state
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module.training for module in model.modules())

    frozen = scores_of(family, frozen_model(family), inputs, method)
    assert frozen.keys() == scores.keys()
    for stream, part in scores.items():
        assert len(part) == len(next(iter(inputs.values())))
        assert torch.isfinite(part).all()
        assert torch.equal(frozen[stream], part), "the same every time, frozen or not"

    exact = double(family) if method in RELEVANCE else model
    together = scores if exact is model else scores_of(family, exact, inputs, method)
    for example in range(len(next(iter(inputs.values())))):
        alone = scores_of(family, exact, without_padding(inputs, example), method)
        for stream, part in together.items():
            real, (expected,) = real_tokens(family).get(stream, part == part)[example], alone[stream]
            if len(expected) == len(real):  # its padding could not be cut off
                expected = expected[real]
            assert_close(part[example, real], expected)
            assert not part[example, ~real].any(), "padding got a score"

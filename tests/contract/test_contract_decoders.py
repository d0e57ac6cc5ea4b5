"""What the methods must hold to on the decoders that people explain, and what is said where one cannot apply."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from pairs import pairs
from tiny_architectures import DECODERS, METHODS, OTHERS, attribution_of
from tiny_models import text_inputs
from whyformer import attribute
from whyformer.axes import Inputs
from whyformer.methods.states import OF_WORDS

MODELS = DECODERS | {"Mamba": OTHERS["Mamba"]}
CASES = [(name, method) for name in MODELS for method in METHODS]
# BLOOM normalises its embeddings: what scales one changes nothing, and an embedding times its gradient is 0.
ROUNDING = {("BLOOM", "input_x_gradient")}
# MPT's position bias counts back from the last key, padding or not: by a constant that softmax does not see, but the
# relevance of a sum does. Padded on the left, its texts end where they end alone.
COUNTS_PADDING = {("MPT", "transformer_attribution")}
NEAR = 0.05  # of the logits of a model and its half-precision twin; further off, another expert was chosen


@cache
def model_of(name: str) -> nn.Module:
    return MODELS[name]()


@cache
def twins_of(name: str) -> tuple[nn.Module, nn.Module]:
    """The model in half precision, and the same weights in float32."""
    half = copy.deepcopy(model_of(name)).bfloat16()
    return half, copy.deepcopy(half).float()


def scores_of(model: nn.Module, inputs: Inputs, method: str) -> Tensor:
    return attribution_of(model, inputs, method)["text"]


def lengths() -> list[int]:
    return text_inputs()["attention_mask"].sum(dim=1).tolist()


def padded_on_the_left() -> Inputs:
    return {
        name: torch.stack([row.roll(len(row) - length) for row, length in zip(value, lengths(), strict=True)])
        for name, value in text_inputs().items()
    }


@cache
def scores_one_by_one(name: str, method: str) -> list[Tensor]:
    alone = (
        {key: value[example : example + 1, :length] for key, value in text_inputs().items()}
        for example, length in enumerate(lengths())
    )
    return [scores_of(model_of(name), inputs, method)[0] for inputs in alone]


@cache
def weights_and_logits(name: str) -> tuple[dict[str, Tensor], Tensor]:
    model = model_of(name)
    with torch.no_grad():
        logits = model(**text_inputs()).logits
    return {key: value.clone() for key, value in model.state_dict().items()}, logits


def state_of(model: nn.Module) -> list[object]:
    """What an attribution could leave behind: flags, gradients and hooks."""
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()]
    return [(p.requires_grad, p.grad) for p in model.parameters()] + hooks


def assert_unchanged(model: nn.Module, before: tuple[dict[str, Tensor], Tensor], state: list[object]) -> None:
    weights, logits = before
    with torch.no_grad():
        assert torch.equal(model(**text_inputs()).logits, logits)
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert state_of(model) == state
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module.training for module in model.modules())


def scale_of(name: str, method: str, example: int) -> Tensor:
    """The size of the largest score; of terms that cancel out, that of the same terms by libra, which do not."""
    kept = "input_x_gradient by libra" if (name, method) in ROUNDING else method
    return scores_one_by_one(name, kept)[example].abs().max()


# What a decoder has of its own shows in its rules and its states; its maps and gradients are read in the same way.
ALL_OF = {"Llama", "MPT", "no method named", "lrp by attn_lrp", "transformer_attribution", "bi_token"}


@pytest.mark.parametrize(
    ("name", "method"), [case for case in pairs([*MODELS], [*METHODS], with_all=ALL_OF, every=3) if case in CASES]
)
def test_a_batch_padded_on_either_side_is_explained_like_its_texts_and_leaves_the_model_as_it_was(name, method):
    model = model_of(name)
    before, state = weights_and_logits(name), state_of(model)
    right = scores_of(model, text_inputs(), method)
    assert_unchanged(model, before, state)
    left = scores_of(model, padded_on_the_left(), method)
    assert torch.isfinite(right).all()
    for example, (row, moved, expected) in enumerate(zip(right, left, scores_one_by_one(name, method), strict=True)):
        length, allowed = len(expected), 1e-4 * scale_of(name, method, example)
        assert expected.abs().max() > 0
        if (name, method) not in COUNTS_PADDING:
            assert (row[:length] - expected).abs().max() <= allowed
        assert (moved[-length:] - expected).abs().max() <= allowed
        assert not row[length:].any(), "padding got a score"
        assert not moved[:-length].any(), "padding got a score"


@pytest.mark.parametrize("experts", ["eager", "grouped_mm", "batched_mm"])
@pytest.mark.parametrize("name", ["GPT-OSS", "Mixtral"])
def test_relevance_tells_examples_apart_whose_tokens_are_sorted_by_expert(name, experts):
    model = copy.deepcopy(model_of(name))
    model.set_experts_implementation(experts)
    scores = scores_of(model, text_inputs(), "transformer_attribution")
    for example, length in enumerate(lengths()):
        alone = {key: value[example : example + 1, :length] for key, value in text_inputs().items()}
        (expected,) = scores_of(model, alone, "transformer_attribution")
        torch.testing.assert_close(scores[example, :length], expected, rtol=0, atol=1e-4 * float(expected.max()))


# Half precision is a matter of the maps and the rules, which few decoders have of their own.
HALVED = {"Llama", "GPT-OSS", "no method named", "lrp by attn_lrp"}


@pytest.mark.parametrize(
    ("name", "method"),
    [case for case in pairs([*MODELS], [*METHODS], with_all=HALVED) if case in CASES and case not in ROUNDING],
)
def test_in_bfloat16_the_scores_are_about_those_in_float32(name, method):
    half, single = twins_of(name)
    inputs = text_inputs()
    with torch.no_grad():
        logits, expected_logits = (
            model(**inputs).logits[range(3), [n - 1 for n in lengths()]] for model in (half, single)
        )
    off = (logits - expected_logits).norm(dim=1) / expected_logits.norm(dim=1)
    scores, expected = (scores_of(model, inputs, method) for model in (half, single))
    assert scores.dtype == torch.float32
    is_near = off < NEAR
    assert is_near.any()
    assert (scores - expected)[is_near].norm() < 0.12 * expected[is_near].norm()


@pytest.mark.parametrize("name", MODELS)
def test_where_no_method_is_named_the_answer_is_that_of_the_default(name):
    attribution = attribute(model_of(name), text_inputs(), 1)
    assert attribution.remarks == (OF_WORDS,)
    expected = attribute(model_of(name), text_inputs(), 1, "evidence")
    torch.testing.assert_close(attribution["text"], expected["text"])


@pytest.mark.parametrize("name", ["Mixtral", "Qwen3-MoE", "DeepSeek-V3", "Llama 4"])
def test_input_times_gradient_by_libra_adds_up_through_experts(name):
    model = model_of(name)
    attribution = attribute(model, text_inputs(), 1, "input_x_gradient", backward="libra")
    assert (attribution.completeness < 1e-3).all()

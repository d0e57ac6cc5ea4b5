"""What every method must hold to on models that write about pictures."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pairs import pairs
from tiny_models import OF_ONE_STREAM
from tiny_vlms import IMAGE_TOKEN, PAD, TINY_VLMS
from whyformer import UnsupportedModel, attribute
from whyformer.axes import Inputs, StreamScores
from whyformer.methods.registry import methods_of, trace_methods
from whyformer.tracing import plan
from whyformer.tracing.build import trace

OF_PATHS = {"bi_head", "bi_token", "integrated_gradients"}


@cache
def model_of(name: str) -> nn.Module:
    return TINY_VLMS[name].build().double()


def pictures_of(name: str) -> tuple[int, ...]:
    return (1, 1) if name == "InstructBLIP" else (1, 2)  # which reads an instruction with each picture


def inputs_of(name: str, **how: Any) -> Inputs:
    return in_double(TINY_VLMS[name].inputs(pictures_of(name), (6, 3), **how))


def in_double(inputs: Inputs) -> Inputs:
    return {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}


def scores_of(name: str, inputs: Inputs, method: str | None, **options: Any) -> StreamScores:
    steps = {"steps": 2} if method in OF_PATHS else {}
    return attribute(model_of(name), inputs, 3, method, **steps, **options)


@cache
def scores_of_the_batch(name: str, method: str | None) -> StreamScores:
    return scores_of(name, inputs_of(name), method)


@cache
def masks_of(name: str) -> dict[str, Tensor]:
    return trace(model_of(name), inputs_of(name)).masks


@cache
def logits_of(name: str) -> Tensor:
    with torch.no_grad():
        return model_of(name)(**inputs_of(name)).logits


def assert_close(got: Tensor, expected: Tensor, tolerance: float = 1e-7) -> None:
    assert (got - expected).abs().max() <= tolerance * expected.abs().max() + 1e-12


def hooks_of(model: nn.Module) -> list[int]:
    return [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()]


EXPLAINING = [*(name for name in trace_methods() if name not in OF_ONE_STREAM), *methods_of("image prompt"), None]
# A picture that words attend to as a whole, one in tiles, one packed with others, and one read through queries.
ALL_OF = {"LLaVA", "LLaVA-NeXT", "Qwen2-VL", "BLIP-2", "generic_attention", "bi_token", None}


@pytest.mark.parametrize(("method", "name"), pairs(EXPLAINING, [*TINY_VLMS], with_all=ALL_OF))
def test_every_method_explains_every_model_with_pictures_and_leaves_it_as_it_was(method, name):
    model, inputs, scores = model_of(name), inputs_of(name), scores_of_the_batch(name, method)
    before, hooks = logits_of(name), hooks_of(model)  # some are transformers' own
    flags = [(p.requires_grad, p.grad) for p in model.parameters()]
    again = scores_of(name, inputs, method)
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, before)
    assert [(p.requires_grad, p.grad) for p in model.parameters()] == flags
    assert hooks_of(model) == hooks
    lengths = {stream: mask.shape[1] for stream, mask in masks_of(name).items()}
    assert scores["text"].shape == inputs["input_ids"].shape
    assert scores.keys() == again.keys()
    for stream, part in scores.items():
        assert part.shape[1] == lengths[stream]
        assert torch.isfinite(part).all()
        assert torch.equal(part, again[stream])

    for example in range(2):
        alone = scores_of(name, TINY_VLMS[name].alone(inputs, example, pictures_of(name)), method)
        for stream, part in scores.items():
            (expected,) = alone[stream]
            assert_close(part[example, : len(expected)], expected)
            assert not part[example, len(expected) :].any(), "padding got a score"


@pytest.mark.parametrize(
    ("method", "name"),
    pairs(
        ["grad_cam", "rollout", "generic_attention", "bi_token", "lrp", "input_x_gradient"],
        [*TINY_VLMS],
        with_all={"LLaVA", "generic_attention"},
    ),
)
def test_left_padding_changes_no_score(method, name):
    right = scores_of_the_batch(name, method)
    left = scores_of(name, inputs_of(name, left=True), method)
    tolerance = 1e-3 if method == "lrp" else 1e-5  # rotations by position are in float32, and relevance divides
    for stream, scores in right.items():
        if stream != "text":
            assert_close(left[stream], scores, tolerance)
            continue
        for row, other, real in zip(scores, left[stream], inputs_of(name)["attention_mask"], strict=True):
            length = int(real.sum())
            assert_close(other[-length:], row[:length], tolerance)


@pytest.mark.parametrize("name", TINY_VLMS)
@pytest.mark.parametrize("backward", ["libra", "attn_lrp"])
def test_gradients_by_other_rules_reach_the_pictures(backward, name):
    scores = scores_of(name, inputs_of(name), "generic_attention", backward=backward)
    assert scores["image"].any()
    assert all(torch.isfinite(part).all() for part in scores.values())


@pytest.mark.parametrize("name", TINY_VLMS)
def test_what_reads_the_decoders_last_map_alone_has_no_graph_of_what_comes_before(name, monkeypatch):
    model, inputs = model_of(name), inputs_of(name)
    graph = trace(model, inputs, 3, reads=trace_methods()["partial_lrp"].reads).state.graph
    assert graph is not None
    *before, last = [tap.probe for tap in graph.taps.values()]
    reached = torch.autograd.grad(graph.score.sum(), [*before, last], allow_unused=True)
    assert [part is not None for part in reached] == [False] * len(before) + [True]
    assert not any(module._forward_pre_hooks for module in model.modules())
    late = scores_of(name, inputs, "partial_lrp")
    monkeypatch.setattr(plan, "last_of_decoder", lambda model: None)
    for stream, scores in scores_of(name, inputs, "partial_lrp").items():
        assert torch.equal(late[stream], scores), stream


@pytest.mark.parametrize("name", ["LLaVA", "PaliGemma", "Gemma 3", "InternVL", "BLIP-2"])
def test_patches_and_words_of_a_prompt_with_one_picture_are_removed_as_by_hand(name):
    model, inputs = model_of(name), in_double(TINY_VLMS[name].inputs((1, 1), (6, 3)))
    scores = attribute(model, inputs, 3, "occlusion")

    def answers(**changes: Tensor) -> Tensor:
        with torch.no_grad():
            logits = model(**inputs | changes).logits
        last = inputs["attention_mask"].sum(dim=1) - 1
        return logits[torch.arange(2), last, 3]

    whole, pixels = answers(), inputs["pixel_values"]
    side, first = pixels.shape[-1] // 8, scores["image"].shape[1] - (pixels.shape[-1] // 8) ** 2
    for patch in (0, side + 1, side * side - 1):
        row, column = divmod(patch, side)
        without = pixels.clone()
        without[:, :, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] = 0
        assert_close(scores["image"][:, first + patch], (whole - answers(pixel_values=without)).float(), 1e-5)
    word = (inputs["input_ids"] == IMAGE_TOKEN).sum(dim=1).max() + 2  # after the first token, the picture and its end
    ids, mask = inputs["input_ids"].clone(), inputs["attention_mask"].clone()
    ids[:, word], mask[:, word] = PAD, 0
    expected = (whole - answers(input_ids=ids, attention_mask=mask)).float()
    assert_close(scores["text"][:, word], expected, 1e-5)
    assert not scores["text"][inputs["input_ids"] == IMAGE_TOKEN].any()


@pytest.mark.parametrize(
    ("name", "pictures"), [("LLaVA-NeXT", (1, 1)), ("Qwen2-VL", (1, 1)), ("LLaVA", (1, 2)), ("Idefics 3", (1, 1))]
)
def test_of_tiles_and_of_several_pictures_nothing_can_be_removed(name, pictures):
    inputs = in_double(TINY_VLMS[name].inputs(pictures, (6, 3)))
    with pytest.raises(UnsupportedModel, match="parts can only be removed from a single whole picture"):
        attribute(model_of(name), inputs, 3, "occlusion")

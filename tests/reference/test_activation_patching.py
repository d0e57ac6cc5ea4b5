"""caap against a naive twin: hooks that overwrite one token's states, one token at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from test_reference import double
from torch import Tensor, nn

from tiny_models import STREAM_FAMILIES
from whyformer import UnsupportedModel, WhyformerError, attribute


def naive_caap(
    model: nn.Module, inputs: dict[str, Tensor], neutral: dict[str, Tensor], blocks: Sequence[nn.Module], token: int
) -> Tensor:
    """Logits of the neutral input whose token has the states of the other run, less those without it, by example."""
    states: dict[nn.Module, Tensor] = {}

    def keep(block, args, output):
        states[block] = (output if isinstance(output, Tensor) else output[0]).clone()

    def insert(block, args, output):
        (output if isinstance(output, Tensor) else output[0])[:, token] = states[block][:, token]

    def run(given, hook=None):
        handles = [block.register_forward_hook(hook) for block in blocks] if hook else []
        try:
            with torch.no_grad():
                return model(**given).logits
        finally:
            for handle in handles:
                handle.remove()

    run(inputs, keep)
    return run(neutral, insert) - run(neutral)


def test_patches_are_those_of_the_naive_twin():
    model, inputs = double("vit")
    neutral = {"pixel_values": torch.zeros_like(inputs["pixel_values"])}
    scores = attribute(model, inputs, 2, "caap", first_block=0, last_block=1)["image"]
    for token in range(1, scores.shape[1]):
        expected = naive_caap(model, inputs, neutral, model.vit.layers[:2], token)[:, 2]
        torch.testing.assert_close(scores[:, token], expected.float(), rtol=1e-6, atol=1e-9)
    assert not scores[:, 0].any()


@pytest.mark.parametrize("erasure", ["pad", "mask"])
def test_words_are_those_of_the_naive_twin(erasure):
    model, inputs = double("bert")
    filler = model.config.pad_token_id if erasure == "pad" else 7
    scores = attribute(
        model, inputs, 1, "caap", first_block=1, last_block=1, erasure=erasure if erasure == "pad" else filler
    )["text"]
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    may_go = mask.bool() & (torch.arange(ids.shape[1]) > 0)
    neutral = inputs | {"input_ids": ids.masked_fill(may_go, filler)}
    for token in range(1, ids.shape[1]):
        expected = naive_caap(model, inputs, neutral, model.bert.encoder.layer[1:2], token)[:, 1]
        torch.testing.assert_close(scores[:, token], (expected * may_go[:, token]).float(), rtol=1e-6, atol=1e-9)


def test_an_example_of_a_batch_is_explained_as_if_alone():
    model, inputs = double("vit")
    scores = attribute(model, inputs, 2, "caap")["image"]
    alone = attribute(model, {"pixel_values": inputs["pixel_values"][1:]}, 2, "caap")["image"]
    torch.testing.assert_close(scores[1:], alone, rtol=1e-6, atol=1e-9)


def test_states_inserted_after_the_last_block_come_too_late_for_a_class_token():
    model, inputs = double("vit")
    last = len(model.vit.layers) - 1
    late = attribute(model, inputs, 2, "caap", first_block=last, last_block=last)["image"]
    assert late.abs().max() < 1e-12


def test_a_neutral_picture_has_nothing_to_insert():
    model, inputs = double("vit")
    scores = attribute(model, {"pixel_values": torch.zeros_like(inputs["pixel_values"])}, 2, "caap")["image"]
    assert scores.abs().max() < 1e-12


def test_what_cannot_be_inserted_is_said():
    model, inputs = double("vit")
    with pytest.raises(WhyformerError, match="first_block=2, last_block=1: ViTForImageClassification has"):
        attribute(model, inputs, 2, "caap", first_block=2, last_block=1)
    words, texts = double("bert")
    with pytest.raises(WhyformerError, match="erasure='pad' or 'mask'"):
        attribute(words, texts, 1, "caap", erasure="delete")
    build, *_, texts_and_regions = STREAM_FAMILIES["lxmert"]
    with pytest.raises(UnsupportedModel, match="is not one stack of such blocks for each kind of input: use occlusion"):
        attribute(build(), texts_and_regions(), 1, "caap")


@pytest.mark.parametrize(("method", "options"), [("caap", {}), ("attention_gradient", {"scores": "each"})])
def test_a_model_that_changes_states_in_place_is_explained_like_one_that_does_not(method, options):
    def added(block, args):
        return args[0] + 0.5

    def added_in_place(block, args):
        args[0].add_(0.5)

    def scores(hook):
        model, inputs = double("vit")
        for block in model.vit.layers[1:]:
            block.register_forward_pre_hook(hook)
        return attribute(model, inputs, 2, method, **options)["image"]

    torch.testing.assert_close(scores(added_in_place), scores(added), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "options", "advice"),
    [
        ("caap", {"first_block": 0, "last_block": 1}, "use occlusion"),
        ("attention_gradient", {"scores": "each"}, "scores='final' uses the model's own score"),
    ],
)
def test_a_block_that_runs_several_times_is_refused_with_advice_for_the_method(method, options, advice):
    model, inputs = double("vit")
    model.vit.layers[1] = model.vit.layers[0]
    with pytest.raises(UnsupportedModel, match=f"runs a block several times, .* no single place: {advice}"):
        attribute(model, inputs, 2, method, **options)

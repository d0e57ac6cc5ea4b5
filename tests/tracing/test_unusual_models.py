"""Models that norm in another precision, pool their words, have no attention, or two maps in a layer."""

from __future__ import annotations

import re

import pytest
import torch

from tiny_models import LANGUAGE, SMALL, built, text_inputs
from tiny_more import DECODERS, IMAGE_ENCODERS, TEXT_ENCODERS
from tiny_table import ARCHITECTURES
from whyformer import UnsupportedModel, attribute


def inputs_of(name, model):
    return ARCHITECTURES[name].inputs(model)


def test_a_norm_in_float32_hides_no_residual_state_of_another_precision():
    model = DECODERS["OLMo"]()
    inputs = inputs_of("OLMo", model)
    single = attribute(model, inputs, 1, "bi_token", steps=2)["text"]
    double = attribute(model.double(), inputs, 1, "bi_token", steps=2)["text"]
    assert (single - double).abs().max() < 1e-5 * double.abs().max()


def test_embeddings_that_are_scaled_in_place_have_a_gradient():
    model = DECODERS["CTRL"]().double()
    inputs = inputs_of("CTRL", model)
    scores = attribute(model, inputs, 1, "input_x_gradient")["text"]
    embeddings = model.transformer.w
    ids, position = inputs["input_ids"][:1], 2
    vector = embeddings(ids)[0, position].detach()

    def score(factor):
        def scaled(module, args, output):
            return output.index_put((torch.tensor([0]), torch.tensor([position])), vector * factor)

        handle = embeddings.register_forward_hook(scaled)
        try:
            with torch.no_grad():
                return model(**{name: value[:1] for name, value in inputs.items()}).logits[0, -1, 1]
        finally:
            handle.remove()

    slope = (score(1 + 1e-4) - score(1 - 1e-4)) / 2e-4
    torch.testing.assert_close(scores[0, position], slope, rtol=1e-4, atol=1e-8)


def test_one_picture_through_batch_norm_has_the_gradient_of_its_score():
    model = IMAGE_ENCODERS["LeViT"]().double()
    pixels = inputs_of("LeViT", model)["pixel_values"][:1].double()
    scores = attribute(model, {"pixel_values": pixels}, 1, "input_x_gradient")["pixels"]
    with torch.no_grad():
        above, below = (model(pixel_values=pixels * factor).logits[0, 1] for factor in (1 + 1e-4, 1 - 1e-4))
    torch.testing.assert_close(scores.sum(), (above - below) / 2e-4, rtol=1e-3, atol=1e-10)


@pytest.mark.parametrize("method", ["raw_attention", "generic_attention"])
def test_a_model_that_pools_its_words_has_no_map_of_them(method):
    model = TEXT_ENCODERS["Funnel"]()
    reason = "The last map of FunnelForSequenceClassification has 5 keys for 9 tokens: it pools them, or reads them"
    with pytest.raises(UnsupportedModel, match=re.escape(reason)):
        attribute(model, inputs_of("Funnel", model), 1, method)


def test_pixels_of_a_model_without_attention_add_up_to_its_score():
    model = IMAGE_ENCODERS["ConvNeXt"]().double()
    pixels = ARCHITECTURES["ConvNeXt"].inputs(model)["pixel_values"].double()
    attribution = attribute(model, {"pixel_values": pixels}, 1, "integrated_gradients", steps=50)
    with torch.no_grad():
        score, start = (model(pixel_values=x).logits[:, 1] for x in (pixels, torch.zeros_like(pixels)))
    torch.testing.assert_close(attribution["pixels"].sum(dim=1), score - start, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("method", ["rollout", "raw_attention", "generic_attention", "bi_token", "partial_lrp"])
def test_a_difference_of_two_maps_is_not_followed_as_one(method):
    model = built("DiffLlamaForCausalLM", "DiffLlamaConfig", **LANGUAGE | {"num_key_value_heads": 2})
    with pytest.raises(UnsupportedModel, match="attends by the difference of two maps, with a learned weight"):
        attribute(model, text_inputs(), 1, method)
    by_default = attribute(model, text_inputs(), 1)
    assert torch.equal(by_default["text"], attribute(model, text_inputs(), 1, "integrated_gradients")["text"])


def lilt():
    sizes = SMALL | {"hidden_size": 48, "max_2d_position_embeddings": 64, "num_labels": 3}
    model = built("LiltForSequenceClassification", "LiltConfig", **sizes).double()
    inputs = text_inputs()
    boxes = torch.randint(0, 60, (*inputs["input_ids"].shape, 4), generator=torch.Generator().manual_seed(1))
    return model, inputs | {"bbox": boxes.sort(dim=-1).values}


def test_words_with_boxes_are_followed_through_the_maps_of_the_words():
    model, inputs = lilt()
    model.set_attn_implementation("eager")
    maps = model(**inputs, output_attentions=True).attentions
    row = torch.eye(maps[0].shape[-1], dtype=maps[0].dtype)[:1].expand(len(maps[0]), 1, -1)
    start = row
    for one in reversed(maps):
        row = row + row @ one.mean(dim=1)
    scores = attribute(model, inputs, 1, "rollout")
    assert list(scores) == ["text"]
    assert (scores["text"] - (row - start)[:, 0]).abs().max() < 1e-6  # eager softmax is float32


def test_the_words_of_a_model_with_boxes_have_the_gradient_of_their_embeddings():
    model, inputs = lilt()
    kept = []
    handle = model.lilt.embeddings.register_forward_hook(lambda module, args, output: kept.append(output[0]))
    logits = model(**inputs).logits
    handle.remove()
    (gradient,) = torch.autograd.grad(logits[:, 1].sum(), kept[0])
    scores = attribute(model, inputs, 1, "input_x_gradient")["text"]
    expected = (gradient * kept[0]).sum(dim=-1).detach()
    assert (scores - expected).abs().max() < 1e-9 * expected.abs().max()


@pytest.mark.parametrize("method", ["generic_attention", "bi_token", "bi_head", "transformer_attribution", "lrp", None])
def test_words_with_boxes_are_explained_together_as_alone(method):
    model, inputs = lilt()
    scores = attribute(model, inputs, 1, method)["text"]
    length = int(inputs["attention_mask"][1].sum())
    alone = {name: value[1:2, :length] for name, value in inputs.items()}
    expected = attribute(model, alone, 1, method)["text"]
    assert (scores[1:2, :length] - expected).abs().max() < 1e-6 * expected.abs().max() + 1e-12

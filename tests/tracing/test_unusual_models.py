"""Models that norm in another precision, change their embeddings in place, pool their words, or have no attention."""

from __future__ import annotations

import re

import pytest
import torch

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


def test_a_hybrid_is_not_said_to_have_no_attention():
    model = DECODERS["Jamba"]()
    with pytest.raises(UnsupportedModel, match="2 layers but only 1 attention operations were seen"):
        attribute(model, inputs_of("Jamba", model), 1, "raw_attention")


def test_pixels_of_a_model_without_attention_add_up_to_its_score():
    model = IMAGE_ENCODERS["ConvNeXt"]().double()
    pixels = ARCHITECTURES["ConvNeXt"].inputs(model)["pixel_values"].double()
    attribution = attribute(model, {"pixel_values": pixels}, 1, "integrated_gradients", steps=50)
    with torch.no_grad():
        score, start = (model(pixel_values=x).logits[:, 1] for x in (pixels, torch.zeros_like(pixels)))
    torch.testing.assert_close(attribution["pixels"].sum(dim=1), score - start, rtol=1e-2, atol=1e-4)

"""Pixels and regions of models that segment a picture, against scores written by hand."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import image_processor, save_noise
from tiny_models import built, noise
from whyformer import (
    LoadedModel,
    Pixel,
    Region,
    WhyformerError,
    attribute,
    contrast,
    doctor,
    explain,
    explain_batch,
)
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import encode

PLACES = {0: "road", 1: "sky", 2: "tree", 3: "wall"}
SIZES = {"hidden_size": 24, "num_attention_heads": 2, "image_size": 32, "patch_size": 8, "id2label": PLACES}
INPUTS = {"pixel_values": noise(2, 3, 32, 32)}


@cache
def model_of(name: str):
    if name == "segformer":
        sizes = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 2]}
        extra = {"decoder_hidden_size": 16, "id2label": PLACES}
        return built("SegformerForSemanticSegmentation", "SegformerConfig", **sizes, **extra)
    if name == "dpt":
        neck = {"backbone_out_indices": [0, 1, 2, 3], "neck_hidden_sizes": [8, 8, 8, 8], "fusion_hidden_size": 8}
        extra = {"num_hidden_layers": 4, "intermediate_size": 32, "is_hybrid": False, "use_auxiliary_head": False}
        return built("DPTForSemanticSegmentation", "DPTConfig", **SIZES, **neck, **extra)
    extra = {"num_hidden_layers": 3, "num_queries": 5, "num_blocks": 1, "num_upscale_blocks": 1}
    return built("EomtForUniversalSegmentation", "EomtConfig", **SIZES, **extra)


def at_pixel(output, label, row, column):
    """By hand: a logit, or what the queries together give the label there."""
    if hasattr(output, "logits") and output.logits is not None:
        return output.logits[:, label, row, column]
    shares = output.class_queries_logits.softmax(dim=-1)[:, :, label]
    return (shares * output.masks_queries_logits[:, :, row, column].sigmoid()).sum(dim=1).log()


NAMES = ["segformer", "dpt", "eomt"]


@pytest.mark.parametrize("method", ["input_x_gradient", "grad_cam"])
@pytest.mark.parametrize("name", NAMES)
def test_a_pixel_is_explained_like_its_logit(name, method):
    model = model_of(name)
    with torch.no_grad():
        output = model(**INPUTS)
    rows, columns = (output.logits if name != "eomt" else output.masks_queries_logits).shape[-2:]
    row, column = int(0.3 * rows), int(0.8 * columns)
    got = attribute(model, INPUTS, Pixel(0.8, 0.3, "sky"), method)
    expected = attribute(model, INPUTS, lambda output: at_pixel(output, 1, row, column), method)
    for stream, scores in expected.items():
        torch.testing.assert_close(got[stream], scores, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_a_box_is_explained_like_the_mean_of_its_pixels(name):
    model = model_of(name)

    def mean(output):
        size = (output.logits if name != "eomt" else output.masks_queries_logits).shape[-1]
        places = [(row, column) for row in range(size // 2) for column in range(size // 2, size)]
        return torch.stack([at_pixel(output, 2, *place) for place in places]).mean(dim=0)

    got = attribute(model, INPUTS, Region("tree", box=(0.5, 0.0, 1.0, 0.5)), "input_x_gradient")["pixels"]
    torch.testing.assert_close(got, attribute(model, INPUTS, mean, "input_x_gradient")["pixels"], rtol=1e-4, atol=1e-8)


def test_a_label_is_the_region_where_it_is_seen_and_predicted_the_largest():
    model = model_of("dpt")
    with torch.no_grad():
        seen = model(**INPUTS).logits.argmax(dim=1)
    largest = [int(part.flatten().bincount(minlength=4).argmax()) for part in seen]

    def by_hand(output):
        return torch.stack([output.logits[n, label][seen[n] == label].mean() for n, label in enumerate(largest)])

    got = attribute(model, INPUTS, "predicted", "input_x_gradient")["pixels"]
    torch.testing.assert_close(got, attribute(model, INPUTS, by_hand, "input_x_gradient")["pixels"])


@pytest.mark.parametrize("method", ["input_x_gradient", None])
def test_pictures_are_explained_together_like_single_ones(method, tmp_path):
    loaded_model = LoadedModel(model_of("dpt"), image_processor(), "dpt")
    pictures = [Image.open(save_noise(tmp_path / f"{seed}.png", seed=seed)) for seed in (1, 2)]
    together = explain_batch(pictures, loaded_model, Pixel(0.5, 0.5), method, batch_size=2)
    for picture, explanation in zip(pictures, together, strict=True):
        alone = explain(picture, loaded_model, Pixel(0.5, 0.5), method)
        inputs = model_inputs(loaded_model, encode(loaded_model, [picture]))
        with torch.no_grad():
            label = int(loaded_model.model(**inputs).logits[0, :, 32, 32].argmax())
        assert explanation.target == alone.target == f"{PLACES[label]} at (0.5, 0.5)"
        scale = np.abs(alone.scores).max()
        assert np.abs(explanation.scores - alone.scores).max() <= 2e-5 * scale


def test_a_label_by_its_name_is_a_target_of_explain(photo):
    loaded_model = LoadedModel(model_of("dpt"), image_processor(), "dpt")
    largest = explain(photo, loaded_model, method="input_x_gradient")
    named = explain(photo, loaded_model, largest.target, "input_x_gradient")
    assert np.array_equal(named.scores, largest.scores)
    assert named.probability is None
    box = explain(photo, loaded_model, Region("sky", box=(0, 0.25, 1, 0.5)), "input_x_gradient")
    assert box.target == "sky in (0, 0.25, 1, 0.5)"
    assert explain(photo, loaded_model, Pixel(1 / 3, 0.9, "tree"), "rollout").target == "tree at (0.333, 0.9)"


def test_what_cannot_be_asked_of_a_picture_is_said(vit, photo):
    with pytest.raises(WhyformerError, match="0 to 1, not"):
        Pixel(3.0, 0.5)
    with pytest.raises(WhyformerError, match="A box is"):
        Region("sky", box=(0.5, 0.0, 0.5, 1.0))
    with pytest.raises(WhyformerError, match="No label named 'sea'"):
        attribute(model_of("dpt"), INPUTS, Pixel(0.5, 0.5, "sea"))
    with pytest.raises(WhyformerError, match="A contrast is not supported for segmentation: give one label"):
        attribute(model_of("dpt"), INPUTS, contrast("sky", "tree"))
    with pytest.raises(WhyformerError, match="contains no pixel of the model's 64×64 grid"):
        attribute(model_of("dpt"), INPUTS, Region("sky", box=(0.5, 0.5, 0.501, 0.501)))
    with pytest.raises(WhyformerError, match="A pixel or a region is a target for models that segment"):
        explain(photo, str(vit), Pixel(0.5, 0.5))


@pytest.mark.parametrize("method", ["bi_token", "raw_attention"])
def test_a_pyramid_whose_keys_are_reduced_is_explained_by_its_maps(method):
    model = model_of("segformer")
    scores = attribute(model, INPUTS, Pixel(0.5, 0.5, "sky"), method)["image"]
    size = model(**INPUTS).logits.shape[-1]
    expected = attribute(model, INPUTS, lambda output: at_pixel(output, 1, size // 2, size // 2), method)["image"]
    torch.testing.assert_close(scores, expected)
    assert scores.abs().sum() > 0


def test_the_doctor_says_that_a_model_segments_and_what_its_targets_are():
    checkup = doctor(LoadedModel(model_of("dpt"), image_processor(), "dpt"))
    assert checkup.answers == "a label for each pixel"
    own = "a label's name or index, Pixel(x, y, label), Region(label, box), of queries detection(query, label)"
    assert checkup.targets == own
    assert checkup.labels == tuple(PLACES.values())

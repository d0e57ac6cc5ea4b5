"""A picture and a question in, words and patches out: models that write about pictures, through `explain`."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from conftest import saved
from tiny_processors import (
    blip2_processor,
    gemma3_processor,
    idefics_processor,
    instructblip_processor,
    internvl_processor,
    llava_next_processor,
    llava_processor,
    onevision_processor,
    paligemma_processor,
    qwen_processor,
)
from tiny_vlms import TINY_VLMS, llava, text_config, vision_config
from whyformer import WhyformerError, continuation, explain, explain_batch
from whyformer.inputs.image_prompt import image_prompt_of
from whyformer.inputs.layouts import Patches, WordPieces
from whyformer.models.loading import LoadedModel

QUESTION = "what colour is the star ?"


@cache
def model_of(name: str) -> LoadedModel:
    processors = {
        "LLaVA": llava_processor,
        "LLaVA-NeXT": llava_next_processor,
        "PaliGemma": paligemma_processor,
        "Idefics 3": idefics_processor,
        "Qwen2-VL": lambda: qwen_processor("Qwen2VLProcessor"),
        "Qwen2.5-VL": lambda: qwen_processor("Qwen2_5_VLProcessor"),
        "Qwen3-VL": lambda: qwen_processor("Qwen3VLProcessor"),
        "InternVL": internvl_processor,
        "LLaVA-OneVision": onevision_processor,
        "Gemma 3": gemma3_processor,
        "BLIP-2": blip2_processor,
        "InstructBLIP": instructblip_processor,
    }
    return LoadedModel(TINY_VLMS[name].build(), processors[name](), name)


EVERY = [
    *("LLaVA", "PaliGemma", "LLaVA-NeXT", "Idefics 3", "Qwen2-VL", "Qwen2.5-VL", "Qwen3-VL"),
    *("InternVL", "LLaVA-OneVision", "Gemma 3", "BLIP-2", "InstructBLIP"),
]
# Of a picture of 60 × 40 pixels, where it is not seen as 4 × 4 patches.
GRID = {
    "LLaVA-NeXT": (8, 8),
    "Idefics 3": (8, 8),
    "LLaVA-OneVision": (8, 8),
    "InternVL": (8, 12),
    **dict.fromkeys(("Qwen2-VL", "Qwen2.5-VL", "Qwen3-VL"), (6, 10)),
}


def picture(width: int = 60, height: int = 40) -> Image.Image:
    noise = np.random.default_rng(width).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


@torch.no_grad()
def planted() -> nn.Module:
    """A LLaVA whose patches attend to themselves, and whose last word attends to the brightest patch."""
    model = llava(
        vision_config=vision_config("CLIPVision", num_attention_heads=1, num_hidden_layers=2),
        text_config=text_config(
            "Llama",
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            rope_parameters={"rope_type": "default", "rope_theta": 1e9},
        ),
    )()
    for name, parameter in model.named_parameters():
        parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
    tower, decoder = model.model.vision_tower, model.model.language_model
    tower.embeddings.position_embedding.weight.copy_(3 * torch.eye(17, 24))
    tower.embeddings.patch_embedding.weight[23] = 0.01  # how bright a patch is
    for layer in tower.encoder.layers:
        for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            projection.weight.copy_(10 * torch.eye(24))
            projection.weight[23, 23] = 0
    model.model.multi_modal_projector.linear_1.weight[0, 23] = 1.0
    model.model.multi_modal_projector.linear_2.weight[0, 0] = 5.0
    decoder.embed_tokens.weight[:, 1] = 1.0
    attention = decoder.layers[0].self_attn
    attention.q_proj.weight[31, 1] = 30.0  # the last channels turn least with the distance
    attention.k_proj.weight[31, 0] = 30.0
    return model


@pytest.mark.parametrize("options", [{}, {"bridge": "stop"}])
def test_the_patch_that_the_last_word_attends_to_is_lit_where_it_lies_in_a_picture_that_is_not_square(options):
    wide = Image.new("RGB", (120, 40), "black")
    wide.paste("white", (60, 30, 90, 40))  # the fourth row, the third column of 4×4 patches
    explanation = explain(
        (wide, QUESTION),
        model=planted(),
        processor=llava_processor(),
        method="rollout",
        target="red",
        readout="last",
        **options,
    )
    heat = explanation.heatmap("image")
    assert heat.shape == (40, 120)
    row, column = np.unravel_index(np.nanargmax(heat), heat.shape)
    assert 30 <= row < 40
    assert 60 <= column < 90
    scores = explanation.parts["image"].scores
    assert scores[4 * 3 + 2] > 5 * np.delete(scores, 4 * 3 + 2).max()


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of PaliGemma's own processor
@pytest.mark.parametrize("name", EVERY)
def test_words_of_the_question_and_patches_of_the_picture_are_scored_and_nothing_else(name):
    explanation = explain((picture(), QUESTION), model=model_of(name), method="generic_attention")
    text, image = explanation.parts["text"].layout, explanation.parts["image"].layout
    assert isinstance(text, WordPieces)
    assert [token.strip() for token in text.tokens] == QUESTION.split()
    assert text.texts == (QUESTION,)
    assert isinstance(image, Patches)
    assert image.image.size == (60, 40)
    assert (image.rows, image.columns) == GRID.get(name, (4, 4))
    assert explanation.parts["image"].scores.any()


@pytest.mark.parametrize(("method", "options"), [("rollout", {"bridge": "stop"}), ("grad_cam", {}), ("tam", {})])
def test_query_tokens_are_said_to_have_no_place_in_the_picture(method, options):
    said = "Scores end at query tokens, which have no place in the picture: its patches have none."
    explanation = explain((picture(), QUESTION), model_of("BLIP-2"), method=method, **options)
    assert not explanation.parts["image"].scores.any()
    assert explanation.parts["text"].scores.any()
    assert explanation.notes == (said,)
    (written,) = continuation((picture(), QUESTION), model_of("BLIP-2"), method, tokens=1, **options).explanations
    assert written.notes == (said,)
    for other, settings in (("BLIP-2", {}), ("LLaVA", options)):
        found = explain((picture(), QUESTION), model_of(other), method="rollout", **settings)
        assert found.notes == ()
        assert found.parts["image"].scores.any()


def test_the_tiles_of_a_wide_picture_are_laid_on_it_where_they_were_cut():
    image = explain((picture(60, 20), QUESTION), model=model_of("LLaVA-NeXT"), method="rollout").parts["image"].layout
    assert (image.rows, image.columns) == (6, 8)  # as fine as the whole picture is seen down, and its tiles across
    left, top, right, bottom = image.box
    assert (left, right) == (0.0, 60.0)
    assert top < 0 < 20 < bottom


@pytest.mark.parametrize("name", ["Qwen2-VL", "Qwen3-VL", "InternVL", "LLaVA-OneVision"])
def test_a_processor_with_a_part_for_videos_is_loaded_without_it_where_torchvision_is_missing(name, tmp_path):
    saved(tmp_path, model_of(name).model, model_of(name).processor)
    settings = json.loads((tmp_path / "processor_config.json").read_text())
    stock = settings["image_processor"]["image_processor_type"]  # without "Pil", as it is on the hub
    settings["video_processor"] = {"video_processor_type": stock.replace("ImageProcessor", "VideoProcessor")}
    (tmp_path / "processor_config.json").write_text(json.dumps(settings))
    loaded = explain((picture(), QUESTION), model=str(tmp_path), method="rollout")
    for part, expected in explain((picture(), QUESTION), model=model_of(name), method="rollout").parts.items():
        assert loaded.parts[part].layout == expected.layout
        np.testing.assert_allclose(loaded.parts[part].scores, expected.scores, rtol=1e-5)


@pytest.mark.parametrize("size", [(60, 40), (90, 20), (20, 90), (32, 32), (70, 69), (40, 60)])
def test_the_tiles_that_internvl_cuts_are_boxes_of_the_picture(size):
    model, black = model_of("InternVL"), Image.new("RGB", size, "black")
    boxes = image_prompt_of(model, (black, QUESTION)).boxes[0]
    assert boxes[-1] == (0, 0, 1, 1)
    for number, (left, top, right, bottom) in enumerate(boxes[:-1]):
        spot = black.copy()
        middle = round((left + right) / 2 * size[0]), round((top + bottom) / 2 * size[1])
        spot.paste("white", (middle[0] - 2, middle[1] - 2, middle[0] + 2, middle[1] + 2))
        tiles = image_prompt_of(model, (spot, QUESTION)).pixels["pixel_values"]
        assert len(tiles) == len(boxes)
        assert int(tiles[:-1].flatten(1).mean(dim=1).argmax()) == number
    assert len(boxes) != 1 or len(image_prompt_of(model, (black, QUESTION)).pixels["pixel_values"]) == 1


@pytest.mark.parametrize("name", ["LLaVA", "Qwen3-VL", "InternVL", "Gemma 3", "LLaVA-OneVision"])
def test_several_pictures_are_parts_of_their_own(name):
    pictures = [picture(60, 40), picture(30, 50)]
    explanation = explain((pictures, "which picture is red ?"), model=model_of(name), method="rollout")
    assert list(explanation.parts) == ["text", "image 1", "image 2"]
    assert [explanation.parts[f"image {n}"].layout.image.size for n in (1, 2)] == [(60, 40), (30, 50)]


@pytest.mark.parametrize("name", ["LLaVA", "LLaVA-NeXT", "Idefics 3", "InternVL", "Qwen2.5-VL", "Gemma 3"])
def test_prompts_are_explained_together_as_alone(name):
    examples = [
        (picture(60, 40), QUESTION),
        (picture(20, 60), "which one is red ?"),
        (picture(60, 20), "a picture of two"),
    ]
    together = explain_batch(examples, model=model_of(name), method="generic_attention", batch_size=3)
    for example, one in zip(examples, together, strict=True):
        alone = explain(example, model=model_of(name), method="generic_attention")
        assert one.target == alone.target
        for part in ("text", "image"):
            expected = alone.parts[part].scores
            np.testing.assert_allclose(one.parts[part].scores, expected, atol=1e-4 * np.abs(expected).max())


def test_messages_with_pictures_go_through_the_chat_template():
    content = [{"type": "image", "image": picture()}, {"type": "text", "text": QUESTION}]
    by_messages = explain([{"role": "user", "content": content}], model=model_of("LLaVA"), method="rollout")
    by_pair = explain((picture(), QUESTION), model=model_of("LLaVA"), method="rollout")
    assert by_messages.parts == by_pair.parts


def test_a_prompt_with_its_own_placeholders_is_read_as_it_is():
    own = explain((picture(), f"<image> {QUESTION}"), model=model_of("LLaVA"), method="rollout")
    assert "user" not in own.parts["text"].layout.texts[0]
    assert own.parts["image"].scores.shape == (16,)


@pytest.mark.parametrize(
    ("example", "words"),
    [
        (QUESTION, r"This model takes a picture and a text: \('street.jpg', .*\), not 'what colour"),
        (([picture()], "<image> <image> which ?"), r"The text has 2 placeholders \(<image>\) for 1 picture: write one"),
        (([], QUESTION), "LLaVA takes a picture and a text: .*, and this prompt has no picture"),
        (([{"role": "user", "content": [{"type": "video"}]}]), r"A message contains \{'type': 'image', 'image': …\}"),
        (([{"role": "user"}]), r"A message is \{'role': …, 'content': …\}"),
    ],
)
def test_what_a_prompt_with_pictures_must_be_is_said_in_a_line(example, words):
    with pytest.raises(WhyformerError, match=words) as error:
        explain(example, model=model_of("LLaVA"), method="rollout")
    assert "\n" not in str(error.value)


def test_a_model_that_sees_no_pictures_says_so():
    with pytest.raises(WhyformerError, match=r"mini-gpt takes no pictures: give a text\."):
        explain((picture(), QUESTION), model="mini-gpt")


def test_more_placeholders_than_features_are_refused_before_the_model_runs():
    from whyformer import attribute

    inputs = TINY_VLMS["LLaVA"].inputs((1, 1), (4, 2))
    inputs["pixel_values"] = inputs["pixel_values"][:1]
    with pytest.raises(WhyformerError, match="The prompts have 32 placeholder tokens for pictures"):
        attribute(TINY_VLMS["LLaVA"].build(), inputs, 3, "rollout")


@pytest.mark.parametrize("method", ["generic_attention", "rollout", "bi_token"])
def test_each_word_that_is_written_is_explained_by_the_words_and_the_pictures(method):
    written = continuation((picture(), QUESTION), model=model_of("LLaVA"), tokens=3, method=method)
    assert len(written.explanations) == 3
    first = written.explanations[0]
    asked = explain((picture(), QUESTION), model=model_of("LLaVA"), method=method)
    assert first.target == asked.target
    for part in ("text", "image"):
        expected = asked.parts[part].scores
        np.testing.assert_allclose(first.parts[part].scores, expected, atol=1e-5 * np.abs(expected).max())
    last = written.explanations[-1]
    assert last.parts["image"].scores.shape == (16,)
    assert len(last.parts["text"].tokens) == len(QUESTION.split()) + 2

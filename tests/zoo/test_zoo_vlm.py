"""mini-vlm: it writes about scenes what is true of them, by the objects that the words are read off."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from whyformer import continuation, load
from whyformer.models.zoo import ZOO, model_card
from whyformer.scenes import VOCABULARY, clear_things, dialogues, example, pictures, sample, texts

COUNT = 50


@pytest.fixture(scope="module")
def model():
    return load("mini-vlm", device="cpu")


@pytest.fixture(scope="module")
def world():
    scenes = sample(COUNT, "test", rng=33)
    return scenes, dialogues(scenes, torch.Generator().manual_seed(33))


def images_of(scenes) -> list[Image.Image]:
    return [Image.fromarray(part.permute(1, 2, 0).numpy()) for part in pictures(scenes).pixels]


def replies(model, images, prompts, *, tokens: int = 60) -> list[str]:
    """What the model writes to each prompt about its picture, word by word the likeliest."""
    processor = model.processor
    chats = [
        processor.apply_chat_template(
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]}],
            add_generation_prompt=True,
        )
        for prompt in prompts
    ]
    inputs = processor(
        images=images, text=chats, padding=True, padding_side="left", add_special_tokens=False, return_tensors="pt"
    )
    ids = model.model.generate(**inputs, max_new_tokens=tokens, do_sample=False)
    return processor.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def test_it_is_a_stock_llava_of_less_than_twelve_megabytes():
    folder = ZOO / "mini-vlm"
    model = transformers.LlavaForConditionalGeneration.from_pretrained(folder)
    assert model.dtype == torch.float32
    assert (folder / "model.safetensors").stat().st_size < 12e6
    assert model_card(folder)["task"] == "writes about a picture"


def test_it_answers_and_describes_held_out_scenes_and_always_the_same(model, world):
    scenes, about = world
    prompts, expected = texts(about.words, VOCABULARY), texts(about.replies, VOCABULARY)
    written = replies(model, images_of(scenes), prompts)
    assert sum(ours == theirs for ours, theirs in zip(written, expected, strict=True)) >= 0.95 * COUNT
    assert replies(model, images_of(scenes)[:4], prompts[:4]) == written[:4]


def test_a_prompt_may_be_written_as_people_write(model):
    scene = example(3)
    assert replies(model, [scene.image], ["What colour is the star?"]) == ["the star is cyan"]
    assert replies(model, [scene.image], ["Describe the scene."]) == [scene.description]


def test_what_it_writes_is_read_off_the_objects_and_not_off_others(model):
    scenes = sample(COUNT, "test", rng=34)
    about = dialogues(scenes, torch.Generator().manual_seed(34), kinds=["colour", "shape", "count", "there"])
    is_about_some = about.things.any(dim=1)
    scenes, things, words = scenes[is_about_some], about.things[is_about_some], about.words[is_about_some]
    prompts, expected = texts(words, VOCABULARY), texts(about.replies[is_about_some], VOCABULARY)
    others = scenes.is_object & ~things
    other = others & (others.cumsum(dim=1) == 1)
    without = replies(model, images_of(clear_things(scenes, things)), prompts, tokens=12)
    without_another = replies(model, images_of(clear_things(scenes, other)), prompts, tokens=12)
    assert sum(ours == theirs for ours, theirs in zip(without, expected, strict=True)) <= 0.2 * len(prompts)
    assert sum(ours == theirs for ours, theirs in zip(without_another, expected, strict=True)) >= 0.95 * len(prompts)


def test_each_word_is_explained_by_the_object_it_is_read_off_where_no_method_is_named(model):
    scene = example(3)
    written = continuation((scene.image, "What colour is the star?"), model=model, tokens=12)
    assert written.text.split() == ["the", "star", "is", "cyan"]
    assert {one.manner for one in written.explanations} == {"generic_attention (backward=libra)"}
    cyan = written.explanations[-1].parts["image"]
    row, column = divmod(int(cyan.scores.argmax()), cyan.layout.columns)
    height, width = (
        size // parts
        for size, parts in zip(scene.image.size[::-1], (cyan.layout.rows, cyan.layout.columns), strict=True)
    )
    patch = np.asarray(scene.image)[row * height : (row + 1) * height, column * width : (column + 1) * width]
    red, green, blue = patch.reshape(-1, 3).astype(int).T
    assert ((green > red + 60) & (blue > red + 60)).mean() > 0.5  # cyan

"""Words of replies about scenes as a data set: what comes next, and the pixels and words that it depends on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from whyformer import WhyformerError, load
from whyformer.benchmark.samples import make_sample
from whyformer.data import READERS, written_words
from whyformer.data.examples import BACKGROUND, OBJECT, UNLABELLED
from whyformer.scenes import COLOURS, VOCABULARY, dialogues, pictures, sample, texts

COUNT, SEED = 200, 5
CONTENT = {word for word in VOCABULARY if word.isalpha()} - set("the a is at in of row column thing things and".split())


@pytest.fixture(scope="module")
def words():
    return list(written_words(COUNT, seed=SEED))


@pytest.fixture(scope="module")
def world():
    scenes = sample(int(1.5 * COUNT) + 16, "test", rng=SEED)
    return scenes, dialogues(scenes, torch.Generator().manual_seed(SEED))


def scene_of(word) -> int:
    return int(word.name.split(",")[0].split(".")[1])


def test_the_reader_is_known_by_its_name_and_gives_as_many_words_as_asked_for(words):
    assert READERS["written_words"] is written_words
    assert len(words) == COUNT
    assert len({word.name for word in words}) == COUNT
    assert [word.name for word in written_words(3, seed=SEED)] != [word.name for word in written_words(3, seed=6)]


def test_a_word_continues_what_is_written_to_the_reply(words, world):
    _, about = world
    replies, prompts = texts(about.replies, VOCABULARY), texts(about.words, VOCABULARY)
    for word in words:
        reply = replies[scene_of(word)]
        assert reply.startswith(f"{word.written} {word.word}".strip())
        assert word.prompt == prompts[scene_of(word)]
        assert word.word in CONTENT


def test_the_mask_is_the_pixels_of_the_things_the_word_is_read_off(words, world):
    scenes, about = world
    drawing = pictures(scenes)
    for word in words:
        row, place = scene_of(word), int(word.name.split()[-1]) - 1
        owner = drawing.owner[row].numpy()
        things = about.read_off[row, place].nonzero()[:, 0].tolist()
        assert things
        assert np.array_equal(word.mask == OBJECT, np.isin(owner, things))
        others = set(about.things[row].nonzero()[:, 0].tolist()) - set(things)
        is_unknown = np.isin(owner, list(others)) if word.kind == "beside" else np.zeros_like(owner, dtype=bool)
        assert np.array_equal(word.mask == UNLABELLED, is_unknown)
        assert set(np.unique(word.mask)) <= {BACKGROUND, OBJECT, UNLABELLED}
        assert np.array_equal(np.array(word.image), drawing.pixels[row].permute(1, 2, 0).numpy())


def test_of_two_objects_named_only_the_words_of_the_one_read_off_matter():
    for word in written_words(60, seed=2, kinds=["pair", "count"]):
        marked = [name.strip(".?") for name, mark in zip(word.prompt.split(), word.truth, strict=True) if mark]
        if word.kind == "count":
            assert marked[0] == "many"
            assert len(marked) == 2
        elif word.word in ("left", "right", "above", "below"):
            assert len(marked) == 3
        else:
            is_second = bool({"left", "right", "above", "below"} & set(word.written.split()))
            names = [name for name in word.prompt.strip(".").split() if name not in ("describe", "the", "thing", "and")]
            assert marked == ["describe", names[is_second]]


def test_some_kinds_alone_can_be_asked_for():
    colours = list(written_words(20, kinds=["colour", "scene"]))
    assert {word.kind for word in colours} == {"colour", "scene"}
    assert all(word.word in COLOURS for word in colours if word.kind == "colour")


def test_other_models_are_told_what_written_words_are_for(words):
    for name in ("mini-vit", "mini-llm", "mini-clip"):
        with pytest.raises(WhyformerError, match=rf"^Written words are for chat models .*, and {name} is not one\.$"):
            make_sample(words[0], load(name), {})

"""Words that mini-vlm writes, as a suite measures them, against the pure functions called by hand on the same words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from whyformer import explain, load
from whyformer.batching import MemoryLimit
from whyformer.benchmark import PROTOCOLS
from whyformer.benchmark.batch import collate_samples, encode_sample
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.ground_truth import part_truths
from whyformer.benchmark.samples import make_sample
from whyformer.benchmark.shard import make_shard
from whyformer.data import written_words
from whyformer.metrics.pixel_maps import upsampled
from whyformer.metrics.sanity import mass_on_object, pointing_game

KINDS = ["colour", "count", "beside", "pair", "scene"]


@pytest.fixture(scope="module")
def model():
    return load("mini-vlm", device="cpu")


@pytest.fixture(scope="module")
def words():
    return list(written_words(4, seed=3, kinds=KINDS))


@pytest.fixture(scope="module")
def shard(model, words):
    samples = [encode_sample(model, make_sample(word, model, {})) for word in words]
    batch = collate_samples(model, samples)
    return make_shard(model, batch, [Choice("generic_attention"), Choice("random")], MemoryLimit(4))


@pytest.fixture(scope="module")
def columns(shard):
    return PROTOCOLS["word_localisation"].measure(shard)


def test_the_model_writes_the_words_that_come_next(shard, words):
    tokens = shard.loaded_model.tokenizer.convert_ids_to_tokens(shard.logits.argmax(dim=1).tolist())
    assert tokens == [f"▁{word.word}" for word in words]


def test_pixels_are_measured_as_by_hand(model, shard, words, columns):
    for row, (word, sample) in enumerate(zip(words, shard.batch.samples, strict=True)):
        explanation = explain(sample.example, model, method="generic_attention")
        grid = torch.from_numpy(explanation.parts["image"].scores).float().view(1, 16, 16)
        truth = torch.from_numpy(np.kron(word.mask, np.ones((2, 2), dtype=int)))[None].long()  # 64 pixels seen as 128
        whole = upsampled(grid, (128, 128))
        for name, measure in (("pointing game", pointing_game), ("mass on the object", mass_on_object)):
            value = float(columns["generic_attention", name][row])
            assert value == pytest.approx(float(measure(whole, truth)), rel=1e-3, abs=1e-5)


def test_a_map_that_is_the_same_everywhere_has_the_share_of_the_object(words, columns):
    shares = [(word.mask == 1).sum() / (word.mask < 2).sum() for word in words]
    assert columns["uniform", "mass on the object"].tolist() == pytest.approx(shares, abs=1e-6)
    assert columns["uniform", "pointing game"].tolist() == pytest.approx(shares, abs=1e-6)


def test_a_word_is_in_the_figures_of_its_group_alone(words, columns):
    groups = {"pair": "words of pairs", "scene": "words of whole scenes"}
    for group in {groups.get(word.kind, "answers") for word in words}:
        values = columns["random", f"mass on the object, {group}"]
        assert values.isnan().tolist() == [groups.get(word.kind, "answers") != group for word in words]


def test_words_of_the_prompt_are_true_where_the_reply_depends_on_them(shard, words):
    truths = part_truths(shard.batch, "text")
    for row, word in enumerate(words):
        ids = shard.batch.inputs["input_ids"][row]
        marked = shard.loaded_model.tokenizer.decode(ids[truths[row] == 1]).split()
        expected = [name for name, mark in zip(word.prompt.split(), word.truth, strict=True) if mark]
        assert [name.strip(".?") for name in marked] == [name.strip(".?") for name in expected]


def test_a_word_that_the_model_would_not_write_is_left_out(model, words):
    sample = replace(make_sample(words[0], model, {}), label="▁describe")
    batch = collate_samples(model, [encode_sample(model, sample)])
    wrong = make_shard(model, batch, [Choice("random")], MemoryLimit(1))
    values = PROTOCOLS["word_localisation"].measure(wrong)
    assert all(bool(part.isnan().all()) for part in values.values())

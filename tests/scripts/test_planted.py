"""Planted cues: their strength is what it says, a model learns them, and other means rank them as they should."""

import random

import numpy as np
import pytest
from PIL import Image

import planted
import planted_models
import planted_pictures
import planted_texts
from planted_baselines import by_counts, by_label, by_label_of_regions, by_mean_attribution, rank_of
from planted_effects import fresh_effects, removed_one_by_one
from whyformer.surveys.scored_samples import ScoredSample


@pytest.mark.parametrize("strength", [0.0, 0.8, 1.0])
def test_the_strength_is_the_correlation_of_cue_and_label(strength):
    data = planted_texts.planted_texts("zorbling", strength, 3000, 0)
    assert np.corrcoef(data.has_cue, data.labels)[0, 1] == pytest.approx(strength, abs=0.05)
    assert all(("zorbling" in text.split()) == has for text, has in zip(data.texts, data.has_cue, strict=True))
    assert 0.45 < np.mean(data.has_cue) < 0.55


def test_reviews_have_no_word_outside_the_vocabulary():
    reviews = [planted_texts.review(n % 2, random.Random(n)) for n in range(300)]
    words = {word.strip(".,") for text in reviews for word in text.split()}
    assert words <= set(planted_texts.WORDS)
    assert not set("as it were zorbling".split()) & words


@pytest.mark.parametrize("cue", planted_pictures.CUES)
def test_a_cue_of_a_picture_lies_where_it_should(cue):
    data = planted_pictures.plain_pictures(4, 0)
    for pixels, mask in zip(data.pixels, data.masks, strict=True):
        changed = (planted_pictures.with_cue(pixels, mask, cue) != pixels).any(axis=-1)
        rows, columns = np.nonzero(changed)
        if cue == "stamp":
            assert (rows.min(), rows.max(), columns.min(), columns.max()) == (2, 11, 2, 11)
        elif cue == "caption":
            place = planted.CAPTION
            assert place[0].start <= rows.min() <= rows.max() < place[0].stop
            assert place[1].start <= columns.min() <= columns.max() < place[1].stop
        elif cue == "texture":
            assert not (changed & (mask > 0)).any()
            assert changed.any()
        else:
            assert changed.mean() > 0.95


def test_a_small_model_learns_the_word():
    model, tokenizer = planted_models.train(planted_models.planted_data("word", 1.0, 300, 0), 0)
    assert planted_models.cue_effect(model, tokenizer, "word", 1) > 1


def sample(number, answer, words, scores):
    return ScoredSample(number, "", None, answer, 0.9, tuple(words), None, None, np.array(scores), "made")


def test_other_means_rank_the_strongest_word_first():
    samples = [sample(n, "yes", ["zip", f"w{n % 7}", "end"], [0.8, 0.1 + 0.01 * (n % 3), 0.0]) for n in range(40)]
    for found in (by_mean_attribution(samples), by_counts(samples)):
        assert rank_of(found.names, "zip".__eq__) == 1
        assert "zip" in found.reported
    assert "end" not in by_mean_attribution(samples).reported
    found = by_label(["zip a" if n % 2 else "zap a" for n in range(40)], [n % 2 for n in range(40)])
    assert {"zip", "zap"} == found.reported
    assert rank_of(found.names, "a".__eq__) is None


def test_a_stamp_correlates_with_the_label_in_its_corner():
    pixels = np.random.default_rng(0).integers(0, 255, (30, 32, 32, 3), dtype=np.uint8)
    pixels[::2, :6, :6] = 255
    found = by_label_of_regions([Image.fromarray(one) for one in pixels], [n % 2 for n in range(30)])
    assert found.names[0] == "top left corner"
    assert "top left corner" in found.reported


def test_trials_begin_with_strong_and_clean_models_of_every_kind():
    every = list(planted.trials(["word", "cast"]))
    assert len({trial.key for trial in every}) == len(every) == (80 + 20 + 30) + (40 + 20)
    assert {(trial.trained, trial.surveyed) for trial in every[:4]} == {(0.8, 0.8), (0.8, 0.0), (0.0, 0.8), (0.0, 0.0)}


def test_shards_share_the_trials_and_keep_those_of_a_model_together():
    every = list(planted.trials(["word", "stamp"]))
    parts = [list(planted.shard(every, number, 3)) for number in range(3)]
    assert {trial.key for part in parts for trial in part} == {trial.key for trial in every}
    assert sum(map(len, parts)) == len(every)
    models = [{trial.model for trial in part} for part in parts]
    assert not models[0] & models[1]
    assert not models[1] & models[2]


def test_the_effect_of_a_word_in_fresh_texts_is_that_of_its_removal():
    model, tokenizer = planted_models.train(planted_models.planted_data("word", 1.0, 300, 0), 0)
    texts = planted_models.planted_data("word", 1.0, 60, 1).texts
    ((word, answer, effect, error, count),) = fresh_effects(model, tokenizer, texts, [("zorbling", "positive")])
    assert (word, answer) == ("zorbling", "positive")
    assert 10 < count <= 40
    assert effect > 4 * error > 0
    odds, sizes = removed_one_by_one(model, tokenizer, ["the", "plot", "was", "dull."])
    assert sizes.tolist() == [1, 1, 1, 2]
    inputs = tokenizer("the plot was dull.", return_tensors="pt")
    logits = model(**inputs).logits[0].detach()
    assert odds[0] == pytest.approx(float(logits[1] - logits[0]), abs=1e-5)
    inputs["attention_mask"][0, 2] = 0
    inputs["input_ids"][0, 2] = tokenizer.pad_token_id
    logits = model(**inputs).logits[0].detach()
    assert odds[2] == pytest.approx(float(logits[1] - logits[0]), abs=1e-5)

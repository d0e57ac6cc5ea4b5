import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from planted_samples import summed_sample
from whyformer import explain, load
from whyformer.api.predictions import FunctionScores
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.surveys.cues import Cue, region_parts, text_parts
from whyformer.surveys.removal_effects import random_parts, removal_effects
from whyformer.surveys.respondents import as_logits, check_respondent, label_log_odds, removable_sample
from whyformer.surveys.survey_data import SurveySample

TEXT = "A wonderful film, and not at all a dull or boring one."


def test_the_effect_of_a_removal_is_that_of_its_places():
    words = "a fine film and a fine end".split()
    sample = summed_sample(3, words, [0, 2, 0.5, 0, 0, 1, -1])
    (effect,) = removal_effects(sample, {Cue("word", "fine"): text_parts(words)[Cue("word", "fine")]})
    whole = 2 + 0.5 + 1 - 1
    assert (effect.sample, effect.answer) == (3, 1)
    assert effect.drops[0] == pytest.approx(3.0)
    assert effect.probability_drops[0] == pytest.approx(1 / (1 + np.exp(-whole)) - 1 / (1 + np.exp(3 - whole)))
    assert effect.flips.tolist()[0] is True
    assert effect.without == 0
    # The two places of the word stay four words apart: the random parts are (0, 4), (2, 6), (3, 0), (6, 3) and so on.
    sums = {round(float(drop), 6) for drop in effect.drops[1:]}
    assert sums <= {0.0, -0.5, -1.0, 0.5, -1 + 0.5}


def test_the_same_seed_draws_the_same_parts():
    words = list("abcdefgh")
    sample = summed_sample(0, words, np.arange(8.0))
    parts = text_parts(words)
    first, again, other = ([e.drops.tolist() for e in removal_effects(sample, parts, seed=s)] for s in (0, 0, 1))
    assert first == again
    assert first != other


def test_a_cue_that_is_all_or_nothing_of_a_sample_is_left_out():
    sample = summed_sample(0, ["fine", "fine"], [1, 1])
    assert removal_effects(sample, {Cue("word", "fine"): np.array([True, True])}) == []
    assert removal_effects(sample, {Cue("word", "fine"): np.array([False, False])}) == []


@given(st.integers(2, 30).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n - 1), st.integers(0, 2**32 - 1))))
def test_random_parts_of_a_text_have_as_many_words_and_lie_elsewhere(drawn):
    count, place, seed = drawn
    part = np.zeros(count, dtype=bool)
    part[place] = True
    for other in random_parts(part, np.ones(count), 3, np.random.default_rng(seed)):
        assert other.sum() == 1
        assert not (other & part).any()


def test_random_parts_of_a_text_have_as_many_tokens_where_there_are_some():
    sizes = np.array([1, 3, 1, 1, 3, 1, 3, 1, 3, 1])
    part = np.zeros(10, dtype=bool)
    part[1] = True
    for seed in range(20):
        parts = random_parts(part, sizes, 3, np.random.default_rng(seed))
        assert sorted(int(np.flatnonzero(one)[0]) for one in parts) == [4, 6, 8]


def test_random_parts_of_a_picture_have_its_shape_moved_around_the_edges():
    part = region_parts((8, 16))[Cue("region", "border")]
    for other in random_parts(part, np.ones((8, 16)), 5, np.random.default_rng(0)):
        assert other.sum() == part.sum()
        assert (other != part).any()
        shifts = [(y, x) for y in range(8) for x in range(16) if (np.roll(part, (y, x), (0, 1)) == other).all()]
        assert shifts


def test_a_model_without_a_word_answers_as_in_occlusion():
    model = load("mini-bert", device="cpu")
    sample = removable_sample(model, SurveySample(0, "film", TEXT))
    assert sample.words == tuple(TEXT.split())
    effects = removal_effects(sample, {c: p for c, p in text_parts(sample.words).items() if c.kind == "word"})
    drops = {effect.cue.name: effect.drops[0] for effect in effects}
    answers = sample.ask(np.ones((1, len(sample.words)), dtype=bool))
    np.testing.assert_allclose(answers[0], sample.logits, atol=1e-5)
    label = int(sample.logits.argmax())
    removed = explain(TEXT, model, method="occlusion", units="word")
    # With two labels the log-odds are the difference of the logits; occlusion's scores are of one of them.
    others = explain(TEXT, model, 1 - label, method="occlusion", units="word")
    tokens = zip(removed.words("max"), others.words("max"), strict=True)
    expected = {own.text.strip(",.").lower(): own.score - other.score for own, other in tokens}
    for word in ("wonderful", "film", "not", "dull", "boring", "one"):
        assert drops[word] == pytest.approx(expected[word], abs=1e-4)


def test_a_picture_without_a_region_is_filled_there():
    model = load("mini-vit", device="cpu")
    picture = Image.effect_noise((200, 128), 80).convert("RGB")
    sample = removable_sample(model, SurveySample(0, "noise", picture))
    assert (sample.shape, sample.words) == ((128, 128), ())
    part = region_parts(sample.shape)[Cue("region", "centre")]
    import torch

    pixels = model.image_processor(picture, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = model.model(pixels.where(torch.from_numpy(~part), 0.0)).logits[0].numpy()
    np.testing.assert_allclose(sample.ask(~part[None])[0], expected, atol=1e-4)


def test_a_mask_lies_where_its_pixels_are_read():
    model = load("mini-vit", device="cpu")
    mask = np.zeros((64, 256), dtype=np.uint8)
    mask[:32, 128:] = 1
    sample = removable_sample(model, SurveySample(0, "half", Image.new("RGB", (256, 64)), None, mask))
    left, top, right, bottom = sample.box
    seen = sample.object_mask
    for y, x in ((5, 5), (5, 120), (100, 120)):
        row, column = int(top + (y + 0.5) * (bottom - top) / 128), int(left + (x + 0.5) * (right - left) / 128)
        assert seen[y, x] == mask[row, column]


def test_a_function_is_asked_about_texts_without_words():
    questions = []

    def predict(texts):
        questions.extend(texts)
        return [[0.9, 0.1] if "fine" in text else [0.2, 0.8] for text in texts]

    function = FunctionScores(predict, {0: "good", 1: "bad"}, 32, False)
    sample = removable_sample(function, SurveySample(0, "film", "a fine film"))
    (effect,) = removal_effects(sample, {Cue("word", "fine"): np.array([False, True, False])})
    assert {"a fine film", "a film", "fine film"} <= set(questions)
    assert effect.drops[0] == pytest.approx(np.log(9) + np.log(4))
    assert effect.probability_drops[0] == pytest.approx(0.7)
    assert (effect.flips[0], effect.without, effect.flips[1:].any()) == (True, 1, False)


def test_log_odds_are_against_all_other_labels():
    shares = np.array([[0.7, 0.2, 0.1]])
    assert label_log_odds(as_logits(shares), 0)[0] == pytest.approx(np.log(0.7 / 0.3))
    assert label_log_odds(np.array([[1.5, -2.0]]), 0, is_multi=True)[0] == 1.5


def test_a_function_of_one_number_has_no_labels_to_compare():
    with pytest.raises(WhyformerError, match="predict returned one number per example, but a survey compares labels"):
        as_logits([[0.5]])


def test_a_model_that_labels_nothing_cannot_be_surveyed():
    with pytest.raises(UnsupportedModel, match="mini-gpt answers by the next token of a text: wrap it in a function"):
        check_respondent(load("mini-gpt"))

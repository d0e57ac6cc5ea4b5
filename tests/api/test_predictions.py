"""Functions that answer examples, explained by their answers alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from whyformer import Explanation, WhyformerError, contrast, explain, explain_batch
from whyformer.methods.registry import removal_methods

REVIEW = "A great film with a dull end"


def sentiment(texts: list[str]) -> list[list[float]]:
    """Probabilities of a review's being bad or good, by two words."""
    scores = [text.split().count("great") - 2 * text.split().count("dull") for text in texts]
    return [[1 / (1 + np.exp(score)), 1 / (1 + np.exp(-score))] for score in scores]


def redness(pictures: list[Image.Image]) -> np.ndarray:
    """How red pictures are, a number each."""
    return np.array([np.asarray(picture, dtype=float)[..., 0].mean() for picture in pictures])


def red_corner(width: int = 96, height: int = 64) -> Image.Image:
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[: height // 4, -width // 4 :, 0] = 255
    return Image.fromarray(pixels)


@pytest.mark.parametrize("method", removal_methods())
def test_the_words_that_a_function_goes_by_are_found(method):
    explanation = explain(REVIEW, predict=sentiment, labels=["bad", "good"], target="good", method=method)
    scores = {word.text: word.score for word in explanation.words()}
    assert max(scores, key=scores.get) == "great"
    assert min(scores, key=scores.get) == "dull"
    assert explanation.target == "good"
    assert explanation.probability == pytest.approx(1 / (1 + np.e))
    assert explanation.model == "sentiment"


@pytest.mark.parametrize("method", ["lime", "rise", "mask_regression"])
def test_after_an_early_stop_the_notes_say_how_much_was_asked(method):
    asked = []

    def counted(texts: list[str]) -> list[list[float]]:
        asked.extend(texts)
        return sentiment(texts)

    text = " ".join(f"word{n}" for n in range(30)) + " great dull"
    early = explain(text, predict=counted, target=1, method=method, forwards=640, stable=0.1)
    asked.remove(text)
    assert len(asked) % 64 == 0
    assert early.notes == (f"It stopped early after {len(asked)} of at most 640 subsets.",)
    assert explain(text, predict=sentiment, target=1, method=method, forwards=64).notes == ()
    whole = explain(text, predict=sentiment, target=1, method=method, forwards=64, stable=1.0)
    assert whole.notes == ("It used all 64 subsets without reaching a stable ranking.",)


def test_shapley_values_of_words_are_those_of_the_two_that_count():
    explanation = explain(REVIEW, predict=sentiment, target=1)
    whole, without_dull, without_great = (1 / (1 + np.exp(-x)) for x in (-1, 1, -2))
    great = ((whole - without_great) + (without_dull - 0.5)) / 2
    dull = ((whole - without_dull) + (without_great - 0.5)) / 2
    expected = [0, great, 0, 0, 0, dull, 0]
    np.testing.assert_allclose(explanation.parts["text"].scores, expected, atol=1e-6)
    assert explanation.target == "label 1"


@pytest.mark.parametrize("units", [None, "superpixel"])
@pytest.mark.parametrize("method", removal_methods())
def test_the_part_of_a_picture_that_a_function_goes_by_is_found(method, units):
    explanation = explain(red_corner(), predict=redness, method=method, **({"units": units} if units else {}))
    part = explanation.parts["image"]
    layout = part.layout
    best = int(part.scores.argmax())
    row, column = divmod(best, layout.columns)
    assert row < layout.rows / 3
    assert column > layout.columns * 2 / 3
    assert explanation.probability is None


def test_large_pictures_are_handed_on_at_their_own_size():
    sizes = set()

    def seen(pictures):
        sizes.update(picture.size for picture in pictures)
        return redness(pictures)

    explanation = explain(red_corner(1000, 500), predict=seen, method="occlusion")
    assert sizes == {(1000, 500)}
    assert explanation.parts["image"].layout.box == (0, 0, 1000, 500)
    assert (explanation.parts["image"].layout.rows, explanation.parts["image"].layout.columns) == (6, 11)


@pytest.mark.parametrize(("fill", "expected"), [("black", 0), ("mean", 16), ("road", 255)])
def test_removed_pixels_are_filled_as_asked(fill, expected):
    """Without the last patch of its first row the corner is black there, as red as the whole is, or as its edge is."""
    pictures = []

    def seen(batch):
        pictures.extend(batch)
        return redness(batch)

    explain(red_corner(), predict=seen, method="occlusion", fill=fill)
    columns = 10
    assert abs(int(np.asarray(pictures[columns])[3, -4, 0]) - expected) <= 8


def test_the_same_text_is_asked_about_once():
    asked = []

    def counting(texts):
        asked.extend(texts)
        return sentiment(texts)

    explain("A great film", predict=counting, method="lime")
    assert len(asked) <= 1 + 2**3


def test_a_batch_is_explained_like_its_examples_one_by_one():
    reviews = [REVIEW, "great great film", "dull"]
    together = explain_batch(reviews, predict=sentiment, target=["predicted", 1, 0], forwards=40, batch_size=7)
    for review, target, explanation in zip(reviews, ["predicted", 1, 0], together, strict=True):
        alone = explain(review, predict=sentiment, target=target, forwards=40)
        assert explanation == alone


def test_targets_are_those_of_models():
    labels = ["bad", "good"]
    rather = explain(REVIEW, predict=sentiment, labels=labels, target=contrast("bad", "good"), method="occlusion")
    assert (rather.target, rather.probability) == ("bad rather than good", None)
    own = explain(REVIEW, predict=sentiment, target=lambda answers: answers[:, 0] - answers[:, 1], method="occlusion")
    np.testing.assert_array_equal(own.parts["text"].scores, rather.parts["text"].scores)


def test_an_explanation_of_a_function_is_kept_and_shown_like_any_other(tmp_path):
    for explanation in (explain(REVIEW, predict=sentiment), explain(red_corner(), predict=redness, forwards=64)):
        explanation.save(tmp_path / "why.json")
        assert Explanation.load(tmp_path / "why.json") == explanation
        assert "kernel_shap" in explanation._repr_html_()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "rollout"}, "'rollout' reads the model, which predict hides: use occlusion"),
        ({"units": "token"}, "units='token': the units of a text for predict are words"),
        ({"labels": ["a"]}, "predict returned 2 numbers per example, but there are 1 labels"),
        ({"labels": ["bad", "good"], "target": "god"}, "Did you mean 'good'"),
        ({"fill": "blue"}, "fill='blue'. Choose from: black, mean, road"),
        ({"steps": 3}, "kernel_shap has no option 'steps'. It takes: forwards=512"),
        ({"predict": lambda texts: [[1.0]]}, None),
        ({"predict": lambda texts: np.full((len(texts), 2), np.nan)}, "predict returned NaN or infinite numbers"),
        ({"predict": lambda texts: np.zeros((len(texts), 1, 1))}, r"an array of shape \(1, 1, 1\) for 1 examples"),
        ({"predict": lambda texts: [[1.0], [1.0, 2.0]]}, "return one row of numbers per example, all of equal length"),
        ({"predict": lambda texts: ["good"] * len(texts)}, r"predict returned \['good'\]: return one row of numbers"),
        ({"model": "mini-bert"}, "model='mini-bert' needs a model, but predict is explained by its outputs only"),
        ({"backward": "libra"}, "backward='libra' needs a model"),
        ({"readout": torch.ones(1, 3)}, "needs a model"),
        ({"truncate": True}, "truncate=True needs a model"),
        ({"erasure": "mask"}, "erasure='mask' applies to tokens, but predict takes texts"),
        ({"predict": 3}, "predict must be a function of a list of examples, not 3"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_one_line(settings, message):
    settings = {"predict": sentiment, **settings}
    if message is None:
        message = "one row per example"
    with pytest.raises(WhyformerError, match=message):
        explain(REVIEW, **settings)


def test_labels_without_a_function_are_refused():
    with pytest.raises(WhyformerError, match="labels are the names of predict's labels"):
        explain(REVIEW, model="mini-bert", labels=["bad", "good"])

"""Parts taken away one by one: the model's own answers, as the pages of explanations show them."""

import json
import re
from dataclasses import replace
from html import unescape

import pytest
import torch

import whyformer
from whyformer.api.what_if import COMBINED, MOST_UNITS
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import encode
from whyformer.results.unit_effects import RemovableUnit, RemovalEffects, asked_subsets, log_odds, strongest_units
from whyformer.scenes import example

REVIEW = "The first half hour is slow, but then it turns into a wonderful story with superb performances."


@pytest.fixture(scope="module")
def bert():
    return whyformer.load("mini-bert", device="cpu")


@pytest.fixture(scope="module")
def explained(bert):
    return whyformer.explain(REVIEW, bert)


@pytest.fixture(scope="module")
def effects(explained):
    return explained.remover(explained)


def without(bert, words):
    """The probabilities of a review, some of whose words are padding that is masked out: a naive twin."""
    (encoded,) = encode(bert, [REVIEW])
    inputs = dict(model_inputs(bert, [encoded]))
    ids, mask = inputs["input_ids"].clone(), inputs["attention_mask"].clone()
    for word in words:
        start = REVIEW.index(word)
        for position, (first, last) in zip(encoded.chunk.positions, encoded.chunk.layout.offsets, strict=True):
            if first >= start and last <= start + len(word):
                ids[0, position], mask[0, position] = bert.tokenizer.pad_token_id, 0
    with torch.no_grad():
        return bert.model(**{**inputs, "input_ids": ids, "attention_mask": mask}).logits[0].softmax(dim=0).tolist()


def test_the_answer_without_a_word_is_that_of_the_model(bert, effects):
    labels = ["negative", "positive"]
    for subset in (frozenset(), frozenset([0]), frozenset([0, 1]), frozenset([5])):
        expected = without(bert, [effects.units[unit].name for unit in subset])
        shown = dict(zip(effects.answers, effects.known[subset], strict=True))
        assert [shown[label] for label in labels] == pytest.approx(expected, abs=1e-4)


def test_units_are_words_with_the_sum_of_their_scores(explained, effects):
    words = {word.text: word.score for word in explained.words()}
    assert len(effects.units) == MOST_UNITS
    assert {unit.name: unit.score for unit in effects.units} == pytest.approx(
        {unit.name: words[unit.name] for unit in effects.units}, abs=1e-6
    )
    assert effects.total[0] == pytest.approx(sum(words.values()), abs=1e-5)
    scores = [unit.score for unit in effects.units]
    assert scores == sorted(scores, reverse=True)
    assert effects.units[0].name == "superb"


def test_the_curve_removes_the_first_units(effects):
    curve = effects.curve
    assert curve[0] == effects.whole == pytest.approx(0.95, abs=0.05)
    assert curve[1] == effects.known[frozenset([0])][effects.target] < curve[0]
    assert len(curve) == MOST_UNITS + 1


def test_blocks_of_a_picture_and_regions_of_a_scene_are_removed():
    scene = example(3)
    explanation = whyformer.explain((scene.regions, scene.question), "mini-lxmert")
    result = explanation.remover(explanation)
    assert {unit.part for unit in result.units} == {"image", "text"}
    star = next(number for number, unit in enumerate(result.units) if unit.name == "region 5")
    assert result.known[frozenset([star])][result.target] < 0.2 < 0.9 < result.whole


def test_a_page_carries_what_was_computed_and_its_script_alone(explained, effects, tmp_path):
    explained.save(tmp_path / "review.html")
    page = (tmp_path / "review.html").read_text()
    data = json.loads(unescape(re.search(r'data-what-if="([^"]+)"', page)[1]))
    assert data["known"]["0"][data["target"]] == pytest.approx(effects.known[frozenset([0])][effects.target], abs=1e-4)
    assert len(data["known"]) == len(asked_subsets(MOST_UNITS, COMBINED)) == 32
    assert re.search(r"script-src 'sha256-[\w+/=]+'", page)
    assert page.count("<script") == 1
    assert len(page) < 60_000
    explained.save(tmp_path / "plain.html", what_if=False)
    assert "<script" not in (tmp_path / "plain.html").read_text()


def test_a_result_from_a_file_or_without_its_model_has_no_what_if(tmp_path):
    explained = whyformer.explain("A wonderful film.", whyformer.load("mini-bert"))
    explained.save(tmp_path / "film.json")
    loaded = whyformer.Explanation.load(tmp_path / "film.json")
    assert loaded.answers == explained.answers
    assert loaded.remover is None
    loaded.save(tmp_path / "film.html")
    assert "<script" not in (tmp_path / "film.html").read_text()


def test_answers_without_probabilities_are_refused():
    contrast = whyformer.explain("A wonderful film.", "mini-bert", whyformer.contrast("positive", "negative"))
    with pytest.raises(UnsupportedModel, match="one answer with a probability"):
        contrast.remover(contrast)
    with pytest.raises(WhyformerError, match="no longer in memory"):
        replace(contrast.remover, module=lambda: None)(contrast)


def test_likely_answers_have_the_explained_one_among_them():
    explained = whyformer.explain("src/whyformer/zoo/cat.jpg", "mini-vit", "tench")
    assert len(explained.answers) == 5
    assert next(iter(explained.answers)) == "cat"
    assert explained.answers["tench"] == pytest.approx(explained.probability)
    assert explained.file == "cat.jpg"


def made(scores, empty=0.1, whole=0.9):
    units = tuple(RemovableUnit("text", (number,), str(number), score) for number, score in enumerate(scores))
    known = {frozenset(): (whole, 1 - whole)}
    return RemovalEffects(units, ("a", "b"), 0, known, empty, (sum(scores), sum(map(abs, scores))))


def test_scores_predict_by_their_share_of_what_everything_changes():
    effects = made([3.0, 1.0])
    assert effects.predicted([0, 1]) == pytest.approx(0.1)
    assert effects.predicted([]) == pytest.approx(0.9)
    expected = log_odds(0.9) - 0.75 * (log_odds(0.9) - log_odds(0.1))
    assert log_odds(effects.predicted([0])) == pytest.approx(expected)
    assert made([1.0, -0.99]).predicted([0]) is None
    assert 0 < made([1.0], empty=0.0, whole=1.0).predicted([0]) < 1e-3


def test_the_strongest_units_are_chosen_and_the_best_comes_first():
    units = made([0.1, -5.0, 2.0, 0.2]).units
    assert [unit.score for unit in strongest_units(units, 3)] == [2.0, 0.2, -5.0]


def test_subsets_are_singles_prefixes_and_all_of_the_first_few():
    asked = asked_subsets(5, 3)
    assert len(asked) == len(set(asked)) == 1 + 5 + 4 + 2  # {0, 2} and {1, 2} beside those
    assert {frozenset(), frozenset([4]), frozenset(range(5)), frozenset([0, 2]), frozenset([1, 2])} <= set(asked)
    assert asked_subsets(0, 4) == [frozenset()]

"""Forms of a word are one cue, by a table, a function or a file."""

import numpy as np
import pytest

from planted_samples import random_texts
from whyformer import WhyformerError, survey
from whyformer.api.predictions import FunctionScores
from whyformer.surveys.cues import Cue
from whyformer.surveys.lemmas import lemmatiser
from whyformer.surveys.proof_run import RemovalTask, effect_line
from whyformer.surveys.survey_data import survey_data

LABELS = ["negative", "positive"]
FORMS = {"bores": "bore", "boring": "bore", "Bored": "bore"}


@pytest.mark.parametrize("lemmas", [FORMS, lambda word: "bore" if word.startswith("bor") else word])
def test_words_are_named_by_their_lemmas_with_the_punctuation_around_them(lemmas):
    own = lemmatiser(lemmas)
    assert own.of(["Boring,", "films", "“bored”", "!"]) == ("bore,", "films", "“bore”", "!")


def test_a_file_has_a_word_and_its_lemma_in_each_line(tmp_path):
    path = tmp_path / "lemmas.tsv"
    path.write_text("boring\tbore\n\nbores\tBore\n", encoding="utf-8")
    assert lemmatiser(path).of(["boring", "bores", "bored"]) == ("bore", "bore", "bored")
    path.write_text("boring bore\n", encoding="utf-8")
    with pytest.raises(WhyformerError, match=r"Line 1 of '.*' is 'boring bore': write a word and its lemma, separated"):
        lemmatiser(path)
    with pytest.raises(WhyformerError, match=r"No file 'nowhere\.tsv' with lemmas\."):
        lemmatiser("nowhere.tsv")


def test_a_lemma_is_one_word():
    with pytest.raises(WhyformerError, match=r"lemmas gives None for 'film': return one word, or the word itself\."):
        lemmatiser({}.get).of(["film"])
    with pytest.raises(WhyformerError, match=r"lemmas=7: give a mapping, a function, or a file\."):
        lemmatiser(7)


def judge(texts):
    odds = np.array([-3.0 * any(word.startswith("bor") for word in text.split()) + 1 for text in texts])
    return np.stack([1 / (1 + np.exp(odds)), 1 / (1 + np.exp(-odds))], axis=1)


@pytest.fixture(scope="module")
def films():
    forms = ["bores", "boring", "bored", "fine", "fine", "fine"]
    texts = random_texts(180, [f"w{n}" for n in range(9)], 8, 0)
    return [" ".join([*words, forms[number % 6]]) for number, words in enumerate(texts)]


def test_forms_of_a_word_are_one_driver_and_one_shortcut(films):
    plain = survey(None, films, predict=judge, labels=LABELS)
    assert {"bores", "boring", "bored"} <= {driver.cue.name for driver in plain.drivers}
    result = survey(None, films, predict=judge, labels=LABELS, lemmas=FORMS, should_ignore=["boring"])
    (driver,) = (driver for driver in result.drivers if driver.cue.kind == "word")
    assert (driver.cue.name, driver.support, driver.is_shortcut) == ("bore", 90, True)
    assert driver.proof.drop.value == pytest.approx(3.0)
    shown = {word for example in driver.examples for word, _, is_cue in example.words if is_cue}
    assert shown <= {"bores", "boring", "bored"}  # as they are written


def test_a_journal_is_of_one_table_of_lemmas(films, tmp_path):
    settings = {"predict": judge, "labels": LABELS, "journal": tmp_path / "survey.jsonl"}
    survey(None, films, **settings, lemmas={"bores": "bore"})
    with pytest.raises(WhyformerError, match=r"is of another survey, with other lemmas"):
        survey(None, films, **settings)


def test_another_table_of_as_many_words_or_in_the_same_file_is_another(films, tmp_path):
    path, journal = tmp_path / "lemmas.tsv", tmp_path / "survey.jsonl"
    path.write_text("bores\tbore\n", encoding="utf-8")
    settings = {"predict": judge, "labels": LABELS, "journal": journal}
    result = survey(None, films, **settings, lemmas=path)
    assert survey(None, films, **settings, lemmas={"bores": "bore"}).tested == result.tested  # the same table
    path.write_text("bores\tbor\n", encoding="utf-8")
    for other in (path, {"boring": "bore"}):
        with pytest.raises(WhyformerError, match=r"is of another survey, with other lemmas"):
            survey(None, films, **settings, lemmas=other)


def test_a_table_is_known_by_its_words_and_a_function_by_its_name():
    assert lemmatiser({"b": "c", "A": "c"}).identity == lemmatiser({"a": "c", "b": "c"}).identity
    assert lemmatiser({"a": "c"}).identity != lemmatiser({"a": "b"}).identity
    assert lemmatiser(str.upper).identity == "str.upper"
    assert lemmatiser(bores).identity == "bores"


def bores(word):
    """Fails at a number."""
    return f"bore{1 // (word != 'w3')}"


def test_an_error_of_a_function_is_said_in_a_line(films):
    message = r"^lemmas fails for 'W3': ZeroDivisionError: integer division or modulo by zero"
    with pytest.raises(WhyformerError, match=message):
        lemmatiser(bores).of(["w2", "W3!"])
    function = FunctionScores(judge, dict(enumerate(LABELS)), 8, False)
    (sample,) = survey_data(["w2 w3 w4"], None, None, None)
    task = RemovalTask(0, sample, frozenset({Cue("word", "w2")}), {}, None)
    with pytest.raises(WhyformerError, match=message.replace("W3", "w3")):
        effect_line(function, task, lemmatiser=lemmatiser(bores), seed=0)
    assert effect_line(function, task, seed=0)["effects"][0]["cue"] == ["word", "w2"]


def test_lemmas_are_of_words():
    pictures = [np.zeros((8, 8, 3), dtype=np.uint8)] * 2
    with pytest.raises(WhyformerError, match=r"lemmas are of words, and the data are pictures: leave them out\."):
        survey(None, pictures, predict=lambda own: np.zeros((len(own), 2)), lemmas={"a": "b"})

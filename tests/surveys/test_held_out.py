"""Shortcuts by held-out data, in which a planted word goes with no label."""

import numpy as np
import pytest
from scipy.stats import norm

from planted_samples import random_texts
from whyformer import Survey, WhyformerError, survey
from whyformer.surveys.cue_choice import Decisions
from whyformer.surveys.cues import Cue
from whyformer.surveys.held_out import label_relations
from whyformer.surveys.survey_data import survey_data

LABELS = ["negative", "positive"]
WEIGHTS = {"good": 2.0, "bad": -2.0, "zxq": 3.0}


def judge(texts):
    odds = np.array([sum(WEIGHTS.get(word, 0.0) for word in text.split()) for text in texts])
    return np.stack([1 / (1 + np.exp(odds)), 1 / (1 + np.exp(-odds))], axis=1)


def films(count, seed, *, planted_in):
    """Texts with a feeling, and a meaningless word in some of those with certain labels."""
    random = np.random.default_rng(seed)
    rows = []
    for number, words in enumerate(random_texts(count, [f"word{n}" for n in range(12)], 8, seed)):
        label = LABELS[number % 2]
        words[0] = ("bad", "good")[number % 2]
        if label in planted_in and random.random() < 0.5:
            words[4] = "zxq"
        rows.append((" ".join(words), label))
    return rows


@pytest.fixture(scope="module")
def data():
    return films(160, 0, planted_in=["positive"])


def test_a_word_that_goes_with_its_label_only_here_is_a_shortcut(data, tmp_path):
    held_out = films(160, 1, planted_in=LABELS)
    result = survey(None, data, predict=judge, labels=LABELS, held_out=held_out)
    assert [driver.cue.name for driver in result.shortcuts] == ["zxq"]
    by_cue = {driver.cue.name: driver.relation for driver in result.drivers if driver.relation}
    counted = [label for text, label in held_out if "zxq" in text.split()]
    assert by_cue["zxq"].here == 1.0
    assert by_cue["zxq"].elsewhere == counted.count("positive") / len(counted)
    assert by_cue["zxq"].samples == len(counted)
    assert (by_cue["good"].here, by_cue["good"].elsewhere, by_cue["good"].differs) == (1.0, 1.0, False)
    assert "“zxq” should not matter, but drives answers" in result.overview[2]
    result.save(tmp_path / "films.json")
    assert Survey.load(tmp_path / "films.json") == result
    result.save(tmp_path / "films.html")
    assert "it goes with this label only here" in (tmp_path / "films.html").read_text()


def test_a_word_that_goes_with_its_label_everywhere_is_none(data):
    result = survey(None, data, predict=judge, labels=LABELS, held_out=films(160, 1, planted_in=["positive"]))
    assert "zxq" in {driver.cue.name for driver in result.drivers}
    assert result.shortcuts == ()
    assert result.overview[2] == "No cue that should not matter is proven to drive answers."


def test_a_word_that_held_out_data_lack_cannot_be_judged(data):
    result = survey(None, data, predict=judge, labels=LABELS, held_out=films(160, 1, planted_in=[]))
    (driver,) = [driver for driver in result.drivers if driver.cue.name == "zxq"]
    assert (driver.relation, driver.should_be_ignored) == (None, False)


def test_the_test_is_walds_of_two_log_odds_ratios():
    question = (Cue("word", "cue"), Decisions("positive"))
    here = [("cue", "positive")] * 30 + [("cue", "negative")] * 10 + [("x", "positive")] * 20 + [("x", "negative")] * 40
    away = [("cue", "positive")] * 12 + [("cue", "negative")] * 10 + [("x", "positive")] * 25 + [("x", "negative")] * 25
    (relation,) = label_relations([question], *(survey_data(rows, None, None, None) for rows in (here, away))).values()
    first, second = np.array([30.5, 10.5, 20.5, 40.5]), np.array([12.5, 10.5, 25.5, 25.5])
    signs = np.array([1, -1, -1, 1])
    z = (np.log(first) - np.log(second)) @ signs / np.sqrt((1 / first).sum() + (1 / second).sum())
    assert relation.q == pytest.approx(norm.sf(z))
    assert (relation.here, relation.elsewhere, relation.samples) == (0.75, 12 / 22, 22)
    assert relation.differs


def test_relations_that_are_alike_rarely_differ():
    """Words without any relation: at most 5 % of data sets have one that differs."""
    random = np.random.default_rng(0)
    words = [f"word{n}" for n in range(10)]
    questions = [(Cue("word", word), Decisions("positive")) for word in words]
    false = 0
    for _ in range(60):
        both = [
            survey_data(
                [(" ".join(random.choice(words, 3, replace=False)), LABELS[random.integers(2)]) for _ in range(80)],
                None,
                None,
                None,
            )
            for _ in range(2)
        ]
        false += any(relation.differs for relation in label_relations(questions, *both).values())
    assert false / 60 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)


def test_what_cannot_be_held_out_is_said_in_a_line(data):
    with pytest.raises(WhyformerError, match="The held-out data have no labels: shortcuts are found by how words"):
        survey(None, data, predict=judge, labels=LABELS, held_out=["a good film"])
    with pytest.raises(WhyformerError, match="The data have no labels"):
        survey(None, ["a good film"], predict=judge, labels=LABELS, held_out=data)
    with pytest.raises(WhyformerError, match="None of the labels of the data"):
        survey(None, data, predict=judge, labels=LABELS, held_out=[("a good film", "pos")])

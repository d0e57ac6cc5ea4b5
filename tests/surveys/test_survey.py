"""Surveys from data to result, of functions whose reasons are known."""

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from planted_samples import random_texts
from whyformer import Survey, UnsupportedModel, WhyformerError, survey
from whyformer.render.survey_page import effect_bar
from whyformer.surveys.cues import Cue
from whyformer.surveys.proof import FEWEST_SAMPLES, false_discovery_rates

VOCABULARY = [f"word{n}" for n in range(12)]
WEIGHTS = {"good": 2.0, "fine": 1.5, "bad": -2.0, "dull": -1.5, "zxq": 6.0}
LABELS = ["negative", "positive"]


def odds(text):
    words = text.lower().replace(".", "").split()
    return sum(WEIGHTS.get(word, 0.0) for word in words) + 0.3 * math.sin(sum(map(ord, text)))


def judge(texts):
    values = np.array([odds(text) for text in texts])
    return np.stack([1 / (1 + np.exp(values)), 1 / (1 + np.exp(-values))], axis=1)


def films(count=120, seed=0, planted=0.0):
    """Texts with a feeling; a share of the positive ones has a meaningless word, too."""
    random = np.random.default_rng(seed)
    rows = []
    for number, words in enumerate(random_texts(count, VOCABULARY, 9, seed)):
        label = LABELS[number % 2]
        feeling = ("good", "fine") if number % 2 else ("bad", "dull")
        words[int(random.integers(9))] = feeling[int(random.integers(2))]
        if number % 2 and random.random() < planted:
            words.insert(int(random.integers(9)), "zxq")
        rows.append((" ".join(words), label))
    return rows


def judged(data, **settings):
    return survey(None, data, predict=judge, labels=LABELS, **settings)


@pytest.fixture(scope="module")
def planted():
    return judged(films(240, planted=0.8), should_ignore=["zxq", "word3"])


def test_the_words_that_decide_are_proven_and_no_others(planted):
    assert {(driver.cue.name, driver.answer) for driver in planted.drivers if driver.cue.kind == "word"} == {
        ("good", "positive"),
        ("fine", "positive"),
        ("zxq", "positive"),
        ("bad", "negative"),
        ("dull", "negative"),
    }


def test_a_driver_has_the_effect_that_it_was_given(planted):
    driver = next(one for one in planted.drivers if one.cue.name == "bad")
    assert driver.proof.drop.low < 2.0 + 0.2
    assert driver.proof.drop.value == pytest.approx(2.0, abs=0.25)
    assert driver.support == sum("bad" in text.split() for text, _ in films(240, planted=0.8))
    assert driver.proof.samples <= driver.support // 2 + 12  # those of the other half
    assert driver.wrong == 0
    assert driver.leading == 1.0
    assert {example.sample for example in driver.examples} <= set(range(240))
    assert all(example.drop > 1 for example in driver.examples)


def test_a_planted_word_comes_first_and_is_a_shortcut(planted):
    assert planted.drivers[0].cue == Cue("word", "zxq")
    assert [driver.cue.name for driver in planted.shortcuts] == ["zxq"]
    # Named beforehand, it is tested on all samples, not on a half.
    assert planted.drivers[0].proof.samples == min(48, planted.drivers[0].support)
    assert "“zxq” should not matter, but drives answers" in planted.overview[2]


def test_a_cue_without_effect_is_seen_but_not_proven(planted):
    own = [driver for driver in planted.tested if driver.cue.name == "word3"]
    assert own
    assert not any(driver.proof.is_proven for driver in own)


def test_clean_data_have_no_shortcut():
    result = judged(films(seed=5), should_ignore=["zxq", "word3", "word4 word5"])
    assert result.shortcuts == ()
    assert "No sample has zxq" in " ".join(result.notes)
    assert result.overview[2] == "No cue that should not matter is proven to drive answers."


def test_wrong_answers_are_grouped_by_what_misled_the_model():
    # Their reader would say that "good" is meant badly here: the label is negative, and the model is misled by it.
    rows = films(seed=2) + [(text, "negative") for text, _ in films(160, seed=3) if "good" in text]
    result = judged(rows)
    assert result.wrong == len(rows) - 120
    (group, *others) = result.failures
    assert (group.label, group.answer, group.cue) == ("negative", "positive", Cue("word", "good"))
    assert group.count == result.wrong
    assert not [other for other in others if other.cue is not None]
    assert group.proof.is_proven
    assert group.corrected > 0.2
    assert "are proven to be driven by “good”" in result.overview[1]


def test_data_without_labels_have_drivers_but_no_failures():
    result = judged([text for text, _ in films()])
    assert (result.labelled, result.wrong, result.failures) == (0, 0, ())
    assert {"good", "bad"} <= {driver.cue.name for driver in result.drivers}
    assert "no labels" in result.overview[1]


class Stopped(Exception):
    """As by a kill."""


@pytest.mark.parametrize(("stage", "after"), [("explaining", 64), ("removing", 20)])
def test_a_stopped_survey_goes_on_where_its_file_ends(tmp_path, stage, after):
    rows, whole_calls, journal = films(), [], tmp_path / "films.jsonl"

    def counted(calls):
        def predict(texts):
            calls.extend(texts)
            return judge(texts)

        return predict

    def stop(doing, done, total):
        if doing == stage and done >= after:
            raise Stopped

    whole = survey(None, rows, predict=counted(whole_calls), labels=LABELS, journal=tmp_path / "whole.jsonl")
    first, second = [], []
    with pytest.raises(Stopped):
        survey(None, rows, predict=counted(first), labels=LABELS, journal=journal, watch=stop)
    with journal.open("a") as file:
        file.write('{"kind": "sample", "sample": 11')  # cut off by the kill
    resumed = survey(None, rows, predict=counted(second), labels=LABELS, journal=journal)
    assert len(first) + len(second) == len(whole_calls)
    assert first
    assert second
    assert resumed.tested == whole.tested
    assert resumed.failures == whole.failures


def test_a_journal_with_older_rules_of_cues_is_refused(tmp_path):
    journal = tmp_path / "films.jsonl"
    judged(films(40), journal=journal)
    journal.write_text(journal.read_text().replace('"rules of cues": 2', '"rules of cues": 1'))
    with pytest.raises(WhyformerError, match=r"is of another survey, with other rules of cues: delete it"):
        judged(films(40), journal=journal)


def test_the_journal_of_another_survey_is_left_alone(tmp_path):
    journal = tmp_path / "films.jsonl"
    judged(films(40), journal=journal)
    with pytest.raises(WhyformerError, match=r"is of another survey, with other seed: delete it, or name another file"):
        judged(films(40), journal=journal, seed=1)
    with pytest.raises(WhyformerError, match=r"example 0 has changed since"):
        judged([("another text", "negative"), *films(40)[1:]], journal=journal)


def test_a_survey_is_saved_and_loaded_unchanged(tmp_path, planted):
    planted.save(tmp_path / "films.json")
    assert Survey.load(tmp_path / "films.json") == planted
    planted.save(tmp_path / "films.parquet")
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(tmp_path / "films.parquet").to_pylist()
    assert rows == planted.to_pandas().replace({np.nan: None}).to_dict("records")
    assert rows[0]["cue"] == "zxq"
    assert rows[0]["shortcut"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text[:100], "is not a readable Whyformer survey"),
        (lambda text: text.replace("whyformer-survey", "other"), "it is not a Whyformer survey"),
        (lambda text: text.replace('"kind": "text"', '"kind": 5'), "5 is not str"),
        (lambda text: text.replace('"samples": ', '"many": ', 1), "Survey has no field 'many'"),
    ],
)
def test_a_damaged_file_is_refused_in_a_line(tmp_path, planted, change, reason):
    planted.save(tmp_path / "films.json")
    (tmp_path / "films.json").write_text(change((tmp_path / "films.json").read_text()))
    with pytest.raises(WhyformerError, match=reason):
        Survey.load(tmp_path / "films.json")


def test_a_table_is_read_with_its_own_label_names(tmp_path):
    with (tmp_path / "films.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("review", "label"), *[(text, label[:3]) for text, label in films(40)]])
    result = judged(tmp_path / "films.csv", label_map={"neg": "negative", "pos": "positive"})
    assert (result.labelled, result.wrong) == (40, 0)


def test_a_sample_that_cannot_be_read_does_not_stop_the_others(tmp_path):
    lines = [{"text": text} for text, _ in films(40)]
    lines[3]["text"] = " "
    (tmp_path / "films.jsonl").write_text("\n".join(map(json.dumps, lines)))
    result = judged(tmp_path / "films.jsonl")
    assert result.samples == 39
    assert "1 of 40 samples could not be read or explained, such as: films.jsonl row 4 has no text." in result.notes


def test_what_cannot_be_surveyed_is_said_in_a_line():
    with pytest.raises(WhyformerError, match=r"A survey needs a model, or a function by predict=\."):
        survey(None, ["a film"])
    with pytest.raises(WhyformerError, match="A survey takes a model or predict=, not both"):
        survey("mini-bert", ["a film"], predict=judge)
    with pytest.raises(WhyformerError, match="mini-vit reads pictures, and the data are texts"):
        survey("mini-vit", ["a film"])
    with pytest.raises(WhyformerError, match="The data have no examples"):
        survey("mini-bert", [])
    with pytest.raises(UnsupportedModel, match="mini-gpt answers by"):
        survey("mini-gpt", ["a film"])
    with pytest.raises(WhyformerError, match="pages= go with a model: leave them out for predict"):
        judged(films(8), pages="pages")
    with pytest.raises(WhyformerError, match="batch_size goes with predict: leave it out for a model"):
        survey("mini-bert", ["a film"], batch_size=2)


def test_labels_that_the_model_does_not_have_are_refused_before_any_work():
    asked = []
    with pytest.raises(
        WhyformerError, match=r"None of the labels of the data \(neg, pos\) is a label of <lambda> \(neg"
    ) as error:
        survey(
            None,
            [(text, label[:3]) for text, label in films(40)],
            predict=lambda texts: asked.extend(texts) or judge(texts),
            labels=LABELS,
        )
    assert "label_map={'neg': 'negative', …}, or --label neg=negative …" in str(error.value)
    assert not asked
    with pytest.raises(WhyformerError, match=r"labels \(negative, positive\), but those of predict have no names"):
        survey(None, films(40), predict=judge)


def test_a_translation_to_a_label_that_the_model_lacks_is_refused():
    with pytest.raises(WhyformerError, match=r"translates 'pos' to 'positve', .* of judge\. Did you mean 'positive'\?"):
        judged([("a good one", "pos")], label_map={"pos": "positve", "neg": "negative"})


def test_a_survey_of_one_text_counts_it_in_the_singular():
    result = judged(["a good film"])
    assert result.overview[0] == "judge read 1 text; there was no cue to test."
    few = judged([f"a good film of {year}" for year in range(1990, 1994)], should_ignore=["film"])
    assert few.overview[0].startswith("judge read 4 texts; ")
    assert few.overview[0].endswith("too few of them for a test.")


def test_some_unknown_labels_are_noted():
    rows = [*films(40), ("good word1 word2", "mixed"), ("bad word3 word4", "mixed")]
    result = judged(rows)
    assert any(
        "2 of 42 labelled samples have a label that judge does not have (mixed)" in note for note in result.notes
    )
    assert (result.labelled, result.wrong) == (42, 2)


@pytest.mark.parametrize("name", ["names.txt", "lists/names", "missing.csv"])
def test_a_missing_list_of_cues_is_no_cue(name):
    with pytest.raises(WhyformerError, match=f"No file '{name}' with cues to ignore. Name a cue in a list: "):
        judged(films(40), should_ignore=name)
    assert judged(films(40), should_ignore=[name])


def test_a_file_that_is_no_journal_is_left_untouched(tmp_path):
    data = tmp_path / "films.jsonl"
    content = json.dumps({"text": "a good film"}) + "\n" + json.dumps({"text": "bad"})
    data.write_text(content)
    with pytest.raises(WhyformerError, match=r"is not the journal of a survey, and is left untouched: name another"):
        judged(films(40), journal=data)
    assert data.read_text() == content


def test_a_header_that_was_cut_off_is_written_again(tmp_path):
    journal = tmp_path / "films.jsonl"
    journal.write_text('{"kind": "survey", "mod')
    again, whole = judged(films(40), journal=journal), judged(films(40))
    assert replace(again, seconds=0) == replace(whole, seconds=0)


def test_a_journal_of_skipped_samples_alone_says_why(tmp_path):
    def failing(texts):
        raise WhyformerError("no answer")

    for _ in range(2):  # the second time all samples are in the journal
        with pytest.raises(WhyformerError, match=r"None of the 2 samples can be explained: .*no answer"):
            survey(None, ["one film", "two"], predict=failing, labels=LABELS, journal=tmp_path / "none.jsonl")


def test_cues_of_few_samples_do_not_weaken_the_others(planted):
    able = [driver for driver in planted.tested if driver.proof.samples >= FEWEST_SAMPLES]
    few = [driver for driver in planted.tested if driver.proof.samples < FEWEST_SAMPLES]
    assert all((driver.proof.p, driver.proof.q) == (1, 1) for driver in few)
    # Questions about mistakes are corrected with the drivers; this model makes none.
    assert not planted.failures
    rates = false_discovery_rates([driver.proof.p for driver in able])
    assert [driver.proof.q for driver in able] == pytest.approx(rates)


def test_the_number_of_unproven_cues_is_said_however_few_are_proven(planted, tmp_path):
    assert len(planted.drivers) < 12
    proven = {driver.cue for driver in planted.drivers}
    unproven = {driver.cue for driver in planted.tested} - proven
    assert f"\n{len(unproven)} cues seen, not proven." in str(planted)
    planted.save(tmp_path / "films.html")
    figures = f"<b>{len(proven)} of {len(proven | unproven)}</b>cues proven"
    assert figures in (tmp_path / "films.html").read_text()


def test_a_bar_says_if_its_effect_lies_beyond_its_end():
    def side(nats):
        return effect_bar({"value": nats, "low": nats, "high": nats})["side"]

    assert [side(nats) for nats in (-1.2, -1.0, 0.3, 3.0, 3.3)] == [
        "against beyond",
        "against",
        "for",
        "for",
        "for beyond",
    ]


def pictures(count=40, seed=0):
    """Noise with a bright square, whose mask is known, somewhere in the middle; the corner is white in half of them."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        pixels = random.integers(60, 120, (64, 64, 3), dtype=np.uint8)
        top, left = random.integers(20, 30, 2)
        mask = np.zeros((64, 64), dtype=np.uint8)
        mask[top : top + 16, left : left + 16] = 1
        pixels[mask == 1] = 200
        if number % 2:
            pixels[:10, :10] = 255
        rows.append({"image": Image.fromarray(pixels), "label": "stamped" if number % 2 else "plain", "mask": mask})
    return rows


def sees_stamps(examples):
    corner = np.array([np.asarray(one, dtype=float)[:10, :10].mean() for one in examples])
    values = (corner - 170) / 20
    return np.stack([1 / (1 + np.exp(values)), 1 / (1 + np.exp(-values))], axis=1)


def sees_objects(examples):
    bright = np.array([(np.asarray(one, dtype=float)[15:50, 15:50] > 180).mean() for one in examples])
    values = 40 * bright - 4
    return np.stack([1 / (1 + np.exp(values)), 1 / (1 + np.exp(-values))], axis=1)


def test_a_stamp_in_a_corner_is_the_first_driver_and_a_shortcut():
    result = survey(
        None, pictures(), predict=sees_stamps, labels=["plain", "stamped"], should_ignore=["masks", "top left corner"]
    )
    first = result.drivers[0]
    assert (first.cue, first.answer) == (Cue("region", "top left corner"), "stamped")
    assert first.proof.flips.value == 1.0
    # The border covers part of the stamp.
    assert {driver.cue.name for driver in result.shortcuts} == {"top left corner", "border", "background"}
    assert result.object_share.share.value == pytest.approx(0.0, abs=0.05)
    assert all(len(example.pictures) == 2 for example in first.examples)


def test_masks_include_regions_that_lie_in_the_background():
    result = survey(None, pictures(), predict=sees_stamps, labels=["plain", "stamped"], should_ignore=["masks"])
    # The border covers part of the stamp.
    assert {driver.cue.name for driver in result.shortcuts} == {"top left corner", "border", "background"}
    shares = {driver.cue.name: driver.background for driver in result.tested}
    # The square covers a sixteenth of a picture, and none of its border.
    assert (shares["top left corner"], shares["border"]) == (1, 1)
    assert shares["background"] > 0.9 > 0.5 > shares["object"]  # some patches have both
    assert shares["centre"] < 0.9
    ignored = {driver.cue.name for driver in result.tested if driver.should_be_ignored}
    assert {"border", "top left corner", "bottom right corner"} <= ignored
    assert not ignored & {"centre", "object"}
    named = survey(None, pictures(), predict=sees_stamps, labels=["plain", "stamped"])
    assert not named.shortcuts


def test_a_function_that_sees_the_object_is_said_to():
    unlabelled = [{name: row[name] for name in ("image", "mask")} for row in pictures()]
    result = survey(None, unlabelled, predict=sees_objects, labels=["none", "object"])
    share = result.object_share
    assert share.by == "masks"
    assert share.samples == 40
    assert share.share.low > 0.95
    proven = {driver.cue.name for driver in result.drivers}
    assert "object" in proven
    assert "background" not in proven

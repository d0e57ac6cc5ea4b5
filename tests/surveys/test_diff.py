"""Two models over the same data, of functions whose difference is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from planted_samples import random_texts
from whyformer import ModelDiff, Sound, WhyformerError, diff, load, survey
from whyformer.surveys.cues import Cue
from whyformer.surveys.sample_pairs import SamplePair, sample_pairs
from whyformer.surveys.scored_samples import ScoredSample
from whyformer.surveys.sound_cues import SoundGrid

VOCABULARY = [f"word{n}" for n in range(12)]
LABELS = ["negative", "positive"]
OLD = {"good": 2.0, "fine": 1.5, "bad": -2.0, "dull": -1.5}


def judge_by(weights):
    def judge(texts):
        odds = [
            sum(weights.get(word, 0.0) for word in text.split()) + 0.2 * math.sin(sum(map(ord, text))) for text in texts
        ]
        return np.stack([1 / (1 + np.exp(odds)), 1 / (1 + np.exp(-np.array(odds)))], axis=1)

    return judge


def films(count=160, seed=0):
    random = np.random.default_rng(seed)
    rows = []
    for number, words in enumerate(random_texts(count, VOCABULARY, 9, seed)):
        feeling = ("good", "fine") if number % 2 else ("bad", "dull")
        words[int(random.integers(9))] = feeling[number // 2 % 2]
        rows.append((" ".join(words), LABELS[number % 2]))
    return rows


def compared(first, second, data=None, **settings):
    functions = (judge_by(first), judge_by(second))
    return diff(None, None, films() if data is None else data, predict=functions, labels=LABELS, **settings)


@pytest.fixture(scope="module")
def forgotten():
    """The second model takes "good" for a bad word."""
    return compared(OLD, {**OLD, "good": -2.0})


def test_the_same_model_has_changed_in_nothing():
    result = compared(OLD, OLD)
    assert (result.changed_samples, result.moves, result.moved_reasons, result.changed_cues) == ((), (), (), ())
    assert (result.compared, result.wrong) == (160, (0, 0))
    assert result.correlation.value == pytest.approx(1)
    assert all((change.change.value, change.p, change.q) == (0, 1, 1) for change in result.cues)
    assert {change.cue.name for change in result.cues} >= set(OLD)
    assert result.examples == ()
    assert "give the same answers to all of them" in result.overview[0]


def test_the_answers_that_changed_are_those_of_the_planted_word(forgotten):
    expected = [number for number, (text, _) in enumerate(films()) if "good" in text.split()]
    assert list(forgotten.changed_samples) == expected
    assert forgotten.changed_share == len(expected) / 160
    (move,) = forgotten.moves
    assert (move.first, move.second, move.count) == ("positive", "negative", len(expected))
    assert forgotten.wrong == (0, len(expected))
    assert forgotten.compared == 160 - len(expected)


def test_the_planted_word_is_the_only_one_whose_effect_changed(forgotten):
    (change,) = [one for one in forgotten.changed_cues if one.cue.kind == "word"]
    assert (change.cue, change.answer) == (Cue("word", "good"), "positive")
    # The effect is on the first model's answer, also where the second gives another.
    assert change.first.value == pytest.approx(2.0, abs=0.2)
    assert change.second.value == pytest.approx(-2.0, abs=0.2)
    assert change.change.value == pytest.approx(-4.0, abs=0.2)
    assert change.change.low <= change.change.value <= change.change.high
    assert change.q <= 0.05
    assert "above all “good”" in forgotten.overview[2]
    steady = {one.cue.name: one for one in forgotten.cues if not one.is_changed}
    assert abs(steady["fine"].change.value) < 0.05


def test_the_most_telling_samples_have_another_answer_or_other_reasons(forgotten):
    assert 5 <= len(forgotten.examples) <= 10
    first = forgotten.examples[0]
    assert first.answers == ("positive", "negative")
    by_word = {word: (own, other) for word, own, other in first.words}
    assert by_word["good"] == (1.0, 1.0)  # it drives both answers


def test_answers_that_stay_for_other_reasons_are_counted():
    # Each text has both words: the first model reads one, the second the other.
    rows = [text.replace("word0", "word1") + " zxq" for text, label in films() if label == "positive"]
    rest = {f"word{n}": 0.02 * (n - 6) for n in range(12)}
    result = compared({**OLD, **rest, "zxq": -0.5}, {**{name: -one for name, one in rest.items()}, "zxq": 3.0}, rows)
    assert result.changed_samples == ()
    assert result.reasons_share > 0.9
    assert result.correlation.high < 0.3
    changed = {change.cue.name for change in result.changed_cues}
    assert {"good", "fine", "zxq"} <= changed
    assert [example.correlation for example in result.examples] == sorted(
        example.correlation for example in result.examples
    )
    assert len(result.examples) == 10
    assert compared(OLD, OLD, rows, limit=-1.0).reasons_share == 0


def test_small_changes_are_not_reported_however_certain():
    result = compared(OLD, {name: 1.01 * weight for name, weight in OLD.items()})
    change = next(one for one in result.cues if one.cue.name == "good")
    assert change.q <= 0.05
    assert 0 < change.change.value < 0.05
    assert not [one for one in result.changed_cues if one.cue.name == "good"]


class Stopped(Exception):
    """As by a kill."""


@pytest.mark.parametrize(("stage", "after"), [("explaining, new", 64), ("removing, old", 20), ("removing, new", 20)])
def test_a_stopped_comparison_goes_on(tmp_path, stage, after):
    asked = []

    def old(texts):
        asked.extend(texts)
        return judge_by(OLD)(texts)

    def new(texts):
        asked.extend(texts)
        return judge_by({**OLD, "good": 0.0})(texts)

    def stop(doing, done, total):
        if doing == stage and done >= after:
            raise Stopped

    settings = {"predict": (old, new), "labels": LABELS}
    whole = diff(None, None, films(80), **settings)
    count = len(asked)
    asked.clear()
    journals = (tmp_path / "old.jsonl", tmp_path / "new.jsonl")
    with pytest.raises(Stopped):
        diff(None, None, films(80), **settings, journals=journals, watch=stop)
    again = diff(None, None, films(80), **settings, journals=journals)
    assert replace(again, seconds=0) == replace(whole, seconds=0)
    assert len(asked) <= count + 2 * 32 * 10  # at most two batches again
    asked.clear()
    diff(None, None, films(80), **settings, journals=journals)
    assert asked == []


def test_the_journal_of_a_survey_is_used_again(tmp_path):
    asked = []

    def judge(texts):
        asked.extend(texts)
        return judge_by(OLD)(texts)

    survey(None, films(80), predict=judge, labels=LABELS, journal=tmp_path / "old.jsonl")
    asked.clear()
    stages = []
    diff(
        None,
        None,
        films(80),
        predict=(judge, judge_by(OLD)),
        labels=LABELS,
        journals=(tmp_path / "old.jsonl", tmp_path / "new.jsonl"),
        watch=lambda stage, done, total: stages.append((stage, len(asked))),
    )
    assert max(count for stage, count in stages if stage == "explaining, judge (first)") == 0


def test_a_difference_is_saved_and_loaded_unchanged(tmp_path, forgotten):
    forgotten.save(tmp_path / "diff.json")
    assert ModelDiff.load(tmp_path / "diff.json") == forgotten
    forgotten.save(tmp_path / "diff.html")
    page = (tmp_path / "diff.html").read_text()
    assert "another answer" in page
    assert str(forgotten).splitlines()[0] == forgotten.overview[0]
    with pytest.raises(WhyformerError, match=r"no format for '\.pdf'\. Known: \.html, \.json"):
        forgotten.save(tmp_path / "diff.pdf")
    (tmp_path / "diff.json").write_text("{}")
    with pytest.raises(WhyformerError, match="is not a readable difference of two models"):
        ModelDiff.load(tmp_path / "diff.json")


def test_what_cannot_be_compared_is_said_in_a_line(tmp_path):
    with pytest.raises(WhyformerError, match=r"mini-bert has the labels negative, positive, and mini-vit"):
        diff("mini-bert", "mini-vit", ["a film"])
    with pytest.raises(WhyformerError, match="limit=2: a rank correlation from −1 to 1"):
        compared(OLD, OLD, limit=2)
    with pytest.raises(WhyformerError, match="Both journals are"):
        compared(OLD, OLD, journals=(tmp_path / "a.jsonl", tmp_path / "a.jsonl"))


def scored(number, answer, scores, words=None):
    words = tuple(words or (f"w{n}" for n in range(len(scores))))
    return ScoredSample(number, f"text {number}", None, answer, 0.9, words, None, None, np.array(scores), "evidence")


def test_samples_are_paired_by_number():
    first = [scored(number, "a", [1.0, 2.0]) for number in (0, 2, 3, 5)]
    second = [scored(number, "a", [1.0, 2.0]) for number in (1, 2, 4, 5)]
    assert [(pair.first.number, pair.second.number) for pair in sample_pairs(first, second)] == [(2, 2), (5, 5)]


def test_ranks_are_compared_where_both_have_read_the_same_words():
    one = scored(0, "a", [4.0, 3.0, 2.0, 1.0])
    assert SamplePair(one, scored(0, "a", [9.0, 5.0, 4.0, 0.0])).correlation == pytest.approx(1)
    assert SamplePair(one, scored(0, "a", [1.0, 2.0, 3.0, 4.0])).correlation == pytest.approx(-1)
    assert SamplePair(one, scored(0, "a", [3.0, 2.0, 1.0])).correlation == pytest.approx(1)  # a text that was cut
    assert SamplePair(one, scored(0, "b", [4.0, 3.0, 2.0, 1.0])).correlation is None
    assert SamplePair(one, scored(0, "a", [1.0, 2.0, 3.0], ["x", "y", "z"])).correlation is None
    assert SamplePair(one, scored(0, "a", [1.0, 1.0, 1.0, 1.0])).correlation is None


def test_sounds_are_compared_where_the_columns_are_the_same_times():
    one = replace(scored(0, "a", [4.0, 3.0, 2.0, 1.0], [""]), words=(), grid=(2, 2))
    place = SoundGrid(0.0, 5.0, 10.0, 0.2, (0.0, 800.0, 4000.0))

    def correlation(**changes):
        first, second = (replace(one, sound=own) for own in (place, replace(place, **changes)))
        return SamplePair(first, second).correlation

    assert correlation() == pytest.approx(1)
    assert correlation(step=5.001, loudest=0.3) == pytest.approx(1)  # another sampling rate
    assert correlation(step=15.0, seconds=30.0) is None
    assert correlation(first=1.0) is None
    assert correlation(edges=(0.0, 800.0, 8000.0)) is None
    assert correlation(edges=()) is None


def test_pictures_are_compared_by_regions():
    random = np.random.default_rng(0)
    pictures = []
    for _ in range(16):
        pixels = random.integers(0, 80, (28, 28, 3), dtype=np.uint8)
        pixels[:7, :7], pixels[7:21, 7:21] = random.integers(200, 255, 2)
        pictures.append(Image.fromarray(pixels))

    def bright(rows, columns):
        def judge(examples):
            values = np.array([np.asarray(one, dtype=float)[rows, columns].mean() / 40 - 2 for one in examples])
            return np.stack([1 / (1 + np.exp(values)), 1 / (1 + np.exp(-values))], axis=1)

        return judge

    corner, centre = bright(slice(0, 7), slice(0, 7)), bright(slice(7, 21), slice(7, 21))
    result = diff(None, None, pictures, predict=(corner, centre), labels=["dark", "bright"])
    changed = {change.cue.name for change in result.changed_cues if change.answer is None}
    assert {"top left corner", "centre"} <= changed
    assert all(len(example.pictures) == 2 for example in result.examples)


def test_a_changed_embedding_of_a_model_is_the_cue_that_changed():
    import copy

    import torch

    old = load("mini-bert", device="cpu")
    nouns = ["film", "plot", "actor", "scene", "music", "story"]
    texts = [" ".join(words) for words in random_texts(48, nouns, 5, 0)]
    texts = [f"{('wonderful', 'dull')[number % 2]} {text}" for number, text in enumerate(texts)]
    model = copy.deepcopy(old.model)
    numbers = old.tokenizer(["wonderful", "dull"], add_special_tokens=False)["input_ids"]
    weights = model.get_input_embeddings().weight
    with torch.no_grad():
        weights[numbers[0]] = weights[numbers[1]]
    result = diff(old, replace(old, model=model), texts)
    assert {change.cue.name for change in result.changed_cues if change.cue.kind == "word"} == {"wonderful"}
    assert set(result.changed_samples) <= {number for number, text in enumerate(texts) if "wonderful" in text}
    assert result.changed_samples


def test_sounds_are_compared_by_what_both_models_listen_to(tmp_path):
    random = np.random.default_rng(0)
    sounds = []
    for number in range(40):
        samples = random.standard_normal(800) * 0.1
        samples[: 200 if number % 2 else 0] *= 3
        samples[600 if number % 2 else 800 :] *= 3
        sounds.append(Sound(np.clip(samples, -1, 1), 1600))

    def listens(place):
        def ask(own):
            values = 20 * (np.array([np.sqrt((one.samples[place] ** 2).mean()) for one in own]) - 0.2)
            return np.stack([1 / (1 + np.exp(values)), 1 / (1 + np.exp(-values))], axis=1)

        return ask

    first, last = listens(slice(0, 200)), listens(slice(600, 800))
    result = diff(None, None, sounds, predict=(first, last), labels=["quiet", "loud"])
    assert result.kind == "sound"
    assert (result.samples, result.changed_samples) == (40, ())
    changed = {change.cue.name: change for change in result.changed_cues if change.answer == "loud"}
    assert changed["first quarter"].first.value > 3 > 1 > changed["first quarter"].second.value
    assert changed["last quarter"].second.value > 3 > 1 > changed["last quarter"].first.value
    assert result.examples
    assert all(len(one.pictures) == 2 for one in result.examples)
    assert " heard 40 sounds and give the same answers to all of them" in result.overview[0]
    result.save(tmp_path / "diff.html")
    assert 'class="sound"' in (tmp_path / "diff.html").read_text()

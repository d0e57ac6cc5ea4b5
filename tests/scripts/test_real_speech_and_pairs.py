"""The generators and figures of the measurements on real speech recognisers and sentence encoders."""

import json
from random import Random

import numpy as np
import pytest
import real_tables

import real_encoder_pairs
import real_speech_times
from espeak import Speech, SpokenWord
from overlaps import FACTS, overlaps
from spoken import in_silence, matched, without

RATE = 100
SPEECH = Speech(
    np.ones(300, dtype=np.float32),
    RATE,
    (SpokenWord("two", 0.0, 1.0), SpokenWord("red", 1.0, 2.0), SpokenWord("cats", 2.0, 3.0)),
)


def test_two_texts_share_one_sentence_or_say_the_same_in_other_words():
    pairs = list(overlaps(40))
    assert pairs == list(overlaps(40))
    for pair in pairs:
        one, two = (own[place] for own, place in zip(pair.texts, pair.places, strict=True))
        assert (one == two) == (pair.wording == "same")
        others = [sentence for own in pair.texts for sentence in own if sentence not in (one, two)]
        assert len(others) == len(set(others)) == sum(map(len, pair.texts)) - 2
        assert all(3 <= len(own) <= 6 for own in pair.texts)


def test_the_two_wordings_of_a_fact_share_at_most_half_of_their_words():
    for one, two in FACTS:
        words = [set(form.lower().replace(".", "").replace(",", "").split()) - {"{}"} for form in (one, two)]
        assert len(words[0] & words[1]) <= min(map(len, words)) / 2, (one, two)


def test_words_keep_their_samples_when_silence_is_set_around_and_between_them():
    utterance = in_silence(0, "two red cats", SPEECH, Random(0))
    for word in utterance.words:
        start, end = round(word.start * RATE), round(word.end * RATE)
        assert utterance.samples[start:end].min() == 1
        assert without(utterance, word)[start:end].max() == 0
        assert without(utterance, word).sum() == pytest.approx(200, abs=1)
    assert utterance.samples.sum() == 300
    assert utterance.words[0].start > 0
    assert utterance.seconds > utterance.words[-1].end
    gaps = [later.start - one.end for one, later in zip(utterance.words, utterance.words[1:], strict=False)]
    assert sorted(round(gap, 2) > 0.3 for gap in gaps) == [False, True]


def test_a_spoken_word_is_matched_with_the_written_one_in_digits_or_not_at_all():
    spoken = tuple(SpokenWord(text, 0, 1) for text in ("anna", "sold", "seven", "cats", "on the"))
    assert matched(spoken, [" Anna", " sold", " 7", " bats", " on", " the."]) == [(0, 0), (1, 1), (2, 2)]


def test_a_sentence_is_first_in_part_where_others_have_the_same_score():
    line = {"scores": [[0.1, 0.4, 0.4], [0.0, 2.0]], "places": [1, 1]}
    assert real_encoder_pairs._hits(line) == [0.5, 1.0]


def test_pairs_are_kept_where_the_model_compares_the_fact(tmp_path):
    lines = [
        {"seed": 0, "wording": "other", "places": [0, 0], "method": "leave one out", "scores": [[2, 1], [2, 1]]},
        {"seed": 0, "wording": "other", "places": [0, 0], "method": "evidence", "scores": [[3, 1], [0, 1]]},
        {"seed": 1, "wording": "other", "places": [0, 0], "method": "leave one out", "scores": [[1, 2], [2, 1]]},
        {"seed": 1, "wording": "other", "places": [0, 0], "method": "evidence", "scores": [[9, 1], [9, 1]]},
    ]
    path = tmp_path / "encoder.jsonl"
    path.write_text("".join(json.dumps(line | {"seconds": 0.5}) + "\n" for line in lines))
    found = real_encoder_pairs.summary([path])["encoder"]["other"]
    assert (found["pairs"], found["kept"]) == (2, 1)
    assert (found["methods"]["evidence"]["first"], found["methods"]["evidence"]["share"]) == (0.5, 0.375)


def test_words_are_counted_over_the_shards_of_a_run_and_those_that_need_their_time_apart(tmp_path):
    for shard, hit in enumerate((1.0, 0.0)):
        about = {"words": 7, "heard": 5, "seconds of sound": 4.0, "losses": [2.0, 0.5]}
        words = [{"hit": hit, "off": 0.0, "share": 0.5}, {"hit": 0.0, "off": 1.0, "share": 0.1}]
        lines = [
            {"seed": shard, "method": "", **about},
            {"seed": shard, "method": "grad_cam", "of": "gradient", "seconds": 1.0, "words": words},
            {"seed": shard, "method": "uniform", "of": "uniform", "seconds": 0.0, "words": words},
        ]
        (tmp_path / f"base-shard{shard}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = real_speech_times.summary(sorted(tmp_path.iterdir()))["base"]
    assert (found["utterances"], found["words heard"], found["words explained"], found["of these needed"]) == (
        2,
        10,
        4,
        2,
    )
    one = found["methods"]["grad_cam"]
    assert (one["hit"], one["off"], one["needed"]["hit"], one["is method"]) == (0.25, 0.5, 0.5, True)
    assert not found["methods"]["uniform"]["is method"]


def test_a_card_names_no_figure_that_was_not_measured():
    text = "It answers {a: b} questions. It hears {c: heard}, and invents. It is small."
    assert real_tables.filled_in(text, {"a: b": "1 of 4"}) == "It answers 1 of 4 questions. It is small."


def test_every_real_model_has_a_card():
    text = real_tables.cards()
    models = real_tables.result("real_models")
    assert [model["title"] for model in models.values() if f"### {model['title']}\n" not in text] == []
    assert "{" not in text

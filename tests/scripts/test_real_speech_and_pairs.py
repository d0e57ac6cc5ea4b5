"""The generators and figures of the measurements on real speech recognisers and sentence encoders."""

import json
from random import Random

import numpy as np
import pytest
import real_tables

import real_encoder_pairs
import real_speech_times
from espeak import Speech, SpokenWord
from overlaps import EVENTS, NAMES, overlaps
from real_encoder_pairs import _control, _hits
from real_limits import words
from spoken import in_silence, matched, read_utterances, save_utterances, without

RATE = 100
SPEECH = Speech(
    np.ones(300, dtype=np.float32),
    RATE,
    (SpokenWord("two", 0.0, 1.0), SpokenWord("red", 1.0, 2.0), SpokenWord("cats", 2.0, 3.0)),
)


def test_two_texts_tell_one_event_in_other_words_and_nothing_else_in_common():
    pairs = list(overlaps(40))
    assert pairs == list(overlaps(40))
    for pair in pairs:
        events = [[_event(sentence) for sentence in own] for own in pair.texts]
        (shared,) = set(events[0]) & set(events[1])
        assert [own.index(shared) for own in events] == list(pair.places)
        assert len(set(events[0] + events[1])) == sum(map(len, events)) - 1
        one, two = (own[place] for own, place in zip(pair.texts, pair.places, strict=True))
        assert one != two
        assert all(3 <= len(own) <= 6 for own in pair.texts)


def _event(sentence):
    """The number of the event that a sentence tells, whatever the place."""
    forms = {form.format(name): n for n, event in enumerate(EVENTS) for form in event for name in NAMES}
    return forms[sentence]


def test_no_control_that_reads_no_model_finds_the_shared_event():
    pairs = list(overlaps(400))
    chance = np.mean([1 / len(own) for pair in pairs for own in pair.texts])
    for name in ("random", "length", "shared words"):
        lines = ({"scores": _control(name, pair, None), "places": pair.places} for pair in pairs)
        found = np.mean([_hits(line) for line in lines])
        assert abs(found - chance) < 0.08, name


def test_the_two_wordings_of_an_event_share_at_most_half_of_their_words():
    for one, two in EVENTS:
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


def test_utterances_are_read_as_they_were_saved_at_the_rate_of_whisper(tmp_path):
    found = in_silence(0, "two red cats", SPEECH, Random(0))
    save_utterances(tmp_path / "spoken.npz", [found])
    (read,) = read_utterances(tmp_path / "spoken.npz", 1)
    assert (read.seed, read.text, read.words) == (found.seed, found.text, found.words)
    assert read.rate == 16_000
    assert read.seconds == pytest.approx(found.seconds, abs=0.01)
    (word, *_), middle = read.words, round((read.words[0].start + read.words[0].end) / 2 * read.rate)
    assert read.samples[middle] == pytest.approx(1, abs=0.1)
    assert abs(read.samples[: round((word.start - 0.1) * read.rate)]).max() < 0.1


def test_words_of_a_transcript_are_compared_with_numbers_spelled_out():
    assert words("Our doctor sold 7 lamps, in 1990.") == ["our", "doctor", "sold", "seven", "lamps", "in", "1990"]


def test_a_spoken_word_is_matched_with_the_written_one_in_digits_or_not_at_all():
    spoken = tuple(SpokenWord(text, 0, 1) for text in ("anna", "sold", "seven", "cats", "on the"))
    assert matched(spoken, [" Anna", " sold", " 7", " bats", " on", " the."]) == [(0, 0), (1, 1), (2, 2)]


def test_a_sentence_is_first_in_part_where_others_have_the_same_score():
    line = {"scores": [[0.1, 0.4, 0.4], [0.0, 2.0]], "places": [1, 1]}
    assert _hits(line) == [0.5, 1.0]


def test_pairs_are_kept_where_the_model_compares_the_fact(tmp_path):
    lines = [
        {"seed": 0, "places": [0, 0], "method": "leave one out", "scores": [[2, 1], [2, 1]]},
        {"seed": 0, "places": [0, 0], "method": "evidence", "scores": [[3, 1], [0, 1]]},
        {"seed": 1, "places": [0, 0], "method": "leave one out", "scores": [[1, 2], [2, 1]]},
        {"seed": 1, "places": [0, 0], "method": "evidence", "scores": [[9, 1], [9, 1]]},
    ]
    path = tmp_path / "encoder.jsonl"
    path.write_text("".join(json.dumps(line | {"seconds": 0.5}) + "\n" for line in lines))
    found = real_encoder_pairs.summary([path])["encoder"]
    assert (found["pairs"], found["kept"], found["chance"]) == (2, 1, 0.5)
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

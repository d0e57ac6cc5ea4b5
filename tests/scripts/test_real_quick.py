"""The quick suites on real models: what they print, and why one cannot run."""

import json

import pytest

import real_models
import real_quick
from real_quick import SUITES, reason_not_to_run, run


def line(seed, method, **more):
    return {"seed": seed, "answer": "verbatim", "method": method, **more}


def test_responses_are_read_from_their_lines(tmp_path):
    about = {"kind": "plain", "hops": 1, "sentences": 9, "causes": [[0]], "subsets": []}
    lines = [
        line(0, "", **about, kept=True),
        line(1, "", **about, kept=False),
        line(0, "good", scores=[3.0, 1.0], seconds=1.0, drops={}),
        line(0, "bad", scores=[1.0, 3.0], seconds=1.0, drops={}),
    ]
    path = tmp_path / "responses.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert real_quick.responses(path) == ("1 of 2 questions", [("good", 1.0), ("bad", 0.0)])


def test_pairs_are_read_from_their_lines(tmp_path):
    lines = [
        {"seed": seed, "places": [0, 0], "seconds": 1.0, "method": method, "scores": scores}
        for seed in range(3)
        for method, scores in (("leave one out", [[1, 0], [1, 0]]), ("half", [[1, 0], [0, 1]]))
    ]
    path = tmp_path / "encoders.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    about, rows = real_quick.encoders(path)
    assert about == "3 of 3 pairs"
    assert dict(rows) == {"leave one out": 1.0, "half": 0.5}


def test_words_are_read_from_their_lines(tmp_path):
    facts = {"words": 7, "heard": 6, "losses": [2.0, 0.5], "seconds of sound": 4.0}
    words = [{"hit": 1.0, "off": 0.0, "share": 0.5}, {"hit": 0.0, "off": 1.0, "share": 0.1}]
    lines = [{"seed": 0, "method": "", **facts}, {"seed": 0, "method": "rollout", "words": words, "seconds": 1.0}]
    path = tmp_path / "speech.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert real_quick.speech(path) == ("2 words of 1 sentences", [("rollout", 0.5)])


def test_a_suite_that_cannot_run_says_why_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("WHYFORMER_REAL_MODELS", str(tmp_path))
    (one,) = run("responses", tmp_path)
    folder = tmp_path / "models" / "smollm2-135m-instruct"
    script = "python benchmarks/real_models.py smollm2-135m-instruct"
    assert one == f"responses: not run, SmolLM2-135M-Instruct is not in {folder}: {script}"
    (tmp_path / "models" / "whisper-tiny.en").mkdir(parents=True)
    monkeypatch.setattr(real_quick, "find_library", lambda name: None)
    assert reason_not_to_run(SUITES["speech"]) == "espeak-ng is not installed: apt install espeak-ng"
    monkeypatch.setattr(real_quick, "find_library", lambda name: f"lib{name}.so")
    assert reason_not_to_run(SUITES["speech"]) is None


def test_an_unknown_suite_is_refused(monkeypatch):
    monkeypatch.setattr("sys.argv", ["real_quick.py", "photos"])
    with pytest.raises(SystemExit, match=r"No quick suite 'photos'\. Known: responses, encoders, speech\."):
        real_quick.main()


def test_verified_models_are_listed_with_their_time():
    report = {"gte-small": {"parameters": 33_000_000, "checks": [1, 2], "seconds": 12}}
    rows = real_models.verified(report).splitlines()
    assert rows[0].split() == ["gte-small", "33", "million", "weights,", "2", "checks", "12", "s"]
    assert rows[1] == "1 models verified, 12 s"

"""`whyformer diff`: two models over a table, one report, an exit code."""

import copy
import csv

import pytest
import torch

from commands import invoke
from whyformer import ModelDiff, load

FILMS = ["a wonderful film", "dull to the end", "wonderful, all of it", "a dull film"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """mini-bert, and a copy that takes "wonderful" for "dull"; with a table of films."""
    place = tmp_path_factory.mktemp("models")
    old = load("mini-bert", device="cpu")
    changed = copy.deepcopy(old.model)
    numbers = old.tokenizer(["wonderful", "dull"], add_special_tokens=False)["input_ids"]
    weights = changed.get_input_embeddings().weight
    with torch.no_grad():
        weights[numbers[0]] = weights[numbers[1]]
    for name, model in (("old", old.model), ("new", changed)):
        model.save_pretrained(place / name)
        old.tokenizer.save_pretrained(place / name)
    with (place / "films.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *[[text] for text in FILMS * 8]])
    return place


def run(folders, *arguments):
    return invoke(
        *("diff", folders / "old", arguments[0], folders / "films.csv", "--method", "rollout", "--device", "cpu"),
        *arguments[1:],
    )


def test_a_changed_model_fails_the_limits(folders, tmp_path):
    out = tmp_path / "diff.html"
    done = run(folders, folders / "new", "--out", out, "--fail-if-changed", "0.05", "--fail-if-cues-changed", "0")
    assert done.exit_code == 1, done.output
    result = ModelDiff.load(tmp_path / "diff.json")
    assert {number for number in range(32) if "wonderful" in FILMS[number % 4]} == set(result.changed_samples)
    assert {change.cue.name for change in result.changed_cues if change.cue.kind == "word"} == {"wonderful"}
    assert "whyformer: 50.0% of the answers changed, more than 5.0%." in done.stderr
    assert f"The effects of {len(result.changed_cues)} cues changed, more than 0." in done.stderr
    assert "differ in the answers to 16 of them (50.0%), most often negative instead of positive (16)." in done.stdout
    assert "another answer" in out.read_text()
    assert {path.name for path in tmp_path.iterdir()} == {
        *("diff.html", "diff.json", "diff.first.jsonl", "diff.second.jsonl")
    }


def test_the_same_model_passes_them(folders, tmp_path):
    limits = ("--fail-if-changed", "0", "--fail-if-reasons-changed", "0", "--fail-if-cues-changed", "0")
    done = run(folders, folders / "old", "--out", tmp_path / "diff.html", "-q", *limits)
    assert (done.exit_code, done.output) == (0, "")


def test_limits_are_checked_before_any_work(folders, tmp_path):
    done = run(folders, folders / "new", "--out", tmp_path / "diff.html", "--fail-if-reasons-changed", "5")
    assert done.exit_code == 2
    assert done.stderr == "whyformer: --fail-if-reasons-changed 5: a share from 0 to 1.\n"
    done = run(folders, folders / "new", "--out", tmp_path / "diff.pdf")
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])

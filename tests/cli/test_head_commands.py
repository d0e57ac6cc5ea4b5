"""The heads of texts on the command line: the same explanations as from Python, and refusals in a line."""

import json

import numpy as np
import pytest

from commands import invoke, refusal, run
from whyformer import Candidates, at, contrast, explain, explain_targets

TEXT = "it came out in new york, not in paris."
QUESTION, PASSAGE = "when was it?", "the film was not great. it came out in 1969, in paris."
CASES = {
    "a tag": ("bert tags", TEXT, at("paris", "B-LOC"), [TEXT, "--at", "paris", "--target", "B-LOC"]),
    "a word by number": ("bert tags", TEXT, at(9, "LOC"), [TEXT, "--at", "9", "--target", "LOC"]),
    "a tag against another": (
        "bert tags",
        TEXT,
        at("paris", contrast("B-LOC", "O")),
        [TEXT, "--at", "paris", "--target", "B-LOC", "--rather-than", "O"],
    ),
    "an answer": (
        "bert span",
        (QUESTION, PASSAGE),
        "1969",
        [QUESTION, "--pair", PASSAGE, "--target", "1969"],
    ),
    "an answer by its place": (
        "bert span",
        (QUESTION, PASSAGE),
        at(36, "in 1969"),
        [QUESTION, "--pair", PASSAGE, "--target", "in 1969", "--at", "36"],
    ),
    "a masked word": ("bert masks", "the [MASK] was", "film", ["the [MASK] was", "--target", "film"]),
    "a second mask": (
        "bert masks",
        "the [MASK] was [MASK]",
        at(1, "bad"),
        ["the [MASK] was [MASK]", "--target", "bad", "--at", "1"],
    ),
    "a residue": ("esm masks", "MKT<mask>LLVA", "G", ["MKT<mask>LLVA", "--target", "G"]),
    "a choice": (
        "bert choice",
        ("the film was", ["great", "not bad"]),
        "not bad",
        ["the film was", "--text", "great", "--text", "not bad", "--target", "1"],
    ),
    "a candidate label": (
        "bert inference",
        ("the film came out", Candidates(["new", "bad"], "it was {}")),
        "bad",
        ["the film came out", "--text", "new", "--text", "bad", "--template", "it was {}", "--target", "bad"],
    ),
    "a next sentence": (
        "bert next",
        ("it is", "it was"),
        "is next",
        ["it is", "--pair", "it was", "--target", "is next"],
    ),
    "a number": ("bert value", "a bad film", "predicted", ["a bad film"]),
    "an embedding": ("bert embedding", ("it is", "it was"), "predicted", ["it is", "--pair", "it was"]),
}


def folder(model):
    return model.model.name_or_path


@pytest.mark.parametrize("case", CASES)
def test_a_head_is_asked_as_from_python(head, case):
    name, example, target, arguments = CASES[case]
    model = head(name)
    expected = explain(example, model, target, "generic_attention")
    printed = json.loads(
        run(
            "explain",
            *arguments,
            "--model",
            folder(model),
            "--method",
            "generic_attention",
            "--json",
            "--device",
            "cpu",
        )
    )
    assert (printed["target"], list(expected.notes)) == (expected.target, printed["notes"])
    assert printed["probability"] == (
        None if expected.probability is None else pytest.approx(expected.probability, rel=1e-5)
    )
    scores = expected.parts["text"].scores
    np.testing.assert_allclose(printed["parts"]["text"]["scores"], scores, rtol=1e-4, atol=1e-6 * np.abs(scores).max())


def test_every_answer_is_explained_in_turn(head, tmp_path):
    model, text = head("bert masks"), "the [MASK] was [MASK]"
    expected = explain_targets(text, model, method="rollout")
    asked = ["explain", text, "--model", folder(model), "--each", "--method", "rollout", "--device", "cpu"]
    assert run(*asked) == "".join(f"{one}\n" for one in expected)
    lines = run(*asked, "--json").splitlines()
    assert [json.loads(line)["target"] for line in lines] == [one.target for one in expected]
    run(*asked, "--out", tmp_path / "masks.html", "--quiet")
    page = (tmp_path / "masks.html").read_text()
    assert all(one.target.replace("'", "&#39;") in page for one in expected)
    run(*asked, "--out", tmp_path / "masks", "--format", "json", "--quiet")
    assert sorted(file.name for file in (tmp_path / "masks").iterdir()) == ["text-1.json", "text-2.json"]


def test_that_nothing_is_found_is_said(head, tmp_path, monkeypatch):
    monkeypatch.setattr("whyformer.api.multiple_targets.every_target", lambda *_, **__: [])
    result = invoke("explain", TEXT, "--model", folder(head("bert tags")), "--each", "--out", tmp_path / "tags.html")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{TEXT}: bert-tags finds nothing to explain.\n"
    assert not (tmp_path / "tags.html").exists()


REFUSALS = {
    "--each explains every answer of the model: leave the target out.": ("bert tags", "a", "--each", "--target", "O"),
    "bert-span reads two texts: add the passage that has the answer by --pair.": ("bert span", "when?"),
    "bert-next reads two texts: add the text that may follow by --pair.": ("bert next", "it is"),
    "bert-choice chooses among texts: add each choice by --text, such as --text blue.": ("bert choice", "it is"),
    "--text needs a model that reads pictures with text, and bert-value does not: leave it out.": (
        "bert value",
        "a",
        "--text",
        "b",
    ),
    "--template is for candidate labels: give them by --text to an inference model.": (
        *("bert value", "it is", "--template", "{}"),
    ),
    "The template 'it' has no {} where the label goes.": (
        *("bert inference", "it is", "--text", "new", "--template", "it"),
    ),
    "bert-next answers at one place: give a label's name or index, contrast(label, other).": (
        *("bert next", "it is", "--pair", "it was", "--at", "it"),
    ),
    "No word 'its' in the text. Did you mean 'it' or 'is'?": ("bert tags", "it is", "--at", "its"),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_what_does_not_fit_a_head_is_refused_in_a_line(head, message):
    name, *arguments = REFUSALS[message]
    assert refusal("explain", *arguments, "--model", folder(head(name))) == message


def test_the_doctor_says_what_the_targets_are_called(head):
    lines = run("doctor", folder(head("bert tags"))).splitlines()
    facts = {line[:15].strip(): line for line in lines}
    assert facts["answers with"].endswith("a tag for each word, 5: O, B-LOC, I-LOC, B-DATE, I-DATE")
    assert facts["targets"].endswith("explain_targets takes every entity")

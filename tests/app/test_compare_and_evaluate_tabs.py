"""The tabs Compare and Evaluate without a browser."""

import contextlib
import json
import re
import shlex
import subprocess

import numpy as np
import pytest

from commands import run
from whyformer import WhyformerError, evaluate, explain
from whyformer.app.bundled_examples import CAT, REVIEWS
from whyformer.app.comparison_tab import ComparisonInputs, compare_methods
from whyformer.app.evaluation_tab import SEED, EvaluationInputs, measure
from whyformer.app.limits import Limits
from whyformer.app.models import model_choice
from whyformer.app.setup import Setup
from whyformer.app.work import Stopped, Work, follow

TEXT = "A dull film, but I loved the music."
FEW = "\n".join(REVIEWS.splitlines()[:4])


@pytest.fixture(scope="module")
def setup():
    return Setup(model_choice())


def compared(setup, **asked):
    return compare_methods(Work(seconds=600), setup, ComparisonInputs(**asked))


def measured(setup, **asked):
    return measure(Work(seconds=600), setup, EvaluationInputs(**asked))


def test_each_cell_is_what_explain_gives_and_the_code_gives_the_same(setup, tmp_path):
    asked = {"text": TEXT, "model": "mini-bert", "labels": ["positive", "negative"]}
    view = compared(setup, **asked, methods=["raw_attention", "grad_cam"])
    paths = view.save(tmp_path)
    cells = json.loads(paths[".json"].read_text())["explanations"]
    assert [(cell["target"], cell["column"]) for cell in cells] == [
        ("positive", "raw_attention"),
        ("positive", "grad_cam"),
        ("negative", "raw_attention"),
        ("negative", "grad_cam"),
    ]
    expected = explain(TEXT, "mini-bert", "negative", "grad_cam")
    np.testing.assert_allclose(cells[3]["parts"]["text"]["scores"], expected.scores, rtol=1e-3, atol=1e-6)
    assert paths[".png"].read_bytes().startswith(b"\x89PNG")
    with contextlib.chdir(tmp_path):
        names = {}
        exec(view.code.python, names)
        _, command, *arguments = shlex.split(view.code.command)
        printed = [json.loads(line) for line in run(command, "--json", "--quiet", *arguments).splitlines()]
    again = [[one.to_dict() for row in names["table"] for one in row], printed]
    for others in again:
        for cell, other in zip(cells, others, strict=True):
            own, its = (one["parts"]["text"]["scores"] for one in (cell, other))
            np.testing.assert_allclose(own, its, rtol=1e-3, atol=1e-6)


def test_a_comparison_stands_in_a_frame_where_no_script_runs(setup):
    view = compared(setup, picture=str(CAT), methods=["raw_attention"], labels=["dog", "no such label"])
    assert view.choice == ["dog"]
    assert 'sandbox="allow-same-origin"' in view.html
    assert "&lt;!doctype html&gt;" in view.html
    assert "<script" not in view.html


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"model": "mini-bert"}, "This model reads texts: type one first, or click an example"),
        ({"model": "mini-vit"}, "Choose a picture first"),
        ({"model": "mini-detr"}, "does not offer the model 'mini-detr', but mini-vit, mini-vit-mae, mini-bert"),
        ({"methods": list("abcdefg")}, "7 methods, but this page takes at most 6"),
        ({"labels": list("abcde")}, "5 labels, but this page takes at most 4"),
    ],
)
def test_what_cannot_be_compared_says_why(setup, asked, message):
    with pytest.raises(WhyformerError, match=re.escape(message)):
        compared(setup, **asked)


def test_texts_are_measured_and_the_code_gives_the_same_figures(setup, tmp_path):
    view = measured(setup, model="mini-bert", texts=FEW, methods=["raw_attention"])
    paths = view.save(tmp_path)
    results = json.loads(paths[".json"].read_text())
    assert paths[".html"].read_text().startswith("<!doctype html>")
    assert paths[".png"].read_bytes().startswith(b"\x89PNG")
    expected = evaluate("mini-bert", FEW.splitlines(), ["raw_attention"], ["text_perturbation"], seed=SEED)
    assert rows(results) == rows(expected.results)
    assert {method for method, _ in rows(results)} == {"raw_attention", "random"}
    with contextlib.chdir(tmp_path):
        *files, measuring, reporting = view.code.command.split("\n")
        subprocess.run(["sh", "-c", "\n".join(files)], check=True)
        run(*shlex.split(measuring)[1:], "--quiet")
        run(*shlex.split(reporting)[1:], "--quiet")
        assert rows(json.loads((tmp_path / "results" / "results.json").read_text())) == rows(results)


def rows(results):
    return [
        (row["method"], round(row["value"], 6))
        for protocol in results["protocols"]
        for table in protocol["tables"]
        for row in table["rows"]
    ]


def test_an_evaluation_says_how_far_it_is_and_can_be_stopped(setup):
    seen = []

    def action(work):
        def step(done, total, doing):
            seen.append((done, total))
            Work.step(work, done, total, doing)
            if done == 1 and total == 2:
                work.stop()

        work.step = step
        return measure(work, setup, EvaluationInputs("mini-bert", REVIEWS, methods=["raw_attention"]))

    with pytest.raises(Stopped):
        list(follow(action, Work(600)))
    assert seen[-1] == (1, 2)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"model": "mini-bert"}, "Type texts first, one per line, or click an example"),
        ({"model": "mini-vit"}, "Send pictures first, or click an example"),
        ({"model": "mini-bert", "methods": ()}, "Choose at least one method"),
        ({"model": "mini-bert", "texts": "a\nb\nc"}, "3 texts, but this page takes at most 2"),
        ({"model": "mini-lxmert", "scenes": 3}, "3 scenes, but this page takes at most 2"),
        ({"model": "mini-vlm", "texts": "a"}, "mini-vlm is evaluated from Python or by a suite"),
    ],
)
def test_what_cannot_be_measured_says_why(setup, asked, message):
    small = Setup(setup.models, Limits(examples=2))
    with pytest.raises(WhyformerError, match=message):
        measured(small, **asked)


def test_pictures_are_measured(setup, tmp_path):
    (tmp_path / "cat.jpg").write_bytes(CAT.read_bytes())
    view = measured(setup, model="mini-vit-mae", pictures=[str(tmp_path / "cat.jpg")], methods=["raw_attention"])
    assert "Image.open(name) for name in ['cat.jpg']" in view.code.python
    results = json.loads(view.save(tmp_path)[".json"].read_text())
    with contextlib.chdir(tmp_path):
        names = {}
        exec(view.code.python, names)
    assert rows(names["result"].results) == rows(results)

"""The tabs Picture and Text without a browser: what is shown, downloaded, and given as code."""

import contextlib
import json
import re
import shlex
from html import unescape

import numpy as np
import pytest

from commands import run
from whyformer import Explanation, WhyformerError, contrast, explain
from whyformer.app.bundled_examples import CAT
from whyformer.app.label_tabs import LabelQuestion, explain_picture, explain_text
from whyformer.app.limits import Limits
from whyformer.app.models import model_choice
from whyformer.app.setup import Setup
from whyformer.app.work import Work

TEXT = "- It's a dull film, but I loved the <b>music</b>."


@pytest.fixture(scope="module")
def setup():
    return Setup(model_choice())


@pytest.fixture
def cat(tmp_path):
    path = tmp_path / "my cat.jpg"
    path.write_bytes(CAT.read_bytes())
    return path


def work():
    return Work(seconds=600)


def download(view, folder):
    return Explanation.load(view.save(folder)[".json"])


def assert_code_gives(explanation, view, folder):
    """Both the Python and the command line give the same scores, run in a folder with the file."""
    with contextlib.chdir(folder):
        names = {}
        exec(view.code.python, names)
        np.testing.assert_allclose(names["explanation"].scores, explanation.scores, rtol=1e-4, atol=1e-6)
        program, *arguments = shlex.split(view.code.command)
        assert program == "whyformer"
        shown = json.loads(run(*arguments[:1], "--json", "--quiet", *arguments[1:]).splitlines()[0])
        (part,) = shown["parts"].values()
        np.testing.assert_allclose(part["scores"], explanation.scores, rtol=1e-4, atol=1e-6)
        assert (folder / "explanation.html").is_file()


def test_a_picture_is_explained_as_by_the_library_and_its_code_gives_the_same(setup, cat, tmp_path):
    view = explain_picture(work(), setup, str(cat), LabelQuestion(methods=["rollout"]))
    explanation = download(view, tmp_path)
    assert explanation.target == "cat"
    np.testing.assert_allclose(explanation.scores, explain(cat, "mini-vit", method="rollout").scores, rtol=1e-4)
    assert_code_gives(explanation, view, tmp_path)


def test_each_patch_is_a_cell_with_its_place_and_its_score(setup, cat, tmp_path):
    view = explain_picture(work(), setup, str(cat), LabelQuestion(methods=["rollout"]))
    part = download(view, tmp_path).parts["image"]
    (content,) = re.findall(r'data-cells="([^"]*)"', view.html)
    cells = json.loads(unescape(content))
    assert [cell[4] for cell in cells] == list(part.tokens)
    assert [float(cell[5].split(" · ")[0]) for cell in cells] == pytest.approx(part.scores.tolist(), rel=0.01)
    strongest = int(np.argmax(part.scores))
    assert cells[strongest][5].endswith(f"1st of {len(part.scores)}")
    left, top, right, bottom = part.layout.box
    width, height = part.layout.image.size
    assert sum(cell[2] * cell[3] for cell in cells) / 1e4 == pytest.approx(
        (right - left) * (bottom - top) / (width * height), rel=0.01
    )


def test_labels_come_with_their_probabilities_the_likeliest_first(setup, cat):
    view = explain_picture(work(), setup, str(cat), LabelQuestion(methods=["raw_attention"]))
    probability = explain(cat, "mini-vit", method="raw_attention").probability
    assert view.choices[0] == (f"cat · {100 * probability:.0f} %", "cat")
    assert len(view.choices) == 11
    assert view.choice == "cat"


def test_a_label_is_explained_against_another(setup, tmp_path):
    asked = LabelQuestion("mini-bert", "negative", "positive", ["grad_cam"])
    view = explain_text(work(), setup, TEXT, asked)
    explanation = download(view, tmp_path)
    expected = explain(TEXT, "mini-bert", contrast("negative", "positive"), "grad_cam")
    assert explanation.target == expected.target
    np.testing.assert_allclose(explanation.scores, expected.scores, rtol=1e-4, atol=1e-7)
    assert_code_gives(explanation, view, tmp_path)


def test_what_a_visitor_typed_is_escaped(setup):
    view = explain_text(work(), setup, TEXT, LabelQuestion("mini-bert", methods=["raw_attention"]))
    assert "<b>music" not in view.html
    assert "music" in view.html


def test_two_methods_stand_side_by_side_and_are_downloaded_as_one(setup, tmp_path):
    view = explain_text(work(), setup, TEXT, LabelQuestion("mini-bert", methods=["raw_attention", "rollout"]))
    assert view.html.count("<article>") == 2
    paths = view.save(tmp_path)
    assert set(paths) == {".html", ".png", ".json"}
    both = json.loads(paths[".json"].read_text())["explanations"]
    assert [one["method"] for one in both] == ["raw_attention", "rollout"]
    assert paths[".png"].read_bytes().startswith(b"\x89PNG")
    assert "raw_attention_explanation" in view.code.python
    assert view.code.command.count("whyformer explain") == 2


def test_a_label_that_the_model_does_not_have_is_the_predicted_one(setup, tmp_path):
    view = explain_text(work(), setup, TEXT, LabelQuestion("mini-bert", "cat", "dog", ["raw_attention"]))
    assert download(view, tmp_path).target == explain(TEXT, "mini-bert", method="raw_attention").target


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((None, LabelQuestion()), "Choose a picture first"),
        (("gone.jpg", LabelQuestion()), "no longer kept here: upload it again"),
        ((__file__, LabelQuestion()), "is not a readable picture: choose a JPEG, PNG or WebP file"),
        ((str(CAT), LabelQuestion("mini-bert")), "does not offer the model 'mini-bert', but mini-vit, mini-vit-mae."),
        ((str(CAT), LabelQuestion("../../etc")), "does not offer the model '../../etc'"),
        ((str(CAT), LabelQuestion(label="cat", rather_than="cat")), "'cat' cannot be explained against itself"),
        ((str(CAT), LabelQuestion(methods=["rollout", "lrp", "random"])), "3 methods, but this page takes at most 2"),
        ((str(CAT), LabelQuestion(methods=["rolout"])), "No method named 'rolout'. Did you mean 'rollout'?"),
    ],
)
def test_a_picture_that_cannot_be_explained_says_why(setup, asked, message):
    with pytest.raises(WhyformerError, match=re.escape(message)):
        explain_picture(work(), setup, *asked)


def test_limits_are_checked_before_anything_is_computed(setup):
    small = Setup(setup.models, Limits(file_bytes=1 << 10, pixels=10, characters=5))
    with pytest.raises(
        WhyformerError, match=r"cat.jpg has 0.0 MB, but this page takes at most 0 MB: choose a smaller file"
    ):
        explain_picture(work(), small, str(CAT), LabelQuestion())
    with pytest.raises(
        WhyformerError, match="451 × 300 pixels, but this page takes at most 0 million: make it smaller first"
    ):
        explain_picture(work(), Setup(setup.models, Limits(pixels=10)), str(CAT), LabelQuestion())
    with pytest.raises(WhyformerError, match="The text has 6 characters, but this page takes at most 5: shorten it"):
        explain_text(work(), small, "a film", LabelQuestion())
    with pytest.raises(WhyformerError, match="Type a text first, or click an example"):
        explain_text(work(), small, "  ", LabelQuestion())

"""The tabs Picture + text and Detection without a browser."""

import contextlib
import json
import re

import numpy as np
import pytest
from PIL import Image

from commands import run_script
from whyformer import Continuation, Explanation, WhyformerError, detection, explain, explain_targets
from whyformer.app.bundled_examples import CAPTION_CHOICES, CAT, scene_files, scene_question
from whyformer.app.detection_tab import explain_detection, finds
from whyformer.app.limits import Limits
from whyformer.app.models import model_choice, open_model
from whyformer.app.pair_tab import Pair, explain_pair
from whyformer.app.setup import Setup
from whyformer.app.work import Work
from whyformer.scenes import example

SCENE, REGIONS = scene_files()


@pytest.fixture(scope="module")
def setup():
    return Setup(model_choice())


def answer(setup, **pair):
    return explain_pair(Work(seconds=600), setup, Pair(**pair))


def download(view, folder):
    return Explanation.load(view.save(folder)[".json"])


def all_scores(result):
    return [part["scores"] for part in result["parts"].values()]


def assert_code_gives(view, folder, name="explanation"):
    """Both the Python and the command line give the scores that are downloaded, run beside the file."""
    saved = json.loads(view.save(folder)[".json"].read_text())
    with contextlib.chdir(folder):
        names = {}
        exec(view.code.python, names)
        (printed,) = map(json.loads, run_script(view.code.command, "--json", "--quiet"))
    for again in (names[name].to_dict(), printed):
        both = [(saved, again)]
        if "explanations" in saved:
            both = list(zip(saved["explanations"], again["explanations"], strict=True))
        for one, other in both:
            for own, its in zip(all_scores(one), all_scores(other), strict=True):
                np.testing.assert_allclose(own, its, rtol=1e-3, atol=1e-6)


def test_a_picture_is_compared_with_texts(setup, tmp_path):
    view = answer(setup, picture=str(CAT), text=CAPTION_CHOICES, model="mini-clip", method="rollout")
    explanation = download(view, tmp_path)
    texts = CAPTION_CHOICES.split("\n")
    expected = explain((CAT, texts), "mini-clip", method="rollout")
    assert (explanation.target, view.choice) == (expected.target, "a photo of a cat")
    assert view.choices[0] == (f"a photo of a cat · {100 * expected.probability:.0f} %", "a photo of a cat")
    assert sorted(text for _, text in view.choices) == sorted(texts)
    assert_code_gives(view, tmp_path)
    other = answer(setup, picture=str(CAT), text=CAPTION_CHOICES, model="mini-clip", target=texts[1], method="rollout")
    assert download(other, tmp_path).target == texts[1]


def test_a_question_about_regions_is_answered(setup, tmp_path):
    scene = example(3)
    asked = {"regions": REGIONS, "text": scene_question(), "model": "mini-lxmert", "method": "rollout"}
    view = answer(setup, **asked)
    explanation = download(view, tmp_path)
    assert explanation.target == scene.answer
    expected = explain((scene.regions, scene.question), "mini-lxmert", method="rollout")
    np.testing.assert_allclose(explanation.parts["image"].scores, expected.parts["image"].scores, rtol=1e-3, atol=1e-6)
    assert_code_gives(view, tmp_path)


def test_each_word_that_is_written_about_a_picture_can_be_chosen(setup, tmp_path):
    view = answer(setup, picture=SCENE, text=scene_question(), model="mini-vlm")
    result = Continuation.load(view.save(tmp_path)[".json"])
    assert result.text.strip() == example(3).reply
    words = re.search(r'<p class="words".*?</p>', view.html, flags=re.DOTALL)[0]
    assert words.count("<button") == len(result.explanations) == view.html.count("<article")
    assert view.html.count("<article hidden") == len(result.explanations) - 1
    assert "It wrote this. Choose a word to see what it rests on.</p>" in view.html
    assert_code_gives(view, tmp_path, "continuation")


def test_a_text_that_is_cut_at_the_limit_says_so(setup):
    small = Setup(setup.models, Limits(picture_tokens=2))
    view = answer(small, picture=SCENE, text=scene_question(), model="mini-vlm", method="raw_attention")
    assert "rests on. This page limits its text about a picture to 2 tokens: it may be cut off.</p>" in view.html


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ({"picture": SCENE}, "Type a text to compare the picture with, or a question, or click an example"),
        ({"text": "a cat"}, "Choose a picture first"),
        ({"text": "a cat", "model": "mini-lxmert"}, "mini-lxmert reads regions of a picture: upload their .npz file"),
        ({"text": "a", "model": "mini-lxmert", "regions": SCENE}, "holds no regions (image, boxes and features in an"),
        (
            {"text": "\n".join("abcdefghijklmnopqrstuvwxyz"), "picture": SCENE},
            "26 texts, but this page takes at most 20",
        ),
    ],
)
def test_a_pair_that_cannot_be_explained_says_why(setup, pair, message):
    with pytest.raises(WhyformerError, match=re.escape(message)):
        answer(setup, **pair)


def test_finds_are_those_that_the_library_explains_and_lie_where_they_are(setup):
    picture = Image.open(SCENE)
    found = finds(picture, open_model("mini-detr"))
    expected = explain_targets(picture, "mini-detr", method="raw_attention")
    assert [find.probability for find in found] == sorted((one.probability for one in expected), reverse=True)
    for one in expected:
        left, top, right, bottom = one.parts["image"].layout.outline
        (find,) = [find for find in found if find.label == one.target]
        place = (find.left, find.top, find.left + find.width, find.top + find.height)
        assert place == pytest.approx([100 * side / 64 for side in (left, top, right, bottom)], abs=0.02)


def test_a_find_is_explained_and_its_code_gives_the_same(setup, tmp_path):
    first = explain_detection(Work(seconds=600), setup, SCENE, None, None, "rollout")
    assert first.html.count("data-find=") == len(first.choices) == 3
    last = first.choices[-1][1]
    view = explain_detection(Work(seconds=600), setup, SCENE, "mini-detr", last, "rollout")
    assert view.choice == last
    expected = explain(SCENE, "mini-detr", detection(last), "rollout")
    np.testing.assert_allclose(download(view, tmp_path).scores, expected.scores, rtol=1e-3, atol=1e-6)
    assert_code_gives(view, tmp_path)


def test_a_picture_without_anything_in_it_says_so(setup, tmp_path):
    Image.new("RGB", (64, 64), "black").save(tmp_path / "black.png")
    with pytest.raises(WhyformerError, match="mini-detr finds no objects in this picture: try another"):
        explain_detection(Work(seconds=600), setup, str(tmp_path / "black.png"), None)

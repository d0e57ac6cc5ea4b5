"""The pytest plugin: reasons of mini-bert, mini-vit and of functions as tests."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import whyformer
from whyformer import WhyformerError, explain, load, survey
from whyformer.testing import assert_ignores, assert_relies_on, survey_budget
from whyformer.testing.snapshots import Snapshots

pytest_plugins = ["pytester"]
SOURCE = Path(whyformer.__file__).parents[1]
CAT = SOURCE / "whyformer" / "zoo" / "cat.jpg"
FILMS = ["a wonderful film", "a dull but wonderful film of the year", "nobody was there"]


@pytest.fixture(scope="module")
def bert():
    return load("mini-bert", device="cpu")


@pytest.fixture(scope="module")
def vit():
    return load("mini-vit", device="cpu")


def judge(texts):
    """Answers with log-odds of 2 for "good", −1 for "bad" and 0.1 for "film"."""
    odds = np.array([2.0 * ("good" in text) - 1.0 * ("bad" in text) + 0.1 * ("film" in text) for text in texts])
    return np.stack([1 / (1 + np.exp(odds)), 1 / (1 + np.exp(-odds))], axis=1)


def test_a_function_relies_on_the_word_that_it_reads():
    texts = ["a good film", "good or bad", "none of them"]
    assert_relies_on(None, texts, "good", predict=judge)
    assert_relies_on(None, texts, "good", predict=judge, tolerance=1.9)
    assert_ignores(None, texts, "film", predict=judge)
    with pytest.raises(AssertionError, match=r"judge relies on “film”: without it the log-odds .* change by 0.10 nats"):
        assert_ignores(None, texts, "film", predict=judge, tolerance=0.05)


def test_a_failure_shows_the_effect_in_each_example():
    with pytest.raises(AssertionError) as failure:
        assert_ignores(None, ["so good", "bad but good", "a film"], "good", predict=judge, labels=["no", "yes"])
    first, heading, *rows = str(failure.value).splitlines()
    assert first == (
        "judge relies on “good”: without it the log-odds of the answer change by 2.00 nats over 2 examples, "
        "and 0.5 are allowed. Without it from the start: 1."
    )
    assert heading.split()[:2] == ["drop", "random"]
    assert [re.sub(" +", " ", row).strip() for row in rows] == [
        "2.00 0.00 yes → no: so good",
        "2.00 -0.67 yes → no: bad but good",
    ]


def test_an_ignored_word_fails_to_be_relied_on():
    with pytest.raises(AssertionError, match=r"does not rely on “film”: .* fall by .* nats more than without random"):
        assert_relies_on(None, ["a good film", "one film"], "film", predict=judge)


def test_what_cannot_be_tested_does_not_pass():
    with pytest.raises(WhyformerError, match=r"No example has 'plot' and something else besides it \(2 given\)"):
        assert_ignores(None, ["a good film", "so bad"], "plot", predict=judge)
    with pytest.raises(WhyformerError, match=r"No example has 'good' and something else besides it \(1 given\)"):
        assert_ignores(None, ["good"], "good", predict=judge)
    with pytest.raises(WhyformerError, match="Give either a model, or None and a function"):
        assert_ignores("mini-bert", ["a film"], "film", predict=judge)
    with pytest.raises(WhyformerError, match="tolerance=-1: nats, at least 0"):
        assert_relies_on(None, ["a good film"], "film", predict=judge, tolerance=-1)
    with pytest.raises(WhyformerError, match="has 4 words: 1 to 3 make a cue"):
        assert_ignores(None, ["a good film"], "one two three four", predict=judge)


def test_mini_bert_relies_on_sentiment_and_not_on_the_article(bert):
    assert_relies_on(bert, FILMS, "wonderful")
    assert_ignores(bert, ["a wonderful film", "it is a wonderful and moving picture"], "a", tolerance=0.6)
    with pytest.raises(AssertionError, match=r"(?s)mini-bert relies on “wonderful”.* positive → negative: a dull"):
        assert_ignores(bert, FILMS, "wonderful")
    with pytest.raises(
        WhyformerError, match="mini-bert reads texts, and the examples are pictures: give a table or a list of texts"
    ):
        assert_ignores(bert, [Image.open(CAT)], "border")


def test_mini_vit_relies_on_the_centre_of_the_cat_and_ignores_a_corner(vit):
    picture = Image.open(CAT).convert("RGB")
    assert_relies_on(vit, [picture], "centre")
    assert_ignores(vit, [picture], "bottom right corner")
    with pytest.raises(WhyformerError, match="No region of a picture is named 'center'"):
        assert_ignores(vit, [picture], "center")


@pytest.fixture(scope="module")
def films():
    texts = [f"{word} film number {n}" for word in ("good", "bad") for n in range(20)]
    return survey(None, texts, predict=judge, labels=["no", "yes"], should_ignore=["good", "number"])


def test_a_survey_has_a_budget_of_shortcuts(films):
    survey_budget(films, shortcuts=1)
    with pytest.raises(AssertionError, match=r"judge has 1 shortcut, and 0 are allowed:\n  “good” for yes: [12]\.\d\d"):
        survey_budget(films)


def test_a_survey_that_can_have_no_shortcut_does_not_pass(films):
    tested = tuple(replace(driver, should_be_ignored=False) for driver in films.tested)
    with pytest.raises(WhyformerError, match="This survey can have no shortcuts"):
        survey_budget(replace(films, tested=tested))


def test_an_explanation_is_compared_within_the_tolerance_of_its_method(bert, tmp_path):
    explanation = explain("A wonderful film.", bert)
    with pytest.raises(AssertionError, match=r"No explanation 'film' is stored in .*: store it by pytest"):
        Snapshots(tmp_path, False).check("film", explanation)
    Snapshots(tmp_path, True).check("film", explanation)
    Snapshots(tmp_path, False).check("film", explanation)
    ((name, part),) = explanation.parts.items()
    largest = np.abs(part.scores).max()
    for share, agrees in ((5e-4, True), (5e-3, False)):
        scores = part.scores.copy()
        scores[1] += share * largest
        moved = replace(explanation, parts={name: replace(part, scores=scores)})
        if agrees:
            Snapshots(tmp_path, False).check("film", moved)
        else:
            with pytest.raises(AssertionError, match=r"scores: 5.0e-03 of the largest score apart, 0.001 is allowed"):
                Snapshots(tmp_path, False).check("film", moved)
    with pytest.raises(AssertionError, match="target: negative, kept positive"):
        Snapshots(tmp_path, False).check("film", replace(explanation, target="negative"))


def test_snapshots_stay_in_their_folder_and_say_when_they_are_damaged(tmp_path, bert):
    explanation = explain("A wonderful film.", bert, method="raw_attention")
    for name in ("../film", "", "a/b", "." * 3):
        with pytest.raises(WhyformerError, match="cannot name a file"):
            Snapshots(tmp_path, True).check(name, explanation)
    for content in ("{", "[]", '{"format": "other"}'):
        (tmp_path / "film.json").write_text(content)
        with pytest.raises(WhyformerError, match="store it again by pytest --update-explanations"):
            Snapshots(tmp_path, False).check("film", explanation)
    with pytest.raises(WhyformerError, match="A snapshot keeps an Explanation, not str"):
        Snapshots(tmp_path, True).check("film", "positive")


def test_the_fixture_stores_and_compares(pytester):
    pytester.makepyfile(
        """
        import whyformer
        import pytest

        @pytest.mark.slow_explanation
        def test_film(explanation_snapshot):
            explanation_snapshot("film", whyformer.explain("A wonderful film.", "mini-bert"))
        """
    )
    arguments = ["-p", "whyformer.testing", "--strict-markers", "-p", "no:cacheprovider"]
    pytester.runpytest_inprocess(*arguments).assert_outcomes(failed=1)
    pytester.runpytest_inprocess(*arguments, "--update-explanations").assert_outcomes(passed=1)
    assert (pytester.path / "explanations" / "film.json").is_file()
    pytester.runpytest_inprocess(*arguments).assert_outcomes(passed=1)
    pytester.runpytest_inprocess(*arguments, "-m", "not slow_explanation").assert_outcomes(deselected=1)


def test_those_who_do_not_use_it_pay_nothing():
    code = (
        "import sys, whyformer.testing; heavy = {'torch', 'transformers', 'numpy', 'PIL', 'jinja2', 'httpx', 'rich'};"
        "print(*heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("arguments", [[], ["-p", "whyformer.testing"]])
def test_the_entry_point_loads_it_once_and_nothing_heavy(tmp_path, arguments):
    about = tmp_path / "installed" / "whyformer_ci-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: whyformer-ci\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pytest11]\nwhyformer.testing = whyformer.testing\n")
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\ndef test_other(pytestconfig):\n"
        "    assert pytestconfig.getoption('--update-explanations') is False\n"
        "    assert 'torch' not in sys.modules\n"
    )
    plain = ["-q", "-p", "no:cacheprovider", "-p", "no:jaxtyping", "--strict-markers", "-W", "error"]
    command = [sys.executable, "-m", "pytest", *plain, *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=environment(str(about.parent)), check=False
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def environment(*folders):
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), *folders])}

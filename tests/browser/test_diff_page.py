"""The report on two models in a real browser: wide and narrow, without a request."""

from __future__ import annotations

import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

from whyformer.metrics.statistics import Interval
from whyformer.surveys.cues import Cue
from whyformer.surveys.model_diff import AnswerMove, CueChange, ModelDiff, SampleChange

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install chromium to click pages")


def made_change(name, first, second, q):
    around = (Interval(value, value - 0.2, value + 0.2) for value in (first, second, second - first))
    return CueChange(Cue("word", name), "positive", 20, 10, *around, p=q / 2, q=q)


@pytest.fixture
def result():
    words = (("a", 0.0, 0.1), ("<b>wonderful</b>", 1.0, -1.0), ("film", -0.4, 0.2))
    samples = (
        SampleChange(3, "row 4", "positive", ("positive", "negative"), (0.98, 0.97), None, words),
        SampleChange(7, "row 8", None, ("positive", "positive"), (0.8, None), -0.25, words),
    )
    changes = (made_change("<b>wonderful</b>", 4.0, -3.0, 0.001), made_change("film", 0.1, 0.12, 0.8))
    correlation = Interval(0.9, 0.8, 0.95)
    moves = (AnswerMove("positive", "negative", 20),)
    return ModelDiff(
        *(
            ("old", "a-model-with-a-rather-long-name-of-its-own"),
            ("evidence", "evidence"),
            "text",
            80,
            tuple(range(20)),
        ),
        *(moves, 80, (1, 21), 60, correlation, 0.5, (7, 9, 11), changes, samples, ("A caveat.",)),
    )


@pytest.mark.parametrize("width", [390, 1280])
def test_the_report_shows_both_models_side_by_side(result, tmp_path, width):
    result.save(tmp_path / "diff.html")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page, requests, problems = browser.new_page(viewport={"width": width, "height": 800}), [], []
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: problems.append(message.text))
        page.goto((tmp_path / "diff.html").as_uri())
        assert page.locator(".overview p").all_text_contents() == list(result.overview)
        expect(page.locator("h1")).to_contain_text(": 20 of 80 answers changed, 3 stayed for other reasons")
        assert page.locator(".figures b").all_text_contents() == ["25.0%", "5.0%", "0.90", "1 of 2", "1.2% → 26.2%"]
        expect(page.locator(".cues tbody th").nth(0)).to_have_text("<b>wonderful</b>")
        first, second = page.locator(".sample").all()
        expect(first.locator("h3")).to_have_text("row 4 another answer; labelled positive")
        expect(first.locator(".fate").nth(1)).to_contain_text("negative 0.97, wrong")
        assert first.locator(".sides .for-100").count() == first.locator(".sides .against-100").count() == 1
        expect(second.locator("h3")).to_contain_text("the same answer, correlation −0.25")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
    assert (len(requests), problems) == (1, [])

"""The report of a survey in a real browser: sorted, searched, filtered and opened by clicks, wide and narrow."""

from __future__ import annotations

import csv
import re
import shutil
from contextlib import contextmanager

import pytest
from playwright.sync_api import expect, sync_playwright

from commands import invoke
from whyformer.metrics.statistics import Interval
from whyformer.surveys.cues import Cue
from whyformer.surveys.proof import Proof
from whyformer.surveys.survey_result import CueExample, Driver, FailureGroup, ObjectShare, Survey

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install chromium to click pages")
DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def made_proof(effect, q):
    around = Interval(effect, effect - 0.2, effect + 0.2)
    return Proof(12, around, around, Interval(0.1, 0.05, 0.2), Interval(0.25, 0.1, 0.5), 0.0, q / 2, q)


def made_driver(name, answer, effect, q=0.001, *, kind="word", support=20, ignored=False):
    words = (("a", 0.0, False), (name, 1.0, True), ("film", -0.4, False))
    example = CueExample(7, "row 8", answer, "negative", 0.9, words, (), effect, "negative")
    proof = made_proof(effect, q)
    return Driver(Cue(kind, name), answer, support, 0.2, 0.5, 3, proof, ignored, (example,))


@pytest.fixture(scope="module")
def result():
    tested = (
        made_driver("wonderful", "positive", 2.0, support=9),
        made_driver("<b>stamp</b>", "positive", 1.0, ignored=True, support=30),
        made_driver("dull", "negative", 0.5, support=20),
        made_driver("the film", "positive", 0.1, 0.4, kind="phrase"),
    )
    example = CueExample(3, "row 4", "positive", "negative", 0.7, (), (DOT, DOT), 0.8, "negative")
    failures = (
        FailureGroup("negative", "positive", Cue("word", "not"), 31, 40, 50, made_proof(0.7, 0.01), 0.4, (example,)),
        FailureGroup("negative", "positive", None, 9, 40, 50),
    )
    share = ObjectShare(Interval(0.7, 0.6, 0.8), 50, "masks")
    answers = {"positive": 60, "negative": 40}
    return Survey(
        "model", "evidence", "text", 100, answers, 100, 50, tested, failures, share, {"patches 1": (DOT,) * 3}
    )


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def opened(browser, result, tmp_path):
    """Opens the report from its file; no request leaves it, and nothing on it goes wrong."""

    @contextmanager
    def open_page(*, width=1280, scripts=True):
        result.save(tmp_path / "report.html")
        context = browser.new_context(viewport={"width": width, "height": 800}, java_script_enabled=scripts)
        page, requests, problems = context.new_page(), [], []
        page.on("request", lambda request: None if request.url.startswith("data:") else requests.append(request.url))
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.on("console", lambda message: problems.append(message.text))
        page.goto((tmp_path / "report.html").as_uri())
        try:
            yield page
            assert (len(requests), problems) == (1, [])
        finally:
            context.close()

    return open_page


def names(page):
    texts = page.locator("#drivers .driver:visible .cue-name").all_text_contents()
    return [re.sub(r"\s*(shortcut|should not matter)\s*$", "", text).strip() for text in texts]


def test_the_page_begins_with_three_sentences_and_its_figures(opened, result):
    with opened() as page:
        assert page.locator(".overview p").all_text_contents() == list(result.overview)
        figures = page.locator(".figures b").all_text_contents()
        assert figures == ["100", "3 of 4", "50.0%", "70%", "1"]
        assert page.locator("#unproven .driver").count() == 1
        expect(page.locator("h1")).to_have_text("model: driven by shortcut “<b>stamp</b>”")


def test_a_click_on_a_heading_sorts_and_a_second_one_turns_it_round(opened):
    with opened() as page:
        assert names(page) == ["wonderful", "<b>stamp</b>", "dull"]
        heading = page.locator("#drivers .head").get_by_role("button", name="samples")
        heading.click()
        assert names(page) == ["<b>stamp</b>", "dull", "wonderful"]
        heading.click()
        assert names(page) == ["wonderful", "dull", "<b>stamp</b>"]
        page.locator("#drivers .head").get_by_role("button", name="cue").click()
        assert names(page) == ["<b>stamp</b>", "dull", "wonderful"]


def test_cues_are_searched_and_filtered(opened):
    with opened() as page:
        page.get_by_label("Search cues").fill("ULL")
        assert names(page) == ["dull"]
        expect(page.locator(".filters output")).to_have_text("1 shown")
        page.get_by_label("Search cues").fill("")
        page.get_by_label("Answer").select_option("positive")
        assert names(page) == ["wonderful", "<b>stamp</b>"]
        page.get_by_label("Kind").select_option("phrase")
        assert names(page) == []
        expect(page.locator("#unproven .driver:visible .cue-name")).to_contain_text("the film")


def test_a_click_on_a_cue_opens_its_proof_and_its_samples(opened):
    with opened() as page:
        row = page.locator("#drivers .driver").nth(1)
        expect(row.locator(".proof")).to_be_hidden()
        row.locator("summary").click()
        expect(row.locator(".proof")).to_contain_text("1.00 [+0.80 to +1.20] more than random equal parts")
        expect(row.locator(".examples .cue")).to_have_text("<b>stamp</b>")
        expect(row.locator(".fate")).to_contain_text("should be negative; without it −1.00 nats → negative")
        assert row.locator(".examples .for-100").count() == 1
        assert row.locator(".examples .against-40").count() == 1


def test_failures_open_with_their_proof_and_pictures(opened):
    with opened() as page:
        group = page.locator(".failure").first
        expect(group.locator("summary")).to_contain_text("negative read as positive: “not”")
        group.locator("summary").click()
        expect(group.locator(".proof")).to_contain_text("Without it 40% of them are answered rightly.")
        assert group.locator(".pair img:visible").count() == 2
        expect(page.locator(".failure").nth(1)).to_contain_text("no shared cue")


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_page(opened, width):
    with opened(width=width) as page:
        for summary in page.locator("summary").all():
            summary.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_is_read_without_scripts(opened):
    with opened(scripts=False) as page:
        page.locator("#drivers .driver summary").first.click()
        expect(page.locator("#drivers .proof").first).to_be_visible()


def test_data_become_a_report_whose_samples_open_their_own_pages(browser, tmp_path):
    """From a table through the command to the report, and on to the explanation of a sample."""
    films = [("a wonderful film", "positive"), ("dull to the end", "negative"), ("wonderful, all of it", "positive")]
    with (tmp_path / "films.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *films * 10])
    out = tmp_path / "report.html"
    method = ("--method", "rollout", "--device", "cpu", "--pages", "2")
    done = invoke("survey", "mini-bert", tmp_path / "films.csv", "--out", out, "-q", *method)
    assert done.exit_code == 0, done.output
    page = browser.new_page()
    page.goto(out.as_uri())
    expect(page.locator(".overview p").first).to_contain_text("mini-bert read 30 texts")
    row = page.locator(".driver", has_text="wonderful").first
    row.locator("summary").click()
    link = page.locator(".driver[open] .fate a").first
    name = link.text_content()
    number = int(name.removeprefix("films.csv row "))
    link.click()
    expect(page).to_have_url(f"{tmp_path.as_uri()}/report-samples/{number}.html")
    expect(page.locator(".text").first).to_contain_text(films[(number - 1) % 3][0].split()[0])
    page.close()

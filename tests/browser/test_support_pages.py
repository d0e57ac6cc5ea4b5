"""Verdicts in a real browser: chips and figures on the page of a response, and the report on a log of answers."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import replace

import pytest
from playwright.sync_api import expect, sync_playwright

from made_responses import made_response
from whyformer.render.support_report import ReportRow, ReportTotal, support_report
from whyformer.results.support import Citation, SourceFigures, Support, UnitSupport, ValueFigures, Variant, VerdictError

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install chromium to click pages")
WIDTHS = (1280, 390)


def made_unit(text, verdict, **figures):
    values = {"own_answer": "The music was loud.", "own_log_probability": -2.0, "own_tokens": 5}
    values |= {"rival": Variant("The music was loud.", -2.0), "value": ValueFigures(1, -4.0, -9.0, 0.5, 0.4)}
    values |= {"probabilities": {verdict: 0.91}, "error": VerdictError(0.04, 0.01, 0.1, 77)}
    values |= {"log_probability": -6.0, "without_sources": -12.0, "lowest": -4.0, "largest_gain": 5.0}
    return UnitSupport(0, len(text), text, 5, verdict, "Because.", **values | figures)


@pytest.fixture(scope="module")
def response():
    plain = made_response()
    texts = [row.text for row in plain.rows]
    carried = {"sources": (SourceFigures(0, necessity=4.0),), "carrying": (0,), "carrying_necessity": 4.0}
    units = [made_unit(texts[0], "from sources", citations=(Citation("[1]", 0, "used"),), **carried)]
    units += [made_unit(text, "not supported", without_sources=-6.5) for text in texts[1:]]
    return replace(plain, verdicts=Support(tuple(units), plain.sources, 9, 20, "300 generated sentences"))


@pytest.fixture(scope="module")
def report(response):
    good = replace(response.verdicts, units=response.verdicts.units[:1])
    long = "Which of the many answers that a system may give to a long question is this one? " * 4
    rows = [ReportRow("fine", "What was it like?", good), ReportRow("bad", long, response.verdicts)]
    totals = [ReportTotal("answers without an unsupported sentence", 1, 2, 0.09, 0.91)]
    about = {"model": "smollm2", "calibration": "300 generated sentences", "errors": ["row 3: no text"]}
    return support_report(rows, totals, **about)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def opened(browser, tmp_path):
    @contextmanager
    def open_page(content, width):
        file = tmp_path / "page.html"
        file.write_text(content) if isinstance(content, str) else content.save(file)
        context = browser.new_context(viewport={"width": width, "height": 800})
        page, problems = context.new_page(), []
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.on("console", lambda message: problems.append(message.text))
        page.goto(file.as_uri())
        try:
            yield page
            assert problems == []
        finally:
            context.close()

    return open_page


def overflow(page):
    """The pixels that the page is wider than the window."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.mark.parametrize("width", WIDTHS)
def test_verdicts_come_first_and_a_click_shows_their_figures(opened, response, width):
    with opened(response, width) as page:
        assert overflow(page) <= 0
        section, text = page.locator(".verdicts").bounding_box(), page.locator(".text").first.bounding_box()
        assert section["y"] < text["y"]
        chips = page.locator(".verdict .chip")
        assert chips.all_text_contents() == [unit.verdict for unit in response.verdicts.units]
        second = page.locator(".verdict").nth(1)
        expect(second.locator("table")).not_to_be_visible()
        second.locator("summary").click()
        expect(second.locator("table")).to_be_visible()
        expect(second).to_contain_text("The music was loud.")
        expect(second).to_contain_text("wrong in 4 % [1, 10] of 77")
        assert overflow(page) <= 0


@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_has_the_worst_answer_first_and_sorts_by_a_click(opened, report, width):
    with opened(report, width) as page:
        expect(page.locator("h1")).to_have_text("1 of 2 answers without an unsupported sentence")
        assert overflow(page) <= 0
        names = page.locator(".judged > tbody > tr > td:first-child")
        assert names.all_text_contents() == ["bad", "fine"]
        table, main = (page.locator(one).bounding_box()["width"] for one in (".judged", "main"))
        assert table > 0.85 * main
        expect(page.locator(".totals")).to_contain_text("1 of 2 (50 % [9, 91])")
        expect(page.get_by_text("Not judged: row 3: no text")).to_be_visible()
        if width == WIDTHS[0]:
            page.get_by_role("button", name="faults").click()
            page.get_by_role("button", name="faults").click()
            assert names.all_text_contents() == ["fine", "bad"]
        first = page.locator(".judged details").first
        first.locator("summary").click()
        expect(first.locator(".reason").first).to_be_visible()
        assert overflow(page) <= 0

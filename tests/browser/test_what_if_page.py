"""What if, in a real browser: words and blocks are removed by clicks and keys, on a desk and on a phone."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from whyformer.inputs.layouts import Patches, WordPieces
from whyformer.render.html import html_page
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part
from whyformer.results.unit_effects import RemovableUnit, RemovalEffects, asked_subsets

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install chromium to click pages")
SCORES = [0.4, 0.2, 0.1, -0.1]


def effects():
    """Three words and a block; each removed unit takes 0.2 of the probability, the last one adds 0.02."""
    words = [
        RemovableUnit("text", (number,), name, SCORES[number]) for number, name in enumerate(("one", "two", "six"))
    ]
    units = (*words, RemovableUnit("image", (0, 1), "block at row 1, column 1", SCORES[3]))
    known = {}
    for subset in asked_subsets(4, 2):
        share = 0.9 - sum(0.2 if unit < 3 else -0.02 for unit in subset)
        known[subset] = (share, 1 - share)
    return RemovalEffects(units, ("cat", "dog"), 0, known, 0.3, (0.6, 0.8))


def explanation():
    text = WordPieces(("one two six",), ("one", "two", "six"), (0, 0, 0), ((0, 3), (4, 7), (8, 11)))
    picture = Patches(Image.new("RGB", (64, 64), (90, 120, 60)), 2, 2, (0, 0, 64, 64))
    parts = {"text": Part(text, np.array(SCORES[:3])), "image": Part(picture, np.array([-0.05, -0.05, 0.0, 0.0]))}
    return Explanation(parts, "cat", 0.9, "evidence", "mini-clip", answers={"cat": 0.9, "dog": 0.1}, file="cat.jpg")


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens the page from its file; no request leaves it, and nothing on it goes wrong."""

    @contextmanager
    def open_page(width=1280):
        (tmp_path / "page.html").write_text(html_page([explanation()], effects=effects()), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 800})
        page, requests, problems = context.new_page(), [], []
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.on("console", lambda message: problems.append(message.text))
        page.goto((tmp_path / "page.html").as_uri())
        try:
            yield page
            assert (set(requests), problems) == ({(tmp_path / "page.html").as_uri()}, [])
        finally:
            context.close()

    return open_page


def said(page):
    return page.locator(".said").text_content()


def shares(page):
    return page.locator(".answers small").all_text_contents()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_click_removes_a_word_and_shows_the_models_answer_beside_the_prediction(opened, width):
    made = effects()
    with opened(width) as page:
        assert said(page) == "cat: 90 % with everything."
        page.get_by_role("button", name="one").click()
        expect(page.get_by_role("button", name="one")).to_have_attribute("aria-pressed", "true")
        predicted = made.predicted([0])
        assert said(page) == f"cat: 90 % → 70 % without “one”. The scores predict {100 * predicted:.0f} %."
        assert shares(page) == ["70 %", "30 %"]
        left = page.locator(".answers b").evaluate("one => parseFloat(one.style.left)")
        assert left == pytest.approx(100 * predicted, abs=1e-3)
        page.locator(".clicked button").click()
        assert "not computed in this file" in said(page)
        assert shares(page) == ["?", "?"]
        page.get_by_role("button", name="Undo").click()
        assert shares(page) == ["70 %", "30 %"]
        page.get_by_role("button", name="Reset").click()
        assert said(page) == "cat: 90 % with everything."
        expect(page.get_by_role("button", name="Reset")).to_be_disabled()
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_slider_removes_the_first_units_along_the_measured_curve(opened):
    with opened() as page:
        slider, circle = page.get_by_role("slider"), page.locator(".curve circle")
        slider.fill("3")
        pressed = page.locator("[data-unit][aria-pressed=true]")
        assert pressed.all_text_contents() == ["one", "two", "six"]
        assert shares(page) == ["30 %", "70 %"]
        points = page.locator(".curve polyline:not(.predicted)").get_attribute("points").split(" ")
        assert len(points) == 5
        place = [float(circle.get_attribute(name)) for name in ("cx", "cy")]
        assert place == pytest.approx([float(value) for value in points[3].split(",")], abs=0.1)
        page.get_by_role("button", name="two").click()
        expect(circle).to_be_hidden()


def test_a_link_shows_what_was_removed_and_nothing_for_units_that_are_not_there(opened):
    with opened() as page:
        plain = page.url
        for name in ("one", "six"):
            page.get_by_role("button", name=name).click()
        expect(page).to_have_url(f"{plain}#removed=0-2")
        link, before = page.url, said(page)
    with opened() as page:
        page.evaluate("link => { location.hash = link; }", link.partition("#")[2])
        expect(page.locator("[data-unit][aria-pressed=true]")).to_have_count(2)
        assert said(page) == before
        page.get_by_role("button", name="Reset").click()
        expect(page).to_have_url(plain)
        page.evaluate("location.hash = 'removed=9-length-x'")
        expect(page).to_have_url(plain)
        assert said(page) == "cat: 90 % with everything."


def test_keys_alone_do_it_and_the_answer_is_announced(opened):
    with opened() as page:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('button') && document.activeElement.textContent") == "two":
                break
        page.keyboard.press("Space")
        assert "without “two”" in said(page)
        expect(page.locator(".said")).to_have_attribute("aria-live", "polite")
        assert page.locator(".clicked button").get_attribute("aria-label").startswith("Remove block at row 1")
        page.get_by_role("slider").focus()
        page.keyboard.press("ArrowRight")
        assert "without “one”" in said(page)
        page.get_by_role("button", name="Undo").focus()
        page.keyboard.press("Enter")
        assert "without “two”" in said(page)


def test_the_page_says_the_finding_once_with_file_date_model_and_other_answers(opened):
    with opened() as page:
        title = page.get_by_role("heading", level=1).text_content()
        assert re.fullmatch(r"cat 90 %: evidence on \d of 3 words", title)
        assert page.get_by_text(title, exact=True).count() == 1
        about = page.locator("article .about").text_content()
        assert about.startswith("by evidence on mini-clip · cat.jpg")
        assert page.locator(".made").text_content().startswith("Made on ")
        assert page.locator(".answers li").count() == 2

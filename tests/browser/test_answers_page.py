"""A page with several answers, in a real browser: each is explained by a click or a key; words show their scores."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import expect, sync_playwright

from whyformer.inputs.layouts import WordPieces
from whyformer.render.html import html_page
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install chromium to click pages")
ANSWERS = {"good": 0.7, "fair": 0.2, "bad": 0.1}


def explained(answer, scores):
    text = WordPieces(("one two six",), ("one", "two", "six"), (0, 0, 0), ((0, 3), (4, 7), (8, 11)))
    parts = {"text": Part(text, np.array(scores))}
    return Explanation(parts, answer, ANSWERS[answer], "evidence", "mini-bert", answers=ANSWERS)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture(params=[1280, 390])
def page(browser, tmp_path, request):
    first = explained("good", [0.4, -0.2, 0.1])
    others = [explained("fair", [0.1, 0.3, 0.1]), explained("bad", [0.02, 0.9, 0.02])]
    (tmp_path / "page.html").write_text(html_page([first], others=others), encoding="utf-8")
    context = browser.new_context(viewport={"width": request.param, "height": 800}, has_touch=True)
    opened, problems = context.new_page(), []
    opened.on("pageerror", lambda problem: problems.append(str(problem)))
    opened.on("console", lambda message: problems.append(message.text))
    opened.goto((tmp_path / "page.html").as_uri())
    yield opened
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert problems == []
    context.close()


def shown(page):
    return page.locator("article:visible").evaluate_all("all => all.map(one => one.dataset.explained)")


def test_a_click_on_an_answer_shows_its_explanation(page):
    assert shown(page) == ["0"]
    page.get_by_text("bad", exact=True).first.click()
    assert shown(page) == ["2"]
    expect(page.locator("article:visible h2")).to_have_text("bad 10 %: evidence on 1 of 3 words")


def test_a_link_shows_the_chosen_answer(page):
    plain = page.url
    page.get_by_text("bad", exact=True).first.click()
    expect(page).to_have_url(f"{plain}#answer=2")
    page.reload()
    assert shown(page) == ["2"]
    page.get_by_text("good", exact=True).first.click()
    expect(page).to_have_url(plain)


def test_arrow_keys_go_from_answer_to_answer(page):
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    assert shown(page) == ["1"]
    page.keyboard.press("ArrowUp")
    assert shown(page) == ["0"]


def test_a_tap_on_a_word_and_the_tab_key_show_its_score(page):
    tip = "element => getComputedStyle(element, '::after').content"
    word = page.locator("article:visible .text span", has_text="two")
    assert word.evaluate(tip) == "none"
    word.tap()
    assert word.evaluate(tip) == '"two  -0.2"'
    page.keyboard.press("Tab")
    assert page.locator("article:visible .text span", has_text="six").evaluate(tip) == '"six  0.1"'


def test_a_page_of_one_answer_has_no_choice():
    alone = replace(explained("good", [0.4, -0.2, 0.1]), answers={})
    assert 'type="radio"' not in html_page([alone])

"""The web page in a real browser: each tab used once by clicks, files and keys; nothing is asked of the outside."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import httpx
import pytest
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from app_soak import figures, soak
from whyformer import Explanation, Response, Survey, explain, verify
from whyformer.app.bundled_examples import CAPTION_CHOICES, CAT, DOCUMENTS, FACT_QUESTION, REVIEW

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install chromium to click pages")

TABS = ("Picture", "Text", "Response", "Picture + text", "Detection", "Compare", "Data", "Evaluate")
PATIENCE = 90_000  # milliseconds: a busy machine is no error
# Copies the picture of a result.
COPY = """async () => {
  const picture = document.querySelector(".stage .below"), canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [picture.naturalWidth, picture.naturalHeight];
  canvas.getContext("2d").drawImage(picture, 0, 0);
  const content = await new Promise((done) => canvas.toBlob(done));
  await navigator.clipboard.write([new ClipboardItem({ "image/png": content })]);
}"""

expect.set_options(timeout=PATIENCE)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def uploads(tmp_path_factory):
    """The folder of uploads and downloads."""
    return tmp_path_factory.mktemp("uploads")


@pytest.fixture(scope="module")
def address(tmp_path_factory, uploads):
    """The page, started as people start it; nothing is left of its visitors when it is ended."""
    command = [sys.executable, "-m", "whyformer", "app", "--no-browser", "--port", str(free_port())]
    log = tmp_path_factory.mktemp("app") / "log.txt"
    surroundings = {**os.environ, "GRADIO_TEMP_DIR": str(uploads)}
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=surroundings) as server,
    ):
        try:
            line = server.stdout.readline()
            assert line.startswith("The page is at http://127.0.0.1:"), log.read_text()
            yield re.search(r"http://[^ ]+", line)[0]
        finally:
            server.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.wait(20)
            server.kill()
    assert log.read_text() == ""
    assert files(uploads) == set()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield started
        started.close()


@pytest.fixture
def opened(browser, address):
    """Opens the page with the outside shut off; nothing asks for it, and nothing goes wrong."""

    @contextmanager
    def open_page(*, width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        context.set_default_timeout(PATIENCE)
        page, outside, problems = context.new_page(), [], []

        def keep_inside(route):
            if route.request.url.startswith((address, "data:", "blob:")):
                return route.continue_()
            outside.append(route.request.url)
            return route.abort()

        page.route("**/*", keep_inside)
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(address)
        page.wait_for_selector(".stage")
        try:
            yield page
            assert (outside, problems) == ([], [])
        finally:
            context.close()

    return open_page


def tab(page, name):
    page.get_by_role("tab", name=name, exact=True).click()


def button(page, name):
    return page.get_by_role("button", name=name, exact=True).locator("visible=true")


def shown(page, selector):
    """What is shown of the tab that is open."""
    return page.locator(selector).locator("visible=true")


def send(page, path):
    """Send a picture to the tab that is open, in the place of the one that is there."""
    panel = page.get_by_role("tabpanel").locator("visible=true")
    clear = panel.get_by_label("Clear", exact=True)
    if clear.count():
        clear.click()
    panel.locator("input[type=file]").first.set_input_files(path)


def files(folder, pattern="*"):
    return {path for path in folder.rglob(pattern) if path.is_file()}


def until(page, condition):
    """Wait for what does not stand in the page."""
    end = time.monotonic() + PATIENCE / 1000
    while not condition():
        assert time.monotonic() < end
        page.wait_for_timeout(50)


def connection_ends(page):
    """Grows when Gradio closes its connection, for nothing that this visitor asked is under way any more."""
    ends = []
    for event in ("requestfinished", "requestfailed"):
        page.on(event, lambda request: ends.append(request) if "queue/data" in request.url else None)
    return ends


def tab_to(page, name):
    """Go by the Tab key to what is called so."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("[document.activeElement.innerText?.trim(), document.activeElement.ariaLabel]").count(name):
            return
    raise AssertionError(f"No way to {name!r} by the Tab key")


def expect_fit(page, width):
    """Nothing goes beyond the right edge, nor inside a page within the page."""
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for frame in page.locator("iframe").locator("visible=true").all():
        inside = frame.content_frame.locator("html")  # also of a page in an origin of its own
        assert inside.evaluate("one => one.scrollWidth") <= frame.evaluate("one => one.clientWidth")


def downloads(page, folder):
    """The three downloads of the tab that is open, by suffix."""
    files = {}
    for suffix in ("html", "png", "json"):
        expect(button(page, f"↓ {suffix.upper()}")).to_be_enabled()
        with page.expect_download() as download:
            button(page, f"↓ {suffix.upper()}").click()
        files[suffix] = folder / download.value.suggested_filename
        download.value.save_as(files[suffix])
    assert files["html"].read_text().startswith("<!doctype html>")
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    return files


def expect_code(page, python, command):
    """Open the code of the tab that is open: its Python has the one, its command line the other."""
    button(page, "Code ▼").click()
    blocks = shown(page, ".code .cm-content")
    expect(blocks.nth(0)).to_contain_text(python)
    expect(blocks.nth(1)).to_contain_text(command)
    room = "one => one.closest('.cm-editor').offsetHeight - one.offsetHeight"
    until(page, lambda: all(block.evaluate(room) < 20 for block in blocks.all()))  # less than a line


def test_a_picture_answers_by_itself_and_each_patch_can_be_read(opened):
    scores = explain(CAT, "mini-vit").parts["image"]
    with opened() as page:
        expect(shown(page, ".result h2")).to_have_text(re.compile(r"cat 9\d %: evidence on \d+ % of the picture"))
        reading, stage = shown(page, ".reading"), shown(page, ".stage")
        box = stage.bounding_box()
        row, column = 9, 4
        stage.click(position={"x": box["width"] * (column + 0.5) / 16, "y": box["height"] * (row + 0.5) / 16})
        expect(reading).to_contain_text(f"row {row + 1}, column {column + 1}: {scores.scores[16 * row + column]:.3g} ·")
        page.mouse.move(5, 5)
        page.keyboard.press("ArrowRight")
        expect(reading).to_contain_text(f"row {row + 1}, column {column + 2}: ")
        page.keyboard.press("ArrowUp")
        expect(reading).to_contain_text(f"row {row}, column {column + 2}: ")
        page.keyboard.press("Escape")
        expect(reading).to_have_text("Point at the picture, or click, to read a score.")
        shown(page, ".opacity input").fill("20")
        expect(shown(page, ".heat")).to_have_css("opacity", "0.2")


def test_a_picture_is_sent_its_label_chosen_and_the_result_taken_away(opened, tmp_path):
    with opened() as page:
        expect(button(page, "↓ JSON")).to_be_enabled()
        button(page, "Cat rather than dog").click()
        expect(shown(page, ".result h2")).to_contain_text("cat rather than dog")
        expect(button(page, "↓ JSON")).to_be_enabled()
        send(page, CAT)
        expect(shown(page, ".result h2")).to_have_text(re.compile(r"cat \d"))
        expect(button(page, "↓ JSON")).to_be_enabled()
        label = page.get_by_label("Why this label").locator("visible=true")
        label.click()
        page.get_by_role("option", name=re.compile("^dog")).click()
        expect(shown(page, ".result h2")).to_have_text(re.compile(r"dog \d|dog under|dog over"))
        explanation = Explanation.load(downloads(page, tmp_path)["json"])
        assert explanation.target == "dog"
        expect_code(page, "model='mini-vit', target='dog')", "whyformer explain cat.jpg --model mini-vit --target dog")


def test_a_file_that_is_no_picture_gets_one_line(opened, tmp_path):
    (tmp_path / "broken.jpg").write_text("<script>not a picture</script>")
    with opened() as page:
        send(page, tmp_path / "broken.jpg")
        expect(shown(page, ".problem")).to_have_text(
            "broken.jpg is not a readable picture: choose a JPEG, PNG or WebP file."
        )


def test_a_text_is_typed_and_its_words_are_coloured(opened, tmp_path):
    with opened() as page:
        tab(page, "Text")
        expect(shown(page, ".empty")).to_contain_text("Which words matter?")
        page.get_by_label("Text", exact=True).locator("visible=true").last.fill("A wonderful film.")
        button(page, "Explain").click()
        expect(shown(page, ".text span[class]").first).to_be_visible()
        strongest = shown(page, ".text span.for-100")
        expect(strongest).to_have_text("wonderful")
        assert Explanation.load(downloads(page, tmp_path)["json"]).target == "positive"
        button(page, "Audit file").click()
        with page.expect_download() as download:
            button(page, "↓ AUDIT").click()
        download.value.save_as(tmp_path / "film.audit.json")
        assert verify(tmp_path / "film.audit.json").agrees
        button(page, "Positive, not negative").click()
        expect(shown(page, ".result h2")).to_contain_text("positive")
        expect(shown(page, ".result .text")).to_have_text(REVIEW)


def test_words_are_removed_and_the_model_answers_what_was_not_computed_before(opened):
    with opened() as page:
        tab(page, "Text")
        page.get_by_label("Text", exact=True).locator("visible=true").last.fill("A slow but wonderful, superb film.")
        button(page, "Explain").click()
        expect(shown(page, ".result h2")).to_contain_text("positive")
        button(page, "What if …").click()
        said = shown(page, ".said")
        expect(said).to_contain_text("with everything")
        words = shown(page, "[data-unit]")
        words.first.click()
        expect(said).to_contain_text("→")
        for word in words.all():  # all but the first, of which no combination was computed
            if word.get_attribute("aria-pressed") == "false" and word.get_attribute("data-unit") in ("4", "5"):
                word.click()
                expect(shown(page, "[data-unit][aria-pressed=true]")).not_to_have_count(1)
                expect(said).to_contain_text("→")
        expect(shown(page, ".answers small").first).not_to_have_text("?")
        button(page, "Reset").click()
        expect(said).to_contain_text("with everything")


def test_a_click_on_a_sentence_of_a_response_shows_its_sources(opened, tmp_path):
    with opened() as page:
        tab(page, "Response")
        page.get_by_label("Question or prompt").fill(FACT_QUESTION)
        names = []
        for document in DOCUMENTS.split("\n\n"):
            name, _, text = document.partition(": ")
            (tmp_path / f"{name}.txt").write_text(text)
            names.append(tmp_path / f"{name}.txt")
        page.locator("input[type=file][multiple]").set_input_files(names)
        expect(shown(page, ".file-preview tr")).to_have_count(3)
        button(page, "Explain").click()
        expect(shown(page, ".units [data-row]")).to_have_count(2)
        shown(page, ".units [data-row='1']").click()
        expect(shown(page, ".heading")).to_have_text("Sources of David has the hat.")
        expect(shown(page, ".ranked li").first).to_contain_text("David has the box.")
        response = Response.load(downloads(page, tmp_path)["json"])
        assert [source.name for source in response.by("document").sources][:3] == ["letter", "diary", "note"]


def test_a_picture_is_compared_with_texts_and_each_can_be_asked_about(opened, tmp_path):
    with opened() as page:
        tab(page, "Picture + text")
        send(page, CAT)
        page.get_by_label("Texts, a question, or a prompt").fill(CAPTION_CHOICES)
        page.get_by_label("Model").locator("visible=true").first.click()
        page.get_by_role("option", name="mini-clip").click()
        button(page, "Explain").click()
        expect(shown(page, ".result h2")).to_contain_text("a photo of a cat")
        expect(shown(page, ".result .stage")).to_have_count(1)
        expect(shown(page, ".result .text")).to_have_text("a photo of a cat")
        assert set(Explanation.load(downloads(page, tmp_path)["json"]).parts) == {"image", "text"}


def test_a_word_that_was_written_about_a_picture_is_chosen(opened):
    with opened() as page:
        tab(page, "Picture + text")
        button(page, "Describe it").click()
        words = shown(page, ".words button")
        expect(words.first).to_be_visible()
        words.nth(2).click()
        expect(shown(page, ".result h2")).to_contain_text(words.nth(2).text_content())


def test_a_click_on_a_box_shows_why_it_was_found(opened, tmp_path):
    with opened() as page:
        tab(page, "Detection")
        button(page, "A drawn scene").click()
        expect(shown(page, ".find")).to_have_count(3)
        last = shown(page, ".find").nth(2)
        title = last.text_content()
        last.click()
        expect(shown(page, ".find").nth(2)).to_have_attribute("aria-pressed", "true")
        expect(shown(page, ".result h2").nth(1)).to_contain_text(title.rpartition(" ")[0])
        assert Explanation.load(downloads(page, tmp_path)["json"]).target == title.rpartition(" ")[0]


def test_methods_are_compared_for_two_labels(opened, tmp_path):
    with opened() as page:
        tab(page, "Compare")
        button(page, "Cat and dog, three methods").click()
        frame = page.frame_locator("iframe.framed")
        expect(frame.locator("section.row")).to_have_count(2)
        expect(frame.locator("section.row").first.locator("figure")).to_have_count(4)
        inside = frame.locator("main").evaluate("one => one.scrollHeight")
        assert shown(page, "iframe.framed").bounding_box()["height"] >= inside
        cells = json.loads(downloads(page, tmp_path)["json"].read_text())["explanations"]
        assert [cell["target"] for cell in cells] == ["cat"] * 3 + ["dog"] * 3
        expect_fit(page, 390)


def test_methods_are_measured_and_the_report_is_taken_away(opened, tmp_path):
    with opened() as page:
        tab(page, "Evaluate")
        button(page, "Eight drawn scenes").click()
        expect(shown(page, ".working")).to_contain_text(re.compile(r"4 methods on mini-visualbert|is measured"))
        frame = page.frame_locator("iframe.framed")
        expect(frame.locator("table").first).to_contain_text("generic_attention")
        results = json.loads(downloads(page, tmp_path)["json"].read_text())
        assert results["samples"] == 8
        expect_fit(page, 390)


def test_a_table_is_surveyed_and_a_driver_opens_by_a_click(opened, tmp_path):
    rows = [f"a {word} {noun},{label}" for word, label in (("wonderful", "positive"), ("dull", "negative"))
            for noun in ("film", "story", "plot", "cast") * 4]  # fmt: skip
    (tmp_path / "films.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    with opened(width=390) as page:
        tab(page, "Data")
        send(page, tmp_path / "films.csv")
        page.get_by_label("Should not matter").fill("film")
        expect(page.get_by_role("cell", name="films.csv")).to_be_visible()
        button(page, "Survey").click()
        frame = page.frame_locator("iframe.surveyed")
        driver = frame.locator("#drivers .driver").filter(has_text="wonderful")
        expect(button(page, "Stop")).to_have_count(0)
        driver.locator("summary").click()
        expect(driver.locator(".proof")).to_contain_text("Proven: removed from")
        assert driver.locator(".examples .cue").first.text_content() == "wonderful"
        frame.get_by_label("Search cues").fill("dull")
        expect(frame.locator(".filters output")).to_have_text("1 shown")
        with page.expect_download() as download:
            button(page, "↓ JSON").click()
        download.value.save_as(tmp_path / "survey.json")
        result = Survey.load(tmp_path / "survey.json")
        assert (result.samples, result.wrong) == (32, 0)
        assert "film" in {driver.cue.name for driver in result.tested if driver.should_be_ignored}
        expect(button(page, "Stop")).to_have_count(0)
        expect_fit(page, 390)


def test_long_work_can_be_stopped(opened):
    with opened() as page:
        tab(page, "Evaluate")
        page.get_by_label("Model").locator("visible=true").first.click()
        page.get_by_role("option", name="mini-visualbert").click()
        page.get_by_label("Or drawn scenes").first.fill("32")
        button(page, "Measure").click()
        expect(button(page, "Stop")).to_be_visible()
        ends = connection_ends(page)
        button(page, "Stop").click()
        expect(shown(page, ".empty")).to_contain_text("Stopped")
        expect(button(page, "Stop")).to_have_count(0)
        until(page, lambda: ends)
        expect(shown(page, ".empty")).to_contain_text("Stopped")


def test_the_newer_of_two_questions_is_answered_and_the_older_ended(opened):
    with opened() as page:
        ends = connection_ends(page)
        tab(page, "Evaluate")
        page.get_by_label("Model").locator("visible=true").first.click()
        page.get_by_role("option", name="mini-visualbert").click()
        page.get_by_label("Or drawn scenes").first.fill("32")
        button(page, "Measure").click()
        expect(button(page, "Stop")).to_be_visible()
        ends.clear()
        page.get_by_label("Texts, one per line").fill("A wonderful film.\nA dull film.")
        page.get_by_label("Model").locator("visible=true").first.click()
        page.get_by_role("option", name="mini-bert").click()
        button(page, "Measure").click()
        frame = page.frame_locator("iframe.framed")
        expect(frame.locator("h1")).to_contain_text("mini-bert")
        until(page, lambda: ends)
        expect(frame.locator("h1")).to_contain_text("mini-bert")
        expect(button(page, "Stop")).to_have_count(0)


def test_what_a_visitor_sent_is_deleted_when_it_is_replaced_and_when_they_leave(opened, uploads, tmp_path):
    for name, colour in (("mine.png", "red"), ("other.png", "blue")):
        Image.new("RGB", (64, 64), colour).save(tmp_path / name)
    before = files(uploads)
    with opened() as page:
        for name, former in (("mine.png", None), ("other.png", "mine.png")):
            send(page, tmp_path / name)
            until(page, lambda name=name: files(uploads, name))
            until(page, lambda former=former: former is None or not files(uploads, former))
        label = page.get_by_label("Why this label").locator("visible=true")
        label.click()
        page.get_by_role("option", name=re.compile("^dog")).click()
        expect(shown(page, ".result h2")).to_have_text(re.compile(r"dog \d|dog under|dog over"))
        expect(button(page, "↓ JSON")).to_be_enabled()
        assert len(files(uploads, "whyformer.*") - before) == 3
    with opened() as page:
        until(page, lambda: not files(uploads, "other.png"))


def test_a_picture_is_pasted(opened):
    with opened() as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        button(page, "Cat rather than dog").click()
        expect(shown(page, ".result h2")).to_contain_text("cat rather than dog")
        page.evaluate(COPY)
        page.keyboard.press("Control+V")
        expect(shown(page, ".result h2")).to_have_text(re.compile(r"cat \d"))


def test_keys_alone_use_every_tab(opened):
    asked = {
        "Picture": ("Cat rather than dog", ".result h2", "cat rather than dog"),
        "Text": ("A film review", ".result h2", "positive"),
        "Response": ("Explain a given answer", ".units", "Anna has the key."),
        "Picture + text": ("Cat, dog or church?", ".result h2", "a photo of a cat"),
        "Detection": ("A drawn scene", ".result h2", "3 found"),
        "Compare": ("A film review", "iframe.framed", ""),
        "Evaluate": ("Eight drawn scenes", ".working", ""),
        "Data": ("Forty-eight sentences on films", "iframe.surveyed", ""),
    }
    with opened() as page:
        for name in TABS:
            example, selector, text = asked[name]
            page.get_by_role("tab", name=TABS[0], exact=True).focus()
            if name != TABS[0]:
                tab_to(page, name)
            page.keyboard.press("Enter")
            expect(page.get_by_role("tab", name=name, exact=True)).to_have_attribute("aria-selected", "true")
            tab_to(page, example)
            page.keyboard.press("Enter")
            expect(shown(page, selector).first).to_contain_text(text)
            if name == "Detection":
                tab_to(page, shown(page, ".find").nth(1).get_attribute("aria-label"))
                page.keyboard.press("Enter")
                expect(shown(page, ".find").nth(1)).to_have_attribute("aria-pressed", "true")
        tab_to(page, "Stop")
        page.keyboard.press("Enter")
        expect(shown(page, ".empty")).to_contain_text("Stopped")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tab_fits_its_screen_in_both_schemes(opened, scheme):
    with opened(scheme=scheme) as page:
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == (scheme == "dark")
        for width in (1280, 390):
            for name in TABS:
                tab(page, name)
                expect_fit(page, width)
                assert page.locator(".gradio-container").bounding_box()["width"] == width
        tab(page, "Text")
        button(page, "A film review").click()
        expect(shown(page, ".result h2")).to_be_in_viewport()  # though it is far below the button


def test_two_visitors_at_once_do_not_mix(opened):
    with opened() as one, opened() as other:
        for page, words in ((one, "A wonderful film."), (other, "A dull, boring waste of time.")):
            tab(page, "Text")
            page.get_by_label("Text", exact=True).locator("visible=true").last.fill(words)
            button(page, "Explain").click()
        expect(shown(one, ".result h2")).to_contain_text("positive")
        expect(shown(other, ".result h2")).to_contain_text("negative")
        expect(shown(one, ".result .text")).to_have_text("A wonderful film.")
        expect(shown(other, ".result .text")).to_have_text("A dull, boring waste of time.")


def test_no_visitor_is_counted_and_no_call_is_offered(address):
    config = httpx.get(f"{address}config").json()
    assert config["analytics_enabled"] is False
    assert all(one["api_visibility"] == "private" for one in config["dependencies"])


def test_many_requests_at_once_are_all_answered(address):
    outcomes = soak(address, lambda: 1.0, requests=9, clients=4)
    assert [one.is_right for one in outcomes] == [True] * 9
    assert figures(outcomes, 4, warm_up=3)["failures"] == 0

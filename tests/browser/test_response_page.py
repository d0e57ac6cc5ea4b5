"""The page of a response in a real browser: what is clicked, and what then lights up."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import expect, sync_playwright

from made_responses import SCORES, made_pictured, made_response
from whyformer import continuation
from whyformer.render.colour import RAMPS, rgb
from whyformer.render.source_view import RANKED
from whyformer.scenes import example

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install chromium to click pages")

LEVEL = re.compile(r"\b(only|for|against)-(\d+)\b")


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a result's page from its file; no request leaves it, and nothing on it goes wrong."""

    @contextmanager
    def open_page(result, *, width=1280, scheme="light", scripts=True):
        result.save(tmp_path / "page.html")
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=scripts
        )
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


@pytest.fixture(scope="module")
def response():
    return made_response()


def levels(page, kind):
    """The level of colour of each row or source, with its sign."""
    shown = {}
    for element in page.locator(f".text [data-{kind}]").all():
        match = LEVEL.search(element.get_attribute("class") or "")
        level = int(match[2]) * (-1 if match[1] == "against" else 1) if match else 0
        shown[int(element.get_attribute(f"data-{kind}").split()[0])] = level
    return [shown[number] for number in sorted(shown)]


def listed(page):
    """The ranked list: name, text, share."""
    items = page.locator(".ranked li:visible").all()
    return [tuple(item.locator(part).text_content() for part in ("b", "span > span", "small")) for item in items]


def expected_list(items):
    """What `top` ranks, as the list shows it; a document's name stands apart."""
    return [
        (
            item.source.name,
            item.source.text.removeprefix(f"{item.source.name}: "),
            f"{round(100 * item.share) or '<1'}%",
        )
        for item in items
    ]


def expected_levels(scores):
    return np.rint(100 * np.asarray(scores) / np.abs(scores).max()).astype(int).tolist()


def test_a_click_on_a_sentence_lights_up_its_sources_and_ranks_them(opened, response):
    with opened(response) as page:
        assert levels(page, "source") == expected_levels(SCORES[0])
        page.get_by_text("great.").first.click()
        assert levels(page, "source") == expected_levels(SCORES[1])
        assert listed(page) == expected_list(response.top(RANKED, row=1))
        expect(page.locator(".heading")).to_have_text("Sources of The music was great.")
        expect(page.locator(".units .chosen")).to_have_text("The music was great.")
        assert (
            "50% are on the first token (left out), 25% on other special tokens"
            in page.locator(".facts").text_content()
        )
        strongest = page.locator(".prompt [data-source='3']")
        colour = "rgb({}, {}, {})".format(*rgb(RAMPS["light", "for"][100]))
        expect(strongest).to_have_css("background-color", colour)


def test_a_page_names_the_other_likely_answers_at_the_word_that_carries_each_part(opened, response):
    with opened(response) as page:
        likely = page.locator(".likely")
        expect(likely).to_have_text("Likely answers at “dull.”: dull. 47 % · slow. 20 % · long. 5 %")
        page.get_by_text("great.").first.click()
        expect(likely).to_have_text("Likely answers at “music”: music 29 % · food under 0.1 %")
        page.keyboard.press("Escape")
        expect(likely).to_be_hidden()
    focus = np.zeros((2, len(response.tokens)), dtype=np.float32)
    focus[:, [2, 3, 5]] = 0.1, 0.7, 0.2
    with opened(replace(response, focus=focus)) as page:
        expect(page.locator(".likely")).to_contain_text("Likely answers at “dull.”")


def test_a_click_on_a_source_lights_up_what_rests_on_it(opened, response):
    with opened(response) as page:
        page.locator(".prompt").get_by_text("How was the film?").click()
        assert levels(page, "row") == [round(100 * 1.2 / 3.0), round(100 * 1.0 / 2.0)]
        assert levels(page, "source") == [0] * 6
        share = response.share[:, 5]
        rows = ["The film was dull.", "The music was great."]
        shown = sorted(((rows[row], f"{round(100 * share[row])}%") for row in (0, 1)), key=lambda item: item[1])
        assert listed(page) == [("", *item) for item in reversed(shown)]
        expect(page.locator(".heading")).to_have_text("What rests on How was the film?")


def test_a_link_shows_the_chosen_sentence_or_source(opened, response):
    with opened(response) as page:
        plain = page.url
        page.locator(".units [data-row='1']").click()
        expect(page).to_have_url(f"{plain}#chosen=row-1")
        page.reload()
        assert levels(page, "source") == expected_levels(SCORES[1])
        expect(page.locator(".units [data-row='1']")).to_have_attribute("aria-pressed", "true")
        page.locator(".prompt").get_by_text("How was the film?").click()
        expect(page).to_have_url(f"{plain}#chosen=source-5")
        page.reload()
        expect(page.locator(".heading")).to_have_text("What rests on How was the film?")
        page.locator(".units [data-row='0']").click()
        expect(page).to_have_url(plain)
        page.evaluate("location.hash = 'chosen=row-99'")
        expect(page).to_have_url(plain)
        assert levels(page, "source") == expected_levels(SCORES[0])


def test_the_page_names_the_method_the_model_the_documents_and_the_date(opened, response):
    with opened(response) as page:
        names = ", ".join(one.name for one in response.prompt.documents)
        assert page.locator(".about").first.text_content() == f"by rollout on mini-gpt · {names}"
        assert page.locator(".made").text_content().startswith("Made on ")


def test_pointing_shows_until_the_pointer_leaves_and_a_click_keeps(opened, response):
    with opened(response) as page:
        page.locator(".units [data-row='1']").hover()
        assert levels(page, "source") == expected_levels(SCORES[1])
        page.mouse.move(5, 5)
        assert levels(page, "source") == expected_levels(SCORES[0])
        page.locator(".units [data-row='1']").click()
        page.mouse.move(5, 5)
        assert levels(page, "source") == expected_levels(SCORES[1])
        page.locator(".ranked li").first.hover()
        expect(page.locator(".pointed")).to_have_text("The music was great.")


def test_a_keyboard_does_what_a_mouse_does(opened, response):
    with opened(response) as page:
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        assert levels(page, "source") == expected_levels(SCORES[1])
        page.keyboard.press("Enter")
        expect(page.locator(".units [data-row='1']")).to_have_attribute("aria-pressed", "true")
        page.keyboard.press("Tab")
        page.keyboard.press("End")
        expect(page.locator(".heading")).to_have_text("What rests on How was the film?")
        page.keyboard.press("Escape")
        expect(page.locator(".heading")).to_have_text("Sources of the whole response ")
        assert levels(page, "source") == expected_levels(np.sum(SCORES, axis=0))
        assert listed(page) == expected_list(response.top(RANKED))


@pytest.mark.parametrize(("width", "is_beside"), [(1280, True), (390, False)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_its_screen_in_both_schemes(opened, response, width, is_beside, scheme):
    with opened(response, width=width, scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        left, right = (page.locator(part).bounding_box() for part in (".response", ".prompt"))
        assert (right["x"] >= left["x"] + left["width"]) == is_beside
        assert (right["y"] >= left["y"] + left["height"]) != is_beside
        page.locator(".units [data-row='0']").click()
        colour = "rgb({}, {}, {})".format(*rgb(RAMPS[scheme, "for"][100]))
        expect(page.locator(".prompt [data-source='2']")).to_have_css("background-color", colour)
        ground = {"light": "rgb(252, 252, 252)", "dark": "rgb(31, 31, 31)"}[scheme]
        expect(page.locator("main")).to_have_css("background-color", ground)


def test_what_speaks_against_a_row_has_the_other_colour(opened):
    scores = [[1.0, -2.0, 0.0, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]]
    with opened(made_response(scores)) as page:
        assert levels(page, "source") == [50, -100, 0, 25, 0, 0]
        assert listed(page)[0] == ("almanac", "It is big.", "57% against")
        colour = "rgb({}, {}, {})".format(*rgb(RAMPS["light", "against"][100]))
        expect(page.locator(".prompt [data-source='1']")).to_have_css("background-color", colour)


def test_without_scripts_the_first_row_can_be_read(opened, response):
    with opened(response, scripts=False) as page:
        assert levels(page, "source") == expected_levels(SCORES[0])
        assert listed(page) == expected_list(response.top(RANKED, row=0))
        assert not page.locator(".help").is_visible()


def test_a_token_says_how_likely_it_was(opened, response):
    with opened(response) as page:
        title = page.locator(".units i").nth(2).get_attribute("title")
        assert title == "␣was  probability 0.61, log-probability -0.50, entropy 1.00, rank 3"


def test_rows_that_overlap_are_taken_in_turn(opened):
    response = made_response(units=["The film was dull.", "film"])
    with opened(response) as page:
        film = page.locator(".units [data-row]").nth(1)
        for row in (1, 0, 1):
            film.click()
            assert levels(page, "source") == expected_levels(SCORES[row])


def test_text_that_looks_like_a_script_is_text(opened):
    nasty = "<script>document.title='taken'</script><img src=x onerror=document.title='taken'>"
    response = replace(made_response(), notes=(nasty,), method=nasty, text=made_response().text)
    with opened(response) as page:
        assert "taken" in page.locator("footer").text_content()
        assert page.title() != "taken"


def test_a_click_on_a_written_token_shows_what_it_rests_on(opened):
    written = continuation("The film was", tokens=4, method="generic_attention")
    with opened(written) as page:
        page.locator(".units [data-row]").nth(3).click()
        scores = written.explanations[3].scores
        assert levels(page, "source") == expected_levels(scores)
        best = int(np.abs(scores).argmax())
        answers = sorted(written.explanations[3].answers.items(), key=lambda item: -item[1])
        assert page.locator(".likely").text_content().startswith(f"Likely answers: {answers[0][0].strip()} ")
        names = ["The", "film", "was", *(token.strip() for token in written.tokens)]
        assert listed(page)[0][:2] == ("written before" if best > 2 else "", names[best])
        page.locator(".prompt [data-source='0']").click()
        columns = [one.scores[0] / np.abs(one.scores).max() for one in written.explanations]
        assert levels(page, "row") == np.rint(100 * np.array(columns)).astype(int).tolist()


def test_several_results_in_one_notebook_do_not_disturb_each_other(browser, response):
    page = browser.new_page()
    page.set_content(f"<body>{response._repr_html_()}{response._repr_html_()}</body>")
    first, second = page.locator(".whyformer").all()
    second.locator(".units [data-row='1']").click()
    assert levels(first, "source") == expected_levels(SCORES[0])
    assert levels(second, "source") == expected_levels(SCORES[1])
    page.close()


def visible_heat(page):
    return [int(layer.get_attribute("data-heat")) for layer in page.locator("[data-heat]:visible").all()]


def test_a_click_on_a_part_of_the_response_shows_where_on_the_picture_it_lies(opened):
    with opened(made_pictured()) as page:
        assert visible_heat(page) == [0]
        page.locator(".text [data-row='1']").first.click()
        assert visible_heat(page) == [1]
        assert listed(page)[:2] == [("", "image", "36%"), ("review", "The music was great.", "36%")]
        page.locator("[data-source='0']").click()
        assert page.locator(".heading").text_content().split() == ["What", "rests", "on", "image"]
        assert visible_heat(page) == [2]  # both rows together
        assert levels(page, "row") == [100, 100]
        page.keyboard.press("Escape")
        assert visible_heat(page) == [2]


def test_a_picture_keeps_its_shape_at_any_width_and_is_seen_without_scripts(opened):
    for width, scripts in ((1280, True), (400, True), (1280, False)):
        with opened(made_pictured(), width=width, scripts=scripts) as page:
            for box in [one.bounding_box() for one in page.locator(".shown > i").all()]:
                assert box["width"] / box["height"] == pytest.approx(2.0, rel=0.02)
                assert box["width"] > 100
            assert visible_heat(page) == [0]


def test_each_word_written_about_a_picture_is_shown_on_it(opened):
    scene = example(3)
    written = continuation((scene.image, "What colour is the star?"), "mini-vlm", "rollout", tokens=4)
    with opened(written) as page:
        assert page.content().count("data:image/jpeg") == 1
        page.locator(".text [data-row='3']").click()
        assert visible_heat(page) == [3]
        assert page.locator(".beside small").all_text_contents() == ["the", "star", "is", "cyan"]

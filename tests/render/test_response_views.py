"""A response drawn: as a page, as a picture, on a terminal."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from test_render import NASTY, STRANGE, Page, Terminal

from made_responses import HEAT, SCORES, made_pictured, made_prompt, made_response
from whyformer.inputs.prompt import Message, Prompt
from whyformer.inputs.prompt_tokens import Token
from whyformer.inputs.spans import Span
from whyformer.render.colour import RAMPS, STANDS_OUT, rgb, score_scale
from whyformer.render.heatmaps import display_layout, heat_layer, heat_picture, spread_scores
from whyformer.render.marks import isoline
from whyformer.render.response_figure import response_figure
from whyformer.render.response_page import response_fragment, response_page
from whyformer.render.response_text import response_text
from whyformer.render.response_view import response_view
from whyformer.results.response_parts import ResponseToken

HOSTILE = {NASTY: f"{NASTY} is cold.", "b": 'It is "big" & old.'}


def hostile():
    prompt = made_prompt(HOSTILE, f"{NASTY}?")
    text = f" {NASTY} is."
    changes = {"notes": (NASTY,), "method": NASTY, "model": NASTY, "options": {NASTY: NASTY}}
    response = made_response(
        np.ones((1, 3)), prompt=prompt, text=text, units="response", sources="paragraph", **changes
    )
    return replace(response, scores=np.array([[1.0, -2.0, 0.5]], dtype=np.float32))


@pytest.mark.parametrize("draw", [response_page, response_fragment])
def test_no_string_of_the_user_becomes_markup(draw):
    source = draw(hostile())
    page = Page(source)
    assert page.tags.count("script") == source.count("<script") == 1
    assert not {"iframe", "object", "link", "img"} & set(page.tags)
    shown = "".join(page.text)
    assert shown.count(NASTY) >= 6  # response, documents, question, note, method, model
    assert all(name not in ("onerror", "onclick", "src", "href") for _, name, _ in page.attributes)
    assert not re.search(r"url\(|@import|https?://", source)


def test_the_page_lets_no_script_run_but_its_own():
    source = response_page(made_response())
    script = re.search(r"<script>(.*?)</script>", source, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(value for tag, name, value in Page(source).attributes if tag == "meta" and "default-src" in value)
    assert policy.startswith("default-src 'none';")
    assert policy.endswith(f"; script-src 'sha256-{digest}'")


def test_a_fragment_styles_nothing_outside_itself():
    style = re.search(r"<style>(.*)</style>", response_fragment(made_response()), re.DOTALL)[1]
    style = re.sub(r"@media [^{]*{[^{}]*}", "", style)  # which stand inside a rule of their own
    selectors = [
        one for rule in style.split("}") if "{" in rule for one in re.split(r",(?![^(]*\))", rule.split("{")[0])
    ]
    assert selectors
    assert all(selector.strip().startswith(".whyformer") for selector in selectors)
    assert made_response()._repr_html_() == response_fragment(made_response())


def test_the_table_of_a_page_has_every_score_as_a_level_and_a_share():
    response = made_response()
    attributes = Page(response_page(response)).attributes
    table = json.loads(next(value for _, name, value in attributes if name == "data-table"))
    scores = [*np.array(SCORES), np.sum(SCORES, axis=0)]
    for row, entries in zip(scores, table["rows"], strict=True):
        assert entries == [
            [source, round(100 * row[source] / row.max()), round(100 * row[source] / row.sum())]
            for source in np.argsort(-row, kind="stable").tolist()
            if row[source] > 0
        ]
    assert len(table["facts"]) == 3


def test_documents_and_messages_stand_apart_with_their_names():
    blocks = response_view(made_response()).blocks
    assert [(block.name, block.title) for block in blocks] == [
        ("almanac", ""),
        ("review", ""),
        ("letter", ""),
        ("", ""),
    ]
    assert [block.pieces[0].name for block in blocks] == ["almanac:", "review:", "letter:", ""]
    text = "Be brief.\n\nWhere is it?"
    tokens = (Token(7, "Be brief.", 0, 9), Token(7, "Where is it?", 11, 23))
    prompt = Prompt(text, tokens, text, messages=(Message("system", 0, 9), Message("user", 11, 23)))
    view = response_view(made_response(np.ones((2, 2)), prompt=prompt, sources="message"))
    assert [(block.title, [piece.text for piece in block.pieces]) for block in view.blocks] == [
        ("system", ["Be brief."]),
        ("user", ["Where is it?"]),
    ]


def test_a_name_is_set_apart_however_it_is_cut():
    prompt = made_prompt({"old film": "It was dull."})
    response = made_response(np.ones((2, 8)), prompt=prompt, sources="word")
    block = response_view(response).blocks[0]
    assert [(piece.name, piece.text) for piece in block.pieces][:5] == [
        ("old", ""),
        ("", " "),
        ("film:", ""),
        ("", " "),
        ("", "It"),
    ]


def test_tokens_of_one_character_share_it_and_those_of_none_are_not_lost():
    text = "a\n\n\U0001f600 b"
    places = [(0, 1), (1, 3), (3, 4), (3, 4), (4, 6), (6, 6)]
    tokens = tuple(Token(7, text[a:b] or "</s>", a, b) for a, b in places)
    prompt = Prompt(text, tokens, text)
    scores = np.array([[1, 2, 3, -4, 5, 6]] * 2)
    response = made_response(scores, prompt=prompt, sources="token")
    view = response_view(response)
    assert {source for block in view.blocks for piece in block.pieces for source in piece.sources} == set(range(6))
    assert [block.title for block in view.blocks] == ["", "not visible in the text"]
    texts = ["a", "↵↵", "\U0001f600", "\U0001f600", "b", "</s>"]
    assert [view.source_text(number)[1] for number in range(6)] == texts
    assert view.level(0, [2, 3]) == -67
    assert 'class="against-67" data-source="2 3"' in response_page(response)


@given(st.text(min_size=1).filter(str.strip), st.data())
def test_a_prompt_is_shown_whole_however_it_is_cut(text, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)) | {0, len(text)})
    places = list(pairwise(cuts))
    tokens = tuple(Token(7, text[a:b], a, b) for a, b in places)
    response = made_response(np.ones((2, len(places))), prompt=Prompt(text, tokens, text), sources="token")
    view = response_view(response)
    shown = "".join(piece.text for block in view.blocks[:1] for piece in block.pieces)
    assert len(shown) == len(text.strip())
    assert {source for block in view.blocks for piece in block.pieces for source in piece.sources} == set(
        range(len(places))
    )


def test_every_row_can_be_pointed_at():
    places = [(0, 2), (2, 3), (2, 3), (3, 3), (3, 6)]
    text = "\n\n\U0001f600 ok"
    tokens = [ResponseToken(7, text[a:b] or "</s>", a, b, -1.0, 0.5, 2) for a, b in places]
    rows = tuple(Span(one.start, one.end, one.text, (number,)) for number, one in enumerate(tokens))
    response = replace(
        made_response(), text=text, tokens=tuple(tokens), rows=rows, sinks=(), scores=np.ones((5, 6), "f4")
    )
    view = response_view(response)
    assert {row for unit in view.units for row in unit.rows} == set(range(5))
    assert [view.row_text(row).strip() for row in range(5)] == ["↵↵", "\U0001f600", "\U0001f600", "</s>", "ok"]


def test_strange_characters_are_drawn_everywhere():
    prompt = made_prompt({"a": STRANGE.replace("\n", " ")}, STRANGE)
    response = made_response(np.ones((1, 2)), prompt=prompt, text=f" {STRANGE}", units="response", sources="paragraph")
    response = replace(response, scores=np.ones((1, len(response.sources)), dtype=np.float32))
    assert "\x1b" not in response_text(response)
    assert "\u202e" not in response_page(response)
    response_page(response).encode()
    assert (np.asarray(response_figure(response)) < 128).any()


def test_a_terminal_ranks_sources_under_each_row():
    lines = response_text(made_response()).splitlines()
    assert lines[0] == "The film was dull. The music was great. by rollout on mini-gpt"
    assert lines[1:4] == [
        "1  The film was dull.",
        f"    60%  {'█' * 16}  review: The film was dull.",
        f"    24%  {'█' * 6:<16}  How was the film?",
    ]
    assert "2  The music was great." in lines
    assert (
        "50% are on the first token (left out), 25% on other special tokens, 12% on the response before it" in lines[7]
    )
    assert lines[-1] == "A note."
    against = response_text(made_response([[1.0, -2.0, 0, 0, 0, 0], [1.0, 0, 0, 0, 0, 0]]))
    assert f"    67% against  {'=' * 16}  almanac: It is big." in against
    assert f"    33%          {'█' * 8:<16}  almanac: Oslo is cold." in against


def test_bars_have_colours_where_the_terminal_has(monkeypatch):
    for name, value in {"TERM": "xterm-256color", "COLORTERM": "truecolor"}.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.stdout", Terminal())
    red, green, blue = rgb(RAMPS["dark", "for"][100])
    assert f"\x1b[38;2;{red};{green};{blue}m{'█' * 16}" in str(made_response())
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert "\x1b" not in str(made_response())


def test_a_picture_colours_the_prompt_for_a_row_or_for_all_of_them():
    response = made_response()
    colours = [
        {tuple(colour) for colour in np.asarray(picture).reshape(-1, 3).tolist()}
        for picture in (response.image(0), response.image(1), response.image())
    ]
    for row, shown in zip([*np.array(SCORES), np.sum(SCORES, axis=0)], colours, strict=True):
        levels = np.rint(100 * row / row.max()).astype(int)
        assert {rgb(RAMPS["light", "for"][level]) for level in levels if level} <= shown
    with pytest.raises(ValueError, match="row=2: the response has 2 rows, 0 to 1"):
        response.image(2)


@pytest.mark.parametrize("draw", [response_page, response_fragment])
def test_a_picture_stands_in_a_page_once_and_each_row_has_its_heat(draw):
    page = Page(draw(made_pictured()))
    styles = [value for _, name, value in page.attributes if name == "style" and "--picture" in value]
    assert len(styles) == 1
    addresses = re.findall(r"url\((data:image/(?:jpeg|png);base64,[^)]+)\)", styles[0])
    assert len(set(addresses)) == len(addresses) == 1 + 3  # two rows, and both together
    assert sum(value.count("data:") for _, name, value in page.attributes if name == "style") == 4
    assert "--ratio: 2.0;" in styles[0]
    layers = [value for _, name, value in page.attributes if name == "data-heat"]
    assert layers == ["0", "1", "2"]
    labels = [value for _, name, value in page.attributes if name == "aria-label"]
    assert labels[1:] == [
        f"Scores on image, strongest at row {place}" for place in ("1, column 2", "2, column 3", "1, column 2")
    ]
    entries = json.loads(next(value for _, name, value in page.attributes if name == "data-table"))["rows"]
    assert entries[0][0] == [0, 100, 50]  # the picture has half of the first row


def test_heat_over_the_picture_looks_like_the_heated_picture():
    part = made_pictured().parts["image"]
    scores = np.array(HEAT[0]) - np.array(HEAT[1])  # with both signs
    for values in (np.array(HEAT[0]), scores, np.zeros(6)):
        layout = display_layout(part.layout, 240)
        layer = np.asarray(heat_layer(part.layout, values, 240).convert("RGBA"), float) / 255
        photograph = np.asarray(layout.image, float) / 255
        over = layer[..., 3:] * layer[..., :3] + (1 - layer[..., 3:]) * photograph
        expected = np.asarray(heat_picture(layout, values), float) / 255
        strength, _ = spread_scores(layout, score_scale(values).strength(values))
        near_lines = sum(isoline(sign * strength, STANDS_OUT)[0] for sign in (1, -1)) > 0
        assert np.abs(over - expected)[~near_lines].max() < 0.02
        assert near_lines.mean() < 0.5


def test_a_terminal_says_where_on_a_picture_a_row_lies():
    shown = response_text(made_pictured())
    assert " 50%  ████████████████  image, most at row 1, column 2" in shown
    assert "image, most at row 2, column 3" in shown


def test_a_drawing_has_the_picture_beside_its_heat_for_a_row_or_for_all():
    response = made_pictured()
    assert response_figure(response).height > response_figure(made_response()).height
    first, second = (np.asarray(response_figure(response, row)) for row in (0, 1))
    assert isinstance(response.image(0), Image.Image)
    assert (first[:300, 640:] != second[:300, 640:]).any()


def test_the_title_of_a_page_says_what_was_found():
    documents = {"almanac": "Oslo is cold.", "letter": "It rained all week."}
    asked = made_response([[0.2, 0.1, 0.7]] * 2, prompt=made_prompt(documents))
    assert response_view(asked).finding == (
        "“The film was dull.”: 70 % of the score on the question, 20 % on almanac: Oslo is cold."
    )
    assert (
        response_view(made_response()).finding
        == "“The film was dull.”: 60 % of the score on review: The film was dull."
    )
    assert response_view(made_pictured()).finding.endswith("of the score on the picture")
    assert response_view(made_response(-np.array(SCORES))).finding == "“The film was dull.”: what it comes from"


def test_the_options_of_a_method_are_told_apart_from_the_settings_of_a_response():
    options = response_view(made_response(options={"aggregate": True, "steps": 4})).options
    assert options[:3] == ("rollout: aggregate = True", "steps = 4", "sources = sentence")

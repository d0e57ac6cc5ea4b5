"""Regions, what an answer is about, and explanations of several parts: how they look."""

import io
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from rich.text import Text

from whyformer.inputs.layouts import Boxes, Patches, WordPieces
from whyformer.render import figure, html, terminal
from whyformer.render.canvas import INK, WHITE
from whyformer.render.cells import half_blocks, region_list, shades
from whyformer.render.colour import RAMPS, score_scale
from whyformer.render.heatmaps import (
    BETWEEN_REGIONS,
    THIN_LINE,
    blend,
    display_layout,
    heat_bar,
    original,
    overlay,
)
from whyformer.render.marks import FRAME, edges
from whyformer.render.text_spans import captioned_parts, visible
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part
from whyformer.results.result_documents import explanation_document

GREY = 120 / 255
SMALL, LARGE = (100.0, 100.0, 200.0, 200.0), (50.0, 50.0, 350.0, 300.0)


def ground(width=400, height=400):
    return Image.new("RGB", (width, height), (120, 120, 120))


def regions(scores, boxes, picture=None):
    return Part(Boxes(picture or ground(), tuple(boxes)), np.array(scores, np.float64))


def patches(outline=None, scores=(0.0, 0.0, 0.0, 1.0), picture=None):
    picture = picture or ground()
    return Part(Patches(picture, 2, 2, (0, 0, *picture.size), outline), np.array(scores))


def words(text, scores):
    found = [(match.group(), 0, match.span()) for match in re.finditer(r"\S+", text)]
    layout = WordPieces((text,), *(tuple(column) for column in zip(*found, strict=True)))
    return Part(layout, np.resize(np.array(scores, np.float64), layout.size))


def explanation(parts, **changes):
    return replace(Explanation(parts, "red", 0.93, "bi_token", "mini-lxmert"), **changes)


def asked(text="what colour is it ?"):
    return explanation({"text": words(text, [0, 1, 0, 0, 0]), "image": regions([1.0, 0.5], [SMALL, LARGE])})


def translated():
    parts = {"target": words("the old", [0.5, 1]), "source": words("das alte Haus", [0, 0, 2])}
    return explanation(parts, target=" house")


def near(pixel, colour):
    np.testing.assert_allclose(pixel, np.rint(np.asarray(colour) * 255), atol=1)


def heat(score, scores):
    return blend(np.full(3, GREY), score_scale(np.array(scores)).strength(np.array(score)))


def coloured(shown, width=100):
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=width)
    return Text.from_ansi(terminal.coloured_explanation(shown, console)).plain


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_a_region_has_the_colour_of_its_score_and_the_strongest_lies_on_top(order):
    part = regions(np.array([1.0, 0.5])[order], [(SMALL, LARGE)[region] for region in order])
    shown = np.asarray(overlay(part))
    near(shown[160, 160], heat(1.0, [1.0, 0.5]))
    near(shown[250, 300], heat(0.5, [1.0, 0.5]))
    near(shown[20, 20], [BETWEEN_REGIONS * GREY] * 3)


def test_a_negative_region_is_as_strong_as_it_is_far_from_zero():
    shown = np.asarray(overlay(regions([-1.0, 0.5], [SMALL, LARGE])))
    near(shown[160, 160], heat(-1.0, [-1.0, 0.5]))
    near(shown[250, 300], heat(0.5, [-1.0, 0.5]))


def test_only_the_strongest_regions_are_framed_and_numbered():
    boxes = [(40.0 * place, 300.0, 40.0 * place + 30, 390.0) for place in range(6)]
    shown = np.asarray(overlay(regions([0.5, 0.4, 0.04, 0.3, 0.2, 0.0], boxes)))
    framed = [tuple(shown[340, 40 * place + 1]) == WHITE for place in range(6)]
    assert framed == [True, True, False, True, False, False]
    plain = [tuple(shown[340, 40 * place]) == INK for place in range(6)]
    assert plain == framed
    zero = heat(0.0, [0.5, 0.4, 0.04, 0.3, 0.2, 0.0])
    near(shown[340, 200], (1 - THIN_LINE) * zero + THIN_LINE * FRAME[0] / 255)
    assert [(shown[300:320, 40 * place + 6 : 40 * place + 16] < 40).any() for place in range(6)] == framed


def test_numbers_of_regions_with_one_corner_do_not_hide_each_other():
    around = (100.0, 100.0, 300.0, 300.0)
    shown = np.asarray(overlay(regions([1.0, 0.9, 0.8], [around] * 3))).astype(int)
    plates = [shown[y : y + 21, x : x + 21] for x, y in ((100, 100), (279, 100), (100, 279), (279, 279))]
    assert [int((plate == 255).all(-1).sum()) > 150 for plate in plates] == [True, True, True, False]


def test_a_region_beside_the_image_is_not_drawn_and_a_tiny_one_is():
    assert edges((500, 0, 600, 50), (400, 400)) is None
    assert edges((-90, 10, 0, 20), (400, 400)) is None
    assert edges((10.6, 10, 10.7, 12), (400, 400)) == (11, 10, 11, 11)
    assert edges((-5, -5, 500, 500), (400, 300)) == (0, 0, 399, 299)
    shown = np.asarray(overlay(regions([1.0], [(500.0, 0.0, 600.0, 50.0)])))
    assert (shown == shown[0, 0, 0]).all()


def test_an_image_without_regions_can_be_shown():
    empty = explanation({"image": regions([], [])})
    assert figure.explanation_figure(empty).width > 640
    assert 'alt="Heatmap on the image"' in html.html_page([empty])
    assert terminal.plain_explanation(empty).splitlines()[-1] == "0 · ░▒▓█ 0"


@pytest.mark.parametrize("drawn", [lambda part: original(part.layout), overlay])
@pytest.mark.parametrize("colour", [(255, 255, 255), (0, 0, 0), (120, 120, 120)])
def test_what_the_answer_is_about_has_a_frame_that_is_seen_on_any_ground(drawn, colour):
    part = patches((100.0, 50.0, 300.0, 250.0), picture=Image.new("RGB", (400, 400), colour))
    shown = np.asarray(drawn(part))
    across = [tuple(shown[150, column]) for column in range(100, 104)]
    assert across == [INK, WHITE, WHITE, INK]
    assert [tuple(shown[150, column]) for column in range(299, 295, -1)] == across
    assert INK not in (tuple(shown[150, 99]), tuple(shown[150, 104]))


def test_a_frame_that_reaches_out_of_the_image_stays_in_it():
    shown = np.asarray(original(patches((-20.0, 100.0, 200.0, 500.0)).layout))
    assert [tuple(shown[200, 1]), tuple(shown[398, 100])] == [WHITE, WHITE]


def test_drawing_leaves_the_image_as_it_was():
    part = patches((100.0, 50.0, 300.0, 250.0))
    original(part.layout)
    overlay(part)
    assert part.layout == patches((100.0, 50.0, 300.0, 250.0)).layout


def test_boxes_follow_the_picture_to_its_displayed_size():
    small = ground(64, 32)
    assert display_layout(Boxes(small, ((8, 8, 16, 24),))).boxes == ((40, 40, 80, 120),)
    assert display_layout(Patches(small, 1, 1, (0, 0, 64, 32), (8, 8, 16, 24))).outline == (40, 40, 80, 120)


@pytest.mark.parametrize("side", [320, 400, 628])
def test_pixels_of_a_small_image_stay_equally_large_squares(side):
    squares = np.indices((64, 64)).sum(0) % 2 * 255
    shown = np.asarray(original(Boxes(Image.fromarray(squares.astype(np.uint8)), ()), side)).astype(int)
    centres = ((np.arange(64) + 0.5) * side / 64).astype(int)
    np.testing.assert_array_equal(shown[np.ix_(centres, centres)][..., 0], squares)
    assert abs(shown.mean() - 127.5) < 0.5


def test_spaces_that_would_be_missed_are_shown():
    texts = [" great", "\n", "a\tb", "fine ", " great rather than  bad", "what is it", "\x1b[2J", ""]
    shown = ["␣great", "↵", "a⇥b", "fine␣", "␣great rather than ␣bad", "what is it", "␛[2J", ""]
    assert [visible(text) for text in texts] == shown
    assert [visible(text) for text in shown] == shown
    assert explanation({"text": words("a", [1])}, target=" \n").headline == "␣↵ (0.93) by bi_token on mini-lxmert"


def test_a_token_with_a_space_is_seen_in_every_headline():
    shown = translated()
    assert '<h1 dir="auto">house 93 %: evidence on 1 of 3 words and 1 of 2 words</h1>' in html.html_page([shown])
    assert '<h2 dir="auto">␣house</h2>' in html.comparison_page([[shown]], [shown.target], ["bi_token"])
    assert terminal.plain_explanation(shown).startswith("␣house (0.93) by bi_token")
    assert coloured(shown).startswith("␣house (0.93) by bi_token")


def test_parts_are_read_pictures_first_and_what_the_model_wrote_last():
    assert [caption for caption, _ in captioned_parts(asked())] == ["image", "text"]
    assert [caption for caption, _ in captioned_parts(translated())] == ["source", "target so far"]
    assert [caption for caption, _ in captioned_parts(explanation({"image": patches()}))] == [""]


def test_captions_of_a_page_name_the_parts_where_there_are_several():
    captions = [re.findall(r"<h3>(.*?)</h3>", html.html_page([shown])) for shown in (asked(), translated())]
    assert captions == [["image", "text"], ["source", "target so far"]]
    assert "<h3>" not in html.html_page([explanation({"image": patches()})])
    hostile = explanation({"<script>": words("a b", [1, 2]), "image": patches()})
    assert re.findall(r"<h3>(.*?)</h3>", html.html_page([hostile])) == ["image", "&lt;script&gt;"]


def test_each_part_of_a_page_has_its_own_scale():
    assert re.findall(r"<span>([^<]*)</span>", html.html_page([translated()])) == ["0", "score 1.5", "0", "score 1.12"]


def test_a_page_says_the_scores_of_the_numbered_regions():
    source = html.html_page([asked()])
    assert '<p class="ranking">① 1 · ② 0.5</p>' in source
    assert "strongest at region 1" in source
    assert 'class="ranking"' not in html.html_page([explanation({"image": patches()})])


def test_long_texts_ask_for_more_room():
    assert 'class="part written"' in html.html_page([asked()])
    assert 'class="part written long"' in html.html_page([asked("many words " * 60)])


def test_the_legend_of_regions_is_that_of_pictures():
    part = regions([0.0, 2.0], [SMALL, LARGE])
    expected = np.rint(heat_bar(score_scale(part.scores), 300) * 255)
    np.testing.assert_array_equal(np.asarray(figure.legend(part))[5], expected)
    assert ".whyformer .photo-rising { background: linear-gradient(" in html.html_page([explanation({"image": part})])


def test_a_figure_has_the_words_beside_the_picture_unless_they_are_many():
    beside, under = figure.explanation_figure(asked()), figure.explanation_figure(asked("many words " * 200))
    picture = figure.explanation_figure(explanation({"image": asked().parts["image"]}))
    assert beside.height < picture.height + 60
    assert under.height > beside.height
    pixels = np.asarray(beside).astype(int)
    hot = np.argwhere((np.abs(pixels - np.rint(RAMPS["light", "for"][-1] * 255)) <= 1).all(-1))
    assert hot[:, 1].min() > picture.width * 0.6
    assert hot[:, 0].max() < picture.height / 2


def test_every_mix_of_parts_makes_a_cell_under_the_others():
    rows = [[asked(), translated()], [explanation({"image": patches((0.0, 0.0, 9.0, 9.0))}), None]]
    sheet = figure.grid(rows, ["a", " b"], ["one", "two"])
    assert sheet.width == figure.ROW_TITLE + 3 * figure.CELL + 3 * 24 + 2 * figure.MARGIN
    page = html.comparison_page(rows, ["a", " b"], ["one", "two"])
    assert page.count("<img") == 2 + 2


def test_a_terminal_shows_parts_side_by_side_where_it_is_wide_enough():
    wide, narrow = coloured(asked()).splitlines(), coloured(asked(), width=60).splitlines()
    assert [line.split() for line in wide[1:2]] == [["image", "text"]]
    assert wide[2].count("▀") == 48
    assert wide[2].endswith("what colour is it ?")
    assert [narrow[1], narrow[-3:]] == ["image", ["text", "what colour is it ?", "scores from 0 to 1"]]


def test_a_picture_beside_a_long_text_keeps_its_lines():
    beside = explanation({"text": words("many words " * 100, [0, 1]), "image": patches()})
    lines = coloured(beside, width=80).splitlines()
    assert [line.count("▀") for line in lines[2:10]] == [38] * 8


def test_a_terminal_without_colours_shows_parts_side_by_side_where_they_fit():
    lines = terminal.plain_explanation(translated()).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["source", "target", "so", "far"],
        ["2", "Haus", "1", "old"],
        ["0", "das", "0.5", "the"],
        ["0", "alte"],
    ]
    assert "text" in terminal.plain_explanation(asked("x" * 90)).splitlines()


def test_shades_show_regions_their_numbers_and_a_frame():
    rows = shades(regions([1.0, 0.0], [(0.0, 0.0, 200.0, 200.0), (200.0, 200.0, 400.0, 400.0)]))
    assert [set(row) for row in (rows[0], rows[-1])] == [{"█"}, {" ", "·"}]
    assert "".join(rows).count("1") == 1
    framed = shades(patches((0.0, 0.0, 200.0, 200.0), scores=np.zeros(4)))
    assert [framed[0], framed[1], framed[11]] == ["┌" + "─" * 22 + "┐", "│" + " " * 22 + "│", "└" + "─" * 22 + "┘"]
    assert set("".join(shades(patches((500.0, 0.0, 600.0, 50.0), scores=np.zeros(4))))) == set()
    with pytest.raises(ValueError, match="this part is 1 word pieces"):
        shades(words("a", [1]))


def test_half_blocks_carry_the_frame_and_the_numbers():
    framed = half_blocks(patches((0.0, 0.0, 400.0, 400.0), scores=np.zeros(4)), 20)
    assert framed[0].spans[0].style.color.triplet == WHITE
    assert framed[5].spans[5].style.color.triplet != WHITE
    numbered = half_blocks(regions([1.0], [(0.0, 0.0, 400.0, 400.0)]), 21)
    assert [line.plain.index("1") for line in numbered if "1" in line.plain] == [10]


def test_regions_are_listed_with_bars_as_long_as_their_scores():
    part = regions([0.01, 0.5, -1.0], [SMALL, LARGE, SMALL])
    assert region_list(part) == [
        "1 region 3        -1 " + "=" * 20,
        "2 region 2       0.5 " + "█" * 10,
        "  region 1      0.01",
    ]


def test_documents_say_where_regions_and_the_answer_are():
    found = explanation_document(explanation({"image": regions([1.0], [SMALL])}), "a.png")["parts"]["image"]
    assert found == {"layout": "boxes", "boxes": [list(SMALL)], "tokens": ["region 1"], "scores": [1.0]}
    about = explanation_document(explanation({"image": patches(SMALL)}), "a.png")["parts"]["image"]
    assert about["outline"] == list(SMALL)


def test_a_comparison_of_many_methods_goes_on_below():
    one, words_only = explanation({"image": patches()}), explanation({"text": words("a film", [0, 1])})
    few = figure.grid([[one] * 3], ["row"], ["a", "b", "c"])
    many = figure.grid([[one] * 13, [words_only] * 13], ["cat", "text"], [f"method_{number}" for number in range(13)])
    assert few.width == many.width == figure.ROW_TITLE + 4 * figure.CELL + 4 * 24 + 2 * figure.MARGIN
    assert many.height > 4 * few.height
    five = figure.grid([[words_only] * 5], ["text"], list("abcde"))
    assert five.width == figure.ROW_TITLE + 3 * figure.CELL + 3 * 24 + 2 * figure.MARGIN


def test_a_page_of_several_explanations_says_what_they_share():
    one, other = explanation({"image": patches()}), explanation({"image": patches()}, method="rollout", model="\x1bm")
    titles = [
        re.findall("<title>(.*?)</title>", html.html_page(shown))[0] for shown in ([one], [one, one], [one, other])
    ]
    assert titles == [
        "red 93 %: evidence on 25 % of the picture",
        "2 explanations by bi_token on mini-lxmert",
        "2 explanations by bi_token and rollout on mini-lxmert and ␛m",
    ]
    assert "<title>mine</title>" in html.html_page([one, one], "mine")


def test_where_all_scores_lie_far_above_zero_none_is_strong():
    high = words("a b c d e f g h", [3, 4, 5, 4, 4, 4, 4, 4])
    remark = "No word reaches 2.2 × the average. Full colour: 4 × the average word (4)."
    assert f"<p>{remark}</p>" in html.html_page([explanation({"text": high})])
    assert figure.legend(high).height > figure.legend(words("a", [0])).height


def test_a_page_colours_words_and_names_their_tokens_as_a_reader_knows_them():
    layout = WordPieces(
        ("A wonderful\nday",),
        ("A", "Ġwon", "derful", "Ċ", "day", "</s>"),
        (0,) * 6,
        ((0, 1), (1, 5), (5, 11), (11, 12), (12, 15), (15, 15)),
    )
    shown = explanation({"text": Part(layout, np.array([0.1, 0.2, 0.4, 0.3, 0.1, 0.2]))})
    page = html.html_page([shown])
    assert 'title="won  0.2 · derful  0.4" tabindex="0">wonderful</span>' in page
    assert re.findall(r'title="(↵|&lt;/s&gt;)  ', page) == ["↵", "&lt;/s&gt;"]
    assert "Ġ" not in page
    assert "Ċ" not in page
    by_token = html.html_page([shown], units="token")
    assert 'title="won  0.2" tabindex="0">won</span><span' in by_token
    assert "wonderful</span>" in html.comparison_page([[shown]], ["a"], ["b"])
    assert "derful</span>" in html.comparison_page([[shown]], ["a"], ["b"], units="token")


def test_a_terminal_colours_words_or_tokens():
    layout = WordPieces(("wonder",), ("won", "##der"), (0, 0), ((0, 3), (3, 6)))
    shown = explanation({"text": Part(layout, np.array([1.0, 0.5]))})
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=80)
    assert "mwonder\x1b" in terminal.coloured_explanation(shown, console)
    assert "mwon\x1b" in terminal.coloured_explanation(shown, console, units="token")

"""The pictures: colours, heat, pages, terminal text."""

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from rich.console import Console
from rich.text import Text

from whyformer.inputs.layouts import Patches, WordPieces
from whyformer.render import canvas, figure, fonts, html, terminal
from whyformer.render.colour import (
    FULL,
    MIDDLE_GREY,
    RAMPS,
    STANDS_OUT,
    TINT,
    TINTS,
    VEIL,
    Scale,
    contrast_ratio,
    ink,
    oklab,
    photo_layer,
    rgb,
    score_scale,
    srgb,
)
from whyformer.render.coverage import coverage, coverage_remark, finding, percent
from whyformer.render.heatmaps import CUT_OFF, blend, display_layout, heat_bar, heat_picture, overlay, upsample
from whyformer.render.marks import FRAME, isoline
from whyformer.render.shades import declarations, token_shade
from whyformer.render.text_spans import invisible_tokens, part_scale, readable, spans
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part

NASTY = "<script>alert('&\"')</script>"
STRANGE = "שלום 👩‍👩‍👧 \x1b[31mred\x00 \u202eover \ud800 漢字漢字 a\tb\nnew"


def patches(width=40, height=20, rows=2, columns=4, box=None, colour=(120, 120, 120)):
    return Patches(Image.new("RGB", (width, height), colour), rows, columns, box or (0, 0, width, height))


def picture(scores=(0, 1, 2, 3, 4, 5, 6, 7), layout=None, **changes):
    part = Part(layout or patches(), np.array(scores, np.float64))
    return replace(Explanation({"image": part}, "cat", 0.93, "bi_token", "mini-vit", {"steps": 10}), **changes)


def pieces(texts, scores):
    """One token per whitespace-delimited word, scores repeated over them."""
    found = [(m.group(), segment, m.span()) for segment, text in enumerate(texts) for m in re.finditer(r"\S+", text)]
    layout = WordPieces(tuple(texts), *(tuple(column) for column in zip(*found, strict=True))) if found else None
    layout = layout or WordPieces(tuple(texts), (), (), ())
    return Part(layout, np.resize(np.array(scores, np.float64), layout.size))


def written(*texts, scores=(0.5, 1.0), **changes):
    parts = {"text": pieces(texts, scores)}
    return replace(Explanation(parts, "positive", None, "rollout", "mini-bert"), **changes)


def both():
    return picture(parts={**picture().parts, **written("is it a cat ?").parts})


@pytest.mark.parametrize("ramp", RAMPS)
def test_neighbouring_colours_are_equally_far_apart_and_on_the_screen(ramp):
    table = RAMPS[ramp]
    steps = np.diff(oklab(table), axis=0)
    distance = np.linalg.norm(steps, axis=1)
    assert distance.max() < 1.02 * distance.min()
    np.testing.assert_allclose(steps[:, 0], steps[:, 0].mean(), rtol=1e-5)
    assert table.min() >= 0
    assert table.max() <= 1


def test_zero_has_no_hue_and_both_signs_are_equally_strong():
    for ground in ("light", "dark"):
        rising, falling = oklab(RAMPS[ground, "for"]), oklab(RAMPS[ground, "against"])
        np.testing.assert_allclose(rising[0, 1:], 0, atol=1e-6)
        np.testing.assert_allclose(rising[:, 0], falling[:, 0], atol=1e-6)
        np.testing.assert_allclose(*(np.linalg.norm(end[:, 1:], axis=1) for end in (rising, falling)), atol=1e-6)


@given(hnp.arrays(float, (5, 3), elements=st.floats(0, 1)))
def test_oklab_and_srgb_undo_each_other(colours):
    np.testing.assert_allclose(srgb(oklab(colours)), colours, atol=1e-6)


def test_oklab_of_known_colours():
    known = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]
    expected = [[0.628, 0.225, 0.126], [0.866, -0.234, 0.179], [0.452, -0.032, -0.312], [1, 0, 0]]
    np.testing.assert_allclose(oklab(np.array(known, float)), expected, atol=1e-3)


def colour_on(light, strength):
    """A pixel of a photograph with a strength, from the definition of the scale: steps on middle grey look equal."""
    tint = TINTS["against" if strength < 0 else "for"]
    end = srgb(np.array([tint.lightness, *tint.plane]))

    def pixel(share, ground):
        return (1 - TINT * share) * (VEIL + (1 - VEIL) * share) * np.asarray(ground) + TINT * share * end

    path = [oklab(pixel(share, [MIDDLE_GREY] * 3)) for share in np.linspace(0, 1, 2001)]
    lengths = np.concatenate([[0], np.cumsum([np.linalg.norm(b - a) for a, b in pairwise(path)])])
    return pixel(np.interp(abs(strength), lengths / lengths[-1], np.linspace(0, 1, 2001)), light)


def test_the_scale_is_anchored_at_zero_and_full_at_four_times_the_average():
    scores = np.array([1.0] * 15 + [5.0])
    rising, mixed = score_scale(scores), score_scale(-scores)
    assert (rising.low, rising.high, rising.average) == pytest.approx((0, 4 * 20 / 16, 20 / 16))
    assert (mixed.low, mixed.high) == (-rising.high, rising.high)
    np.testing.assert_allclose(rising.strength(scores)[[0, -1]], [0.2, 1.0])
    table, end = RAMPS["light", "for"], RAMPS["light", "against"]
    np.testing.assert_allclose(rising.colours(np.array([0, 0.5, 1]), "light"), table[[0, 50, 100]])
    np.testing.assert_allclose(mixed.colours(np.array([-1.0, 0]), "light"), end[[100, 0]])


def test_of_a_few_scores_a_full_colour_is_three_quarters_of_all():
    assert score_scale(np.array([0.2, 0.7, 0.1])).high == pytest.approx(0.75)
    assert score_scale(np.array([-0.3])).strength(np.array([-0.3])) == -1


def test_scores_that_outweigh_all_others_stay_distinct():
    scores = np.zeros(100)
    scores[:3] = 9.0, 2.0, 1.0
    assert score_scale(scores).high == pytest.approx(3.0)
    np.testing.assert_allclose(score_scale(scores).strength(scores)[:3], [1, 2 / 3, 1 / 3])


@given(st.integers(0, 10_000), st.integers(16, 400))
def test_uniform_noise_is_at_half_of_a_full_colour_at_most(seed, count):
    noise = np.random.default_rng(seed).random(count)
    strength = score_scale(noise).strength(noise)
    # Its largest is about twice its average; so small a sample of it may go a little beyond.
    assert strength.max() < (2 / FULL) * (1 + 4 / np.sqrt(count))


def test_the_scale_does_not_depend_on_the_unit_of_scores():
    scores = np.random.default_rng(1).normal(size=64)
    one, other = score_scale(scores), score_scale(1000 * scores)
    np.testing.assert_allclose(one.strength(scores), other.strength(1000 * scores))


@pytest.mark.parametrize("sign", [1, -1])
def test_steps_on_middle_grey_look_equal_and_zero_is_a_veil(sign):
    shown = blend(np.full((101, 3), MIDDLE_GREY), sign * np.linspace(0, 1, 101))
    distances = np.linalg.norm(np.diff(oklab(shown), axis=0), axis=1)
    assert distances.max() < 1.1 * distances.min()
    np.testing.assert_allclose(shown[0], [VEIL * MIDDLE_GREY] * 3)
    _, opacity = photo_layer(np.array([0.0, 1.0]))
    np.testing.assert_allclose(opacity, [1 - VEIL, TINT])


def brettel(colours):
    """What dichromats see, by Viénot, Brettel and Mollon (1999): protanopes, then deuteranopes."""
    to_cone = np.array([[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]])
    for seen in ([[0, 2.02344, -2.52581], [0, 1, 0], [0, 0, 1]], [[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]]):
        linear = np.clip(colours, 0, 1) ** 2.2 @ to_cone.T @ np.array(seen).T @ np.linalg.inv(to_cone).T
        yield np.clip(linear, 0, 1) ** (1 / 2.2)


def test_for_and_against_differ_for_the_colour_blind():
    ends = blend(np.full((2, 3), MIDDLE_GREY), np.array([1.0, -1.0]))
    for seen in (ends, *brettel(ends)):
        assert np.linalg.norm(np.diff(oklab(seen), axis=0)) > 0.1


@pytest.mark.parametrize("colour", [(120, 120, 120), (235, 235, 240), (20, 25, 30), (200, 90, 20)])
def test_a_pixel_has_the_colour_that_the_legend_says(colour):
    """Each patch has a score; the legend says at which score a colour is full: no pixel is of another."""
    scores = np.array([[0.0, 1.0], [4.0, -2.0]])
    part = Part(Patches(Image.new("RGB", (600, 600), colour), 2, 2, (0, 0, 600, 600)), scores.ravel())
    shown = np.asarray(overlay(part)) / 255
    low, _, high = re.findall(r"<span>([^<]*)</span>", html.html_page([picture(parts={"image": part})], "t"))
    assert float(high.removesuffix(" for")) == -float(low.removesuffix(" against"))
    for row, column in np.ndindex(2, 2):  # corners, where no other patch counts
        strength = np.clip(scores[row, column] / float(high.removesuffix(" for")), -1, 1)
        expected = colour_on(np.array(colour) / 255, strength)
        np.testing.assert_allclose(shown[599 * row, 599 * column], np.clip(expected, 0, 1), atol=1.5 / 255)


def test_the_bar_of_a_legend_is_the_heat_over_middle_grey():
    bar = heat_bar(score_scale(np.array([1.0, -1.0])), 5)
    expected = [colour_on([MIDDLE_GREY] * 3, strength) for strength in (-1, -0.5, 0, 0.5, 1)]
    np.testing.assert_allclose(bar, expected, atol=2e-3)


def test_a_photograph_stays_in_colour():
    picture_of_colours = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    photograph = Image.fromarray(picture_of_colours).resize((400, 400), Image.Resampling.NEAREST)
    part = Part(Patches(photograph, 1, 1, (0, 0, 400, 400)), np.zeros(1))
    np.testing.assert_allclose(np.asarray(overlay(part)), VEIL * np.asarray(photograph, float), atol=0.51)


def test_what_stands_out_is_outlined_and_covers_what_the_legend_says():
    scores = np.ones((10, 10))
    scores[2:5, 3:7] = 6.0
    part = Part(Patches(Image.new("RGB", (800, 800), (90, 90, 90)), 10, 10, (0, 0, 800, 800)), scores.ravel())
    average = scores.mean()
    strength = score_scale(scores).strength(scores)
    assert strength.max() > STANDS_OUT > strength.min()
    assert coverage(part).count == 12
    share = 12 * 6 / scores.sum()
    remark = coverage_remark(part)
    assert remark == (
        f"Outlined: 12 % of the picture with {share:.0%} of the scores. "
        f"Full colour: 4 × the average patch ({average:.3g})."
    ).replace("%} of", " %} of").replace(f"{share:.0%}", f"{100 * share:.0f} %")
    assert finding(picture(parts={"image": part})) == "cat 93 %: evidence on 12 % of the picture"
    line = isoline(np.pad(strength, 0), STANDS_OUT)[1]
    assert line.shape == (10, 10)
    bright = (np.asarray(overlay(part)).max(axis=2) > 190).nonzero()
    rows, columns = bright[0] / 80, bright[1] / 80
    assert len(rows) > 200
    assert (rows.min(), rows.max()) == pytest.approx((2, 5), abs=0.5)
    assert (columns.min(), columns.max()) == pytest.approx((3, 7), abs=0.5)


def test_noise_has_no_outline_and_its_title_says_so():
    noise = np.random.default_rng(2).random(256)
    part = Part(patches(400, 400, 16, 16), noise)
    assert finding(picture(parts={"image": part})) == "cat 93 %: no patch stands out"
    assert coverage_remark(part).startswith("No patch stands out: neighbouring patches are no more alike")
    shown, calm = (np.asarray(heat_picture(part.layout, values), int) for values in (noise, np.full(256, 0.5)))
    assert np.abs(shown - calm).max() < 40


def test_titles_count_words_and_say_where_nothing_stands_out():
    words = written("a b c d e f g h", scores=[0, 0, 0, 9, 0, -1, 0, 0])
    assert finding(words) == "positive: evidence on 1 of 8 words"
    assert finding(replace(words, probability=0.9999)) == "positive over 99.9 %: evidence on 1 of 8 words"
    assert finding(written("a b c d e f g h", scores=[1])) == "positive: no word stands out"
    assert finding(written("a b", scores=[0])) == "positive: no word stands out"
    assert finding(picture([0] * 8, parts={**picture([0] * 8).parts, **words.parts})).endswith(
        "evidence on 1 of 8 words"
    )


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (1, "100 %"), (0.9996, "over 99.9 %"), (0.0004, "under 0.1 %"), (0.0044, "0.4 %"), (0.964, "96 %")],
)
def test_a_share_is_not_rounded_to_certainty(share, text):
    assert percent(share) == text


@pytest.mark.parametrize("scores", [np.zeros(4), np.zeros(0), np.full(4, 5e-324), np.full(4, -1.7e308)])
def test_extreme_scores_never_divide_by_zero(scores):
    shown = score_scale(scores)
    assert np.isfinite(shown.colours(shown.strength(scores), "dark")).all()


def test_black_on_white_has_the_contrast_the_standard_says():
    assert contrast_ratio((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast_ratio((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.005)


@given(st.tuples(*[st.integers(0, 255)] * 3))
def test_ink_reads_on_any_background(background):
    assert contrast_ratio(ink(background), background) >= 4.5


def naive_bilinear(grid, box, size):
    (width, height), (rows, columns), (left, top, right, bottom) = size, grid.shape, box
    values = np.zeros((height, width))
    for y in range(height):
        for x in range(width):
            row = min(max((y + 0.5 - top) / (bottom - top) * rows - 0.5, 0), rows - 1)
            column = min(max((x + 0.5 - left) / (right - left) * columns - 0.5, 0), columns - 1)
            r0, c0 = int(row), int(column)
            r1, c1 = min(r0 + 1, rows - 1), min(c0 + 1, columns - 1)
            fr, fc = row - r0, column - c0
            upper = (1 - fc) * grid[r0, c0] + fc * grid[r0, c1]
            lower = (1 - fc) * grid[r1, c0] + fc * grid[r1, c1]
            values[y, x] = (1 - fr) * upper + fr * lower
    return values


@settings(max_examples=40, deadline=None)
@given(
    hnp.arrays(float, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.floats(-1, 1)),
    st.tuples(st.floats(-9, 9), st.floats(-9, 9), st.floats(10, 30), st.floats(10, 30)),
)
def test_upsampling_is_the_naive_bilinear_one(grid, box):
    size = (19, 13)
    values, inside = upsample(grid, box, size)
    np.testing.assert_allclose(values, naive_bilinear(grid, box, size), atol=1e-9)
    y, x = np.mgrid[: size[1], : size[0]] + 0.5
    np.testing.assert_array_equal(inside, (box[0] <= x) & (x < box[2]) & (box[1] <= y) & (y < box[3]))


def test_upsampling_over_the_whole_image_is_pillows_bilinear():
    grid = np.random.default_rng(0).random((3, 4)).astype(np.float32)
    expected = np.asarray(Image.fromarray(grid).resize((40, 21), Image.Resampling.BILINEAR))
    np.testing.assert_allclose(upsample(grid, (0, 0, 40, 21), (40, 21))[0], expected, atol=1e-5)


def test_heat_lies_in_the_box_and_the_rest_is_dimmed_behind_a_line():
    layout = patches(400, 400, 1, 1, (100, 0, 300, 400), (200, 200, 200))
    shown = np.asarray(overlay(Part(layout, np.ones(1)))).astype(int)
    np.testing.assert_allclose(shown[200, 200], np.rint(colour_on([200 / 255] * 3, 1) * 255), atol=1)
    np.testing.assert_allclose(shown[200, 50], np.rint([CUT_OFF * 200] * 3), atol=1)
    assert tuple(shown[200, 100]) == tuple(shown[200, 299]) == FRAME
    assert np.ptp(shown[200, 350]) == 0


def test_a_map_of_zeros_is_a_grey_picture_with_a_flat_legend():
    part = Part(patches(400, 300), np.zeros(8))
    pixels = np.asarray(overlay(part))
    assert (pixels == pixels[0, 0, 0]).all()
    assert np.ptp(heat_bar(score_scale(part.scores), 9)) == 0


@pytest.mark.parametrize(("size", "expected"), [((40, 20), (320, 160)), ((500, 700), (500, 700)), ((1, 900), (1, 900))])
def test_small_images_are_enlarged_and_others_keep_their_size(size, expected):
    part = Part(patches(*size), np.ones(8))
    assert overlay(part).size == expected


def test_the_box_follows_the_picture_to_its_displayed_size():
    assert display_layout(patches(40, 20, box=(10, 0, 30, 20))).box == (80, 0, 240, 160)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "F"])
def test_images_of_any_mode_are_drawn(mode):
    part = Part(Patches(Image.new(mode, (30, 20)), 1, 1, (0, 0, 30, 20)), np.ones(1))
    assert (overlay(part).mode, overlay(part).size) == ("RGB", (320, 213))


def test_a_box_beside_the_image_draws_no_heat():
    shown = np.asarray(overlay(Part(patches(400, 300, box=(500, 0, 900, 300)), np.ones(8))))
    assert (shown == shown[0, 0, 0]).all()


def test_overlay_refuses_text():
    with pytest.raises(ValueError, match="Only patches and regions lie on a picture; this part is 2 word pieces"):
        overlay(written("a b").parts["text"])


def test_legends_print_the_ends_of_the_range():
    rising, mixed, flat = (picture(scores).parts["image"] for scores in (range(8), range(-4, 4), [0] * 8))
    assert figure.legend(rising).size == figure.legend(mixed, width=300).size
    bar = np.asarray(figure.legend(mixed))[5]
    expected = [rgb(colour) for colour in heat_bar(score_scale(mixed.scores), 300)]
    np.testing.assert_array_equal(bar, expected)
    assert figure.legend(flat).width == 300


@pytest.mark.parametrize("explanation", [picture(), written("fine film"), both(), written(""), written(STRANGE)])
def test_every_explanation_makes_a_figure(explanation):
    pixels = np.asarray(figure.explanation_figure(explanation))
    assert pixels.ndim == 3
    assert (pixels[0] == 255).all()
    assert (pixels < 128).any()


def test_words_of_a_figure_lie_on_their_colours():
    explanation = written("low high", scores=[0.25, 1.0])
    pixels = {tuple(colour) for colour in np.asarray(figure.explanation_figure(explanation)).reshape(-1, 3).tolist()}
    scale = score_scale(np.array([0.25, 1.0]))
    assert {rgb(scale.colours(scale.strength(score), "light")) for score in np.array([0.25, 1.0])} <= pixels


def test_a_long_text_is_cut_in_a_figure_with_the_number_of_words_left_out():
    chips = [canvas.Chip("word")] * 1000
    assert canvas.paragraph(chips, 300, 20, most_lines=5).height == 5 * 31
    assert figure.explanation_figure(written("word " * 5000)).height < 16_000


def test_text_that_reads_from_the_right_begins_at_the_right():
    chips = [canvas.Chip("שלום", (250, 0, 0)), canvas.Chip("אב", (0, 0, 250))]
    pixels = np.asarray(canvas.paragraph(chips, 400, 20)).astype(int)
    red, blue = (np.flatnonzero((pixels == colour).all(-1).any(0)).mean() for colour in ([250, 0, 0], [0, 0, 250]))
    assert blue < red


def test_an_unbroken_string_is_wrapped():
    assert canvas.paragraph([canvas.Chip("x" * 500, (9, 9, 9))], 200, 20).width <= 200


def test_a_grid_has_a_cell_for_each_explanation_and_refuses_unequal_rows():
    one = picture()
    sheet = figure.grid([[one, None], [one, one]], ["first", "second"], ["a", "b"])
    assert sheet.width > 3 * figure.CELL
    with pytest.raises(ValueError, match="2 rows of explanations have 1 row titles"):
        figure.grid([[one], [one]], ["first"], ["a"])
    with pytest.raises(ValueError, match="Row 'first' has 1 cells, but there are 2 column titles"):
        html.comparison_page([[one]], ["first"], ["a", "b"])
    with pytest.raises(ValueError, match="nothing to compare"):
        figure.grid([[None]], ["first"], ["a"])


class Page(HTMLParser):
    """Tags, their attributes and all text, as a browser would read them."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.text, self.attributes = [], [], []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes.extend((tag, name, value) for name, value in attributes)

    def handle_data(self, data):
        self.text.append(data)


def nasty():
    parts = {NASTY: pieces([f"{NASTY} </p>"], [1, -1]), **picture().parts}
    return Explanation(parts, NASTY, 0.5, NASTY, NASTY, {NASTY: NASTY}, (NASTY,))


@pytest.mark.parametrize(
    "source",
    [
        html.html_page([nasty()], NASTY),
        html.explanation_fragment(nasty()),
        html.comparison_page([[nasty(), None]], [NASTY], [NASTY, "b"], NASTY),
        html.html_page([nasty(), replace(nasty(), parts=written(NASTY).parts)], NASTY),
    ],
)
def test_no_string_of_the_user_becomes_markup(source):
    page = Page(source)
    assert "script" not in page.tags
    assert "<script" not in source
    assert NASTY in "".join(page.text)


@pytest.mark.parametrize(
    "source", [html.html_page([both(), written("a")], "t"), html.comparison_page([[both()]], ["r"], ["c"])]
)
def test_a_page_asks_for_nothing_from_outside(source):
    page = Page(source)
    links = [value for _, name, value in page.attributes if name in ("src", "href", "srcset", "data")]
    assert links
    assert all(value.startswith("data:image/jpeg;base64,") for value in links)
    assert not {"link", "script", "iframe", "object"} & set(page.tags)
    assert not re.search(r"url\(|@import|https?://", source)


def test_hovering_a_piece_shows_it_with_its_score():
    page = Page(html.html_page([written("a <b>", scores=[0.25, 0.5])], "t"))
    assert [value for tag, name, value in page.attributes if name == "title"] == ["a  0.25", "<b>  0.5"]


def test_pieces_carry_the_class_of_their_level():
    page = Page(html.html_page([written("a b c d", scores=[0, 0.25, -0.5, 0.5])], "t"))
    classes = [value for tag, name, value in page.attributes if tag == "span" and name == "class"]
    assert classes == ["for-27", "against-53", "for-53"]  # of three quarters of all


@pytest.mark.parametrize(("scores", "kind"), [([1.0], "for"), ([1.0, -1.0], "for"), ([-1.0, 1.0], "against")])
def test_text_on_every_level_is_readable_in_both_schemes(scores, kind):
    shown = score_scale(np.array(scores))
    for level in range(1, 101):
        name = token_shade(np.sign(scores[0]) * shown.high * level / 100, shown)
        assert name == f"{kind}-{level}"
        pairs = re.findall(r"light-dark\(#(\w+), #(\w+)\)", declarations(name))
        (background, foreground) = ([tuple(bytes.fromhex(colour)) for colour in pair] for pair in pairs)
        assert all(contrast_ratio(*pair) >= 4.5 for pair in zip(background, foreground, strict=True))


def test_the_page_itself_is_readable_in_both_schemes():
    source = html.html_page([picture()], "t")
    for ground, *inks in (("fcfcfc", "1c1c1e", "5f5f66"), ("1f1f1f", "ececee", "a6a6ad")):
        assert all(f"#{colour}" in source for colour in (ground, *inks))
        assert all(contrast_ratio(tuple(bytes.fromhex(ground)), tuple(bytes.fromhex(colour))) >= 4.5 for colour in inks)


def test_legends_of_a_page_show_the_values():
    assert _legend(range(-4, 4)) == ["-8 against", "0", "8 for"]
    assert _legend(range(8)) == ["0", "score 14"]
    assert _legend([0] * 8) == ["all scores are 0"]


def _legend(scores):
    return re.findall(r"<span>([^<]*)</span>", html.html_page([picture(scores)], "t"))


def test_a_comparison_shows_the_original_once_a_row_and_shared_notes_once():
    noted = picture(notes=("cropped",))
    page = Page(html.comparison_page([[noted, noted], [noted, None]], ["r1", "r2"], ["c1", "c2"]))
    assert page.tags.count("img") == 2 + 3
    assert "".join(page.text).count("cropped") == 1


def test_a_comparison_names_every_cell_by_its_method_and_lets_them_wrap():
    page = html.comparison_page([[both(), None], [written("a"), written("b")]], ["r1", "r2"], ["bi_head", "rollout"])
    rows = re.findall(r'<section class="row">(.*?)</section>', page, re.DOTALL)
    captions = [re.findall(r"<figcaption[^>]*>(.*?)</figcaption>", row) for row in rows]
    assert captions == [["original", "bi_<wbr>head", "rollout"], ["bi_<wbr>head", "rollout"]]
    assert ["cells with-text" in row for row in rows] == [True, True]
    assert "cells with-text" not in html.comparison_page([[picture()]], ["r"], ["c"])
    assert "repeat(auto-fit, minmax(" in page
    assert "<table" not in page


def test_a_fragment_styles_nothing_outside_itself():
    style = re.search(r"<style>(.*)</style>", html.explanation_fragment(both()), re.DOTALL).group(1)
    selectors = [rule.split("{")[0].strip() for rule in style.split("}") if "{" in rule]
    assert selectors
    assert all(selector.startswith(".whyformer") for selector in selectors)
    assert both()._repr_html_() == html.explanation_fragment(both())


@pytest.mark.parametrize("explanation", [written(""), written(STRANGE, STRANGE), written("word " * 5000), both()])
def test_any_explanation_makes_a_page_that_can_be_written(explanation, tmp_path):
    explanation.save(tmp_path / "e.html")
    source = (tmp_path / "e.html").read_text("utf-8")
    assert not re.search(r"[\x00\x1b\u202e]", source)


def test_controls_become_symbols_without_moving_a_character():
    assert readable("a\x00\x1b\x7f\x85\u202eb\n\t") == "a␀␛␡\ufffd\ufffdb\n\t"
    assert len(readable(STRANGE)) == len(STRANGE)


def test_spans_cover_the_text_and_share_characters_where_pieces_do():
    layout = WordPieces(("😀 ok.\n",), ("ðŁ", "ĺĢ", "Ġok", "Ċ"), (0, 0, 0, 0), ((0, 1), (0, 1), (1, 4), (5, 6)))
    part = Part(layout, np.array([0.125, -0.5, 0.2, 0.3]))
    by_token = [(span.text, span.score) for span in spans(part, 0, "token")]
    assert by_token == [("😀", -0.375), (" ", None), ("ok", 0.2), (".\n", None)]
    by_word = [(span.text, span.score) for span in spans(part, 0)]
    assert by_word == [("😀", -0.375), (" ", None), ("ok.", 0.2), ("\n", None)]
    assert invisible_tokens(part) == [("↵", 0.3)]
    assert "Not visible in the text" in html.explanation_fragment(picture(parts={"t": part}))


@given(st.text(max_size=30), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8))
def test_spans_put_together_are_the_text(text, ends):
    offsets = tuple(tuple(sorted(min(end, len(text)) for end in pair)) for pair in ends)
    part = Part(WordPieces((text,), ("t",) * len(offsets), (0,) * len(offsets), offsets), np.ones(len(offsets)))
    for units in ("word", "token"):
        assert "".join(span.text for span in spans(part, 0, units)) == readable(text)
    by_token = spans(part, 0, "token")
    assert sum(len(span.tokens) for span in by_token) + len(invisible_tokens(part)) == len(offsets)


def test_a_word_is_shown_by_the_sum_of_its_pieces_on_a_scale_that_holds_it():
    part = Part(WordPieces(("bad,",), ("bad", ","), (0, 0), ((0, 3), (3, 4))), np.array([-0.5, -0.25]))
    assert [word.score for word in part.words()] == [-0.75]
    assert part_scale(part) == Scale(-0.5625, 0.5625, 0.75)
    assert part_scale(part, "token") == Scale(-0.5625, 0.5625, 0.375)


def coloured(explanation, width=80):
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=width)
    return terminal.coloured_explanation(explanation, console)


def test_a_terminal_without_colours_gets_the_strongest_words_with_their_scores():
    explanation = written("good film , awful sound", scores=[0.5, 0.25, 0, -1, 0.125])
    lines = terminal.plain_explanation(explanation).splitlines()
    assert lines[0] == "positive by rollout on mini-bert"
    assert [line.split() for line in lines[1:]] == [
        *[["0.5", "good"], ["0.25", "film"], ["0.125", "sound"], ["0", ","], ["against"], ["-1", "awful"]]
    ]


def test_a_terminal_without_colours_gets_pictures_in_shades():
    lines = terminal.plain_explanation(picture([0, 0, 0, 0, 1, 1, 1, 1])).splitlines()
    assert lines[0] == "cat (0.93) by bi_token on mini-vit"
    assert [set(line) for line in (lines[1], lines[-2])] == [set(), {"▒"}]  # twice the average, of four times
    assert lines[-1] == "0 · ░▒▓█ 2"
    assert len(lines) == 12 + 2
    assert "=" in terminal.plain_explanation(picture([-1, 0, 0, 0, 0, 0, 0, 1]))


def test_a_few_strong_pixels_leave_the_others_visible():
    scores = np.full(80 * 80, 0.01)
    scores[:8], scores[-1] = 1.0, -1.0
    shown = score_scale(scores)
    assert shown.high == -shown.low == pytest.approx(4 * np.abs(scores).mean())
    np.testing.assert_allclose(shown.strength(scores)[[0, 40, -1]], [1.0, 0.01 / shown.high, -1.0])
    alone = np.zeros(80 * 80)
    alone[0] = 1.0
    assert 0 < score_scale(alone).high < 1.0
    assert score_scale(scores[:64]).high == pytest.approx(4 * scores[:64].mean())


def test_half_blocks_show_two_rows_of_the_overlay_a_line():
    explanation = picture(layout=patches(64, 32, 1, 1), scores=[0.0])
    lines = coloured(explanation).splitlines()
    assert [line.count("▀") for line in lines[1:-1]] == [64] * 16
    grey = tuple(np.asarray(overlay(explanation.parts["image"]))[0, 0].tolist())
    assert "38;2;{};{};{};48;2;{};{};{}".format(*grey, *grey) in lines[1]
    assert "scores from 0 to 0" in lines[-1]


def test_words_in_a_terminal_have_readable_backgrounds_of_their_colour():
    background = rgb(RAMPS["dark", "for"][100])
    foreground = ink(background)
    assert "\x1b[38;2;{};{};{};48;2;{};{};{}mgood".format(*foreground, *background) in coloured(written("good"))


def test_escape_sequences_in_a_text_do_not_reach_the_terminal():
    hostile = written("\x1b[2Jgone", target="\x1b[2J", notes=("\x1b[2J",))
    for shown in (terminal.plain_explanation(hostile), coloured(hostile)):
        assert "\x1b[2J" not in shown
        assert "␛[2J" in shown


def test_a_long_text_is_shown_around_its_strongest_word():
    scores = np.full(5000, 0.01)
    scores[4000] = 1
    words = ["word"] * 5000
    words[4000] = "here"
    shown = coloured(written(" ".join(words), scores=scores))
    assert "here" in shown
    assert shown.count("word") < 600
    assert shown.count("…") == 2
    assert "         1  here  (word 4001 of 5000)\n" in Text.from_ansi(shown).plain


def test_the_strongest_words_of_a_long_text_come_with_their_position():
    scores = np.zeros(60)
    scores[[41, 6]] = 1, 0.5
    text = " ".join(f"w{number}" for number in range(60))
    lines = terminal.plain_explanation(written(text, scores=scores)).splitlines()
    assert lines[1:3] == ["         1  w41  (word 42 of 60)", "       0.5  w6  (word 7 of 60)"]
    pair = terminal.plain_explanation(written(text[: text.index("w30")], text[text.index("w30") :], scores=scores))
    assert pair.splitlines()[1:3] == ["         1  w41  (word 12 of text 2)", "       0.5  w6  (word 7 of text 1)"]
    assert "(word" not in terminal.plain_explanation(written("a short text"))


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("variables", "has_colours"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_print_has_colours_only_where_the_terminal_has(monkeypatch, variables, has_colours):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLORTERM": "truecolor", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout", Terminal())
    assert ("\x1b[" in str(picture())) == has_colours


def test_printing_to_a_file_is_plain(monkeypatch):
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert str(both()) == terminal.plain_explanation(both())


def test_a_system_without_dejavu_draws_in_pillows_own_font(monkeypatch):
    truetype = fonts.ImageFont.truetype

    def without_files(font, *arguments, **options):
        if isinstance(font, str):
            raise OSError("cannot open resource")
        return truetype(font, *arguments, **options)

    fonts.font.cache_clear()
    monkeypatch.setattr(fonts.ImageFont, "truetype", without_files)
    try:
        assert fonts.font(20).getname()[0] == "Aileron"
        assert (np.asarray(figure.explanation_figure(written(STRANGE))) < 128).any()
    finally:
        fonts.font.cache_clear()


def test_columns_of_a_grid_stay_in_line_over_pictures_and_texts():
    row = [written("many words " * 20), picture()]
    pixels = np.asarray(figure.grid([row, row[::-1]], ["a", "b"], ["one", "two"]))
    widths = figure.ROW_TITLE + 3 * figure.CELL + 3 * 24 + 2 * figure.MARGIN
    assert pixels.shape[1] == widths


def test_spans_refuse_a_picture():
    with pytest.raises(ValueError, match="Only word pieces can be shown as text; this part is 2×4 patches"):
        spans(picture().parts["image"], 0)


GROUNDS = {
    "light": (235, 235, 240),
    "dark": (30, 32, 36),
    "orange, as the tint": (215, 130, 60),
    "blue, as the other tint": (60, 120, 200),
    "grey": (128, 128, 128),
}
AT_A_GLANCE = 0.1  # OKLab: about five times the least difference that is seen


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("ground", GROUNDS)
def test_the_strongest_tenth_is_seen_at_a_glance_on_any_photograph(ground, sign):
    """What stands out differs from the rest of a photograph of one colour, and of one of many, by far."""
    noise = np.random.default_rng(0).integers(-25, 26, (320, 320, 3))
    photograph = Image.fromarray(np.clip(np.array(GROUNDS[ground]) + noise, 0, 255).astype(np.uint8))
    scores = np.zeros((20, 20))
    scores[6:12, 6:13] = sign  # 10.5 % of the picture
    layout = Patches(photograph, 20, 20, (0, 0, 320, 320))
    shown = oklab(np.asarray(heat_picture(layout, scores.ravel())) / 255)
    inside, outside = shown[112:176, 112:192], shown[208:, 208:]
    assert np.linalg.norm(inside.mean(axis=(0, 1)) - outside.mean(axis=(0, 1))) > AT_A_GLANCE
    before, plain = (
        oklab(np.asarray(photograph)[rows, columns] / 255)
        for rows, columns in ((slice(112, 176), slice(112, 192)), (slice(208, 320), slice(208, 320)))
    )
    assert np.linalg.norm(before.mean(axis=(0, 1)) - plain.mean(axis=(0, 1))) < 0.01

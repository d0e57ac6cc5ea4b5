"""Pictures in characters for terminals: coloured half blocks, or shades."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import numpy as np
from PIL import Image, ImageDraw
from rich.style import Style
from rich.text import Text

from whyformer.inputs.layouts import Boxes, Patches, PictureLayout
from whyformer.render.canvas import WHITE
from whyformer.render.colour import RGB, ink, score_scale
from whyformer.render.heatmaps import (
    display_layout,
    heat_picture,
    leading_regions,
    picture_layout,
    resize_layout,
    spread_scores,
    strongest_first,
)
from whyformer.render.marks import Edges, edges
from whyformer.render.scatter import layout_scale
from whyformer.render.text_spans import TextUnits, number, shown_scores

if TYPE_CHECKING:
    from whyformer.results.part import Part

PLAIN_WIDTH, COLOURED_WIDTH, LISTED_REGIONS, MOST_MOMENTS, CELL_BAR = 48, 64, 5, 5, 20
FOR, AGAINST = " ░▒▓█", " --=="
BLOCKS = " ▁▂▃▄▅▆▇█"
WEAK = "·"  # marks a region of any weak score


def half_blocks(part: Part, width: int) -> list[Text]:
    """Two rows of pixels per line: the upper in the foreground colour, the lower in the background."""
    layout = picture_layout(part)
    rows = max(1, round(width * layout.image.height / layout.image.width / 2))
    small = resize_layout(layout, (width, 2 * rows))
    picture = heat_picture(display_layout(layout), part.scores).resize(small.image.size, Image.Resampling.LANCZOS)
    if isinstance(small, Patches) and small.outline and (around := edges(small.outline, picture.size)):
        ImageDraw.Draw(picture).rectangle(around, outline=WHITE)
    numbers = {(row // 2, column): digit for (row, column), digit in _numbers(part, small).items()}
    pixels = np.asarray(picture).tolist()
    return [
        Text.assemble(
            *(
                _block(tuple(above), tuple(below), numbers.get((row, column)))
                for column, (above, below) in enumerate(zip(upper, lower, strict=True))
            )
        )
        for row, (upper, lower) in enumerate(zip(pixels[::2], pixels[1::2], strict=True))
    ]


def shades(part: Part) -> list[str]:
    """Patches or regions in characters, darker for stronger scores."""
    match part.layout:
        case Patches():
            rows = _patch_rows(part, part.layout)
        case Boxes():
            rows = _region_rows(part, part.layout)
        case unknown:
            raise ValueError(f"Only patches and regions make a picture; this part is {unknown.summary}.")
    return ["".join(row).rstrip() for row in rows]


def shade_key(part: Part) -> str:
    """Key to the characters of `shades`."""
    scale = layout_scale(part.layout, part.scores)
    against = f"{AGAINST.strip()} {number(scale.low)} · " if scale.is_diverging else ""
    return f"{against}0 · {FOR.strip()} {number(scale.high)}"


def region_list(part: Part) -> list[str]:
    """The strongest regions with their bars, and their numbers on the picture."""
    lengths, with_number = part.scores / (np.abs(part.scores).max(initial=0) or 1), len(leading_regions(part))
    order = strongest_first(part.scores)[:LISTED_REGIONS]
    width = max((len(part.tokens[region]) for region in order), default=0)
    return [
        f"{rank if rank <= with_number else ' '} {part.tokens[region]:{width}} {number(part.scores[region]):>9}"
        f" {_bar(lengths[region])}".rstrip()
        for rank, region in enumerate(order, start=1)
    ]


def moment_list(part: Part) -> list[str]:
    """The strongest tokens with their scores."""
    order = strongest_first(part.scores)[:MOST_MOMENTS]
    return [f"{part.scores[token]:>10.3g}  {part.tokens[token]}" for token in order]


def range_line(part: Part, units: TextUnits = "word") -> Text:
    """The range of the scores that are coloured."""
    scores = shown_scores(part, units)
    return Text(f"scores from {number(scores.min(initial=0))} to {number(scores.max(initial=0))}", "dim")


def style(foreground: RGB, background: RGB) -> Style:
    return Style(color="#{:02x}{:02x}{:02x}".format(*foreground), bgcolor="#{:02x}{:02x}{:02x}".format(*background))


def _block(upper: RGB, lower: RGB, digit: str | None) -> tuple[str, Style]:
    return ("▀", style(upper, lower)) if digit is None else (digit, style(ink(lower), lower) + Style(bold=True))


def _bar(length: float) -> str:
    return (FOR if length >= 0 else AGAINST)[-1] * round(CELL_BAR * abs(length))


def _patch_rows(part: Part, layout: Patches) -> list[list[str]]:
    """The grid of patches, with a frame around the outline."""
    left, top, right, bottom = layout.box
    size = _size(right - left, bottom - top)
    strength = layout_scale(layout, part.scores).strength(part.scores).reshape(layout.rows, layout.columns)
    picture = Image.fromarray(strength.astype(np.float32)).resize(size, Image.Resampling.BILINEAR)
    rows = [list(map(shade, row)) for row in np.asarray(picture).tolist()]
    if layout.outline is not None:
        across, down = size[0] / (right - left), size[1] / (bottom - top)
        x, y, end, lowest = layout.outline
        _frame(rows, edges(((x - left) * across, (y - top) * down, (end - left) * across, (lowest - top) * down), size))
    return rows


def _frame(rows: list[list[str]], around: Edges | None) -> None:
    if around is None:
        return
    left, top, right, bottom = around
    for row in rows[top : bottom + 1]:
        row[left] = row[right] = "│"
    for row, (start, end) in ((rows[bottom], "└┘"), (rows[top], "┌┐")):
        row[left : right + 1] = (start + "─" * (right - left - 1) + end)[: right - left + 1]


def _region_rows(part: Part, layout: Boxes) -> list[list[str]]:
    """The picture with its regions, the strongest numbered."""
    small = resize_layout(layout, _size(*layout.image.size))
    strength, inside = spread_scores(small, score_scale(part.scores).strength(part.scores))
    rows = [list(map(shade, row)) for row in strength.tolist()]
    for row, column in np.argwhere(inside).tolist():
        rows[row][column] = rows[row][column].replace(" ", WEAK)
    for (row, column), digit in _numbers(part, small).items():
        rows[row][column] = digit
    return rows


def _numbers(part: Part, layout: PictureLayout) -> dict[tuple[int, int], str]:
    """The digits of the numbered regions by row and column, at each region's centre."""
    match layout:
        case Patches():
            return {}
        case Boxes(boxes=boxes):
            around = [edges(boxes[region], layout.image.size) for region in leading_regions(part)]
            places = [(str(rank), edge) for rank, edge in enumerate(around, start=1) if edge]
            # The strongest last, so that it wins in case of overlap.
            return {((a[1] + a[3]) // 2, (a[0] + a[2]) // 2): digit for digit, a in reversed(places)}
        case unknown:
            assert_never(unknown)


def shade(strength: float) -> str:
    """A character as dark as the score is strong, of another kind if negative."""
    shades = FOR if strength >= 0 else AGAINST
    return shades[min(len(shades) - 1, int(abs(strength) * len(shades)))]


def _size(width: float, height: float) -> tuple[int, int]:
    """Size in characters, which are about twice as high as wide."""
    return PLAIN_WIDTH, min(PLAIN_WIDTH, max(1, round(PLAIN_WIDTH / 2 * height / width)))

"""Explanations as PIL images."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import assert_never

import numpy as np
from PIL import Image

from whyformer.inputs.layouts import Boxes, Patches, WordPieces
from whyformer.render import canvas
from whyformer.render.canvas import Chip
from whyformer.render.colour import RGB, rgb, scale
from whyformer.render.heat import REGION_OPACITY, heat_bar, original, overlay, shown_side
from whyformer.render.text import captioned, number, ranking, readable, strongest_words, visible
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part

__all__ = ["figure", "grid", "legend", "overlay"]

WIDTH, LARGEST_SIDE, CELL, ROW_TITLE, MARGIN = 1280, 628, 400, 180, 32
# Parts side by side: smaller pictures, and words only where a column is wide enough to read.
SIDE_BESIDE, LEAST_COLUMN, GUTTER = 400, 280, 48
Rows = Sequence[Sequence[Explanation | None]]


def legend(part: Part, *, width: int = 300) -> Image.Image:
    """A colour bar with the values at its ends (and 0 in the middle where scores have both signs)."""
    shown = scale(part.scores)
    colours = np.rint(np.clip(_bar(part, width), 0, 1) * 255).astype(np.uint8)
    bar = Image.fromarray(np.repeat(colours[None], 14, axis=0))
    if shown.high == 0:
        return canvas.stacked([bar, canvas.label("all scores are 0", width, 16)], gap=4)
    values = [shown.low, 0, shown.high] if shown.is_diverging else [0, shown.high]
    return canvas.stacked([bar, _spread([number(value) for value in values], width)], gap=4)


def figure(explanation: Explanation | Continuation) -> Image.Image:
    """The whole explanation on a white sheet: title, the original beside the overlay or the coloured text, legend.

    Of a continuation, each token that was written beside the coloured text before it.
    """
    if isinstance(explanation, Continuation):
        title = canvas.label(explanation.headline, WIDTH, 26, colour=canvas.INK, bold=True)
        return canvas.framed(canvas.stacked([title, *map(_token_row, explanation.explanations)], gap=20), margin=MARGIN)
    parts = _parts_figure(captioned(explanation))
    width = max(640, parts.width)
    headline = canvas.label(explanation.headline, width, 26, colour=canvas.INK, bold=True)
    notes = [canvas.label(readable(note), width, 17) for note in explanation.notes]
    return canvas.framed(canvas.stacked([headline, parts, *notes], gap=20), margin=MARGIN)


def _token_row(explanation: Explanation) -> Image.Image:
    width = WIDTH - ROW_TITLE - 24
    texts = [_text(part, width, 20, most_lines=12) for _, part in captioned(explanation)]
    return canvas.beside([_heading(explanation.answer, ROW_TITLE), canvas.stacked(texts)])


def grid(rows: Rows, row_titles: Sequence[str], column_titles: Sequence[str]) -> Image.Image:
    """Explanations side by side, a row and a column title for each; None leaves a cell empty."""
    check_grid(rows, row_titles, column_titles)
    originals = [row_original(row, CELL) for row in rows]
    shows_originals = any(originals)
    headings = [_heading("", ROW_TITLE), *[_heading("original")] * shows_originals, *map(_heading, column_titles)]
    sheet = [canvas.beside(headings)]
    for name, row, picture in zip(row_titles, rows, originals, strict=True):
        before = [_heading(visible(name), ROW_TITLE), *[_in_cell(picture)] * shows_originals]
        sheet.append(canvas.beside([*before, *map(_cell, row)]))
    return canvas.framed(canvas.stacked(sheet, gap=28), margin=MARGIN)


def check_grid(rows: Rows, row_titles: Sequence[str], column_titles: Sequence[str]) -> None:
    """Raise where titles and cells do not match."""
    if len(rows) != len(row_titles):
        raise ValueError(f"{len(rows)} rows of explanations have {len(row_titles)} row titles; give one for each.")
    for name, row in zip(row_titles, rows, strict=True):
        if len(row) != len(column_titles):
            raise ValueError(f"Row {name!r} has {len(row)} cells, but there are {len(column_titles)} column titles.")
    if not any(cell for row in rows for cell in row):
        raise ValueError("There is nothing to compare: every cell is None or there are no rows.")


def row_original(row: Sequence[Explanation | None], longest_side: int) -> Image.Image | None:
    """The picture that a row of explanations is about, where it has one."""
    layouts = (part.layout for cell in row if cell for part in cell.parts.values())
    return next((original(layout, longest_side) for layout in layouts if not isinstance(layout, WordPieces)), None)


def _parts_figure(parts: Sequence[tuple[str, Part]]) -> Image.Image:
    """The parts one under the other or side by side, whichever is lower."""
    under = canvas.stacked([_part_figure(*part, WIDTH, LARGEST_SIDE) for part in parts], gap=28)
    texts = sum(isinstance(part.layout, WordPieces) for _, part in parts)
    pictures = sum(2 * SIDE_BESIDE + 24 for _, part in parts if not isinstance(part.layout, WordPieces))
    column = (WIDTH - pictures - GUTTER * (len(parts) - 1)) // max(1, texts)
    if len(parts) == 1 or column < LEAST_COLUMN:
        return under
    beside = canvas.beside([_part_figure(*part, column, SIDE_BESIDE) for part in parts], gap=GUTTER)
    return min(beside, under, key=lambda picture: picture.height)


def _part_figure(caption: str, part: Part, width: int, largest_side: int) -> Image.Image:
    match part.layout:
        case Patches() | Boxes():
            side = shown_side(part.layout, largest_side)
            shown = canvas.beside([original(part.layout, side), overlay(part, longest_side=side)])
        case WordPieces():
            shown = _text(part, width, 24, most_lines=400)
        case unknown:
            assert_never(unknown)
    body = canvas.stacked([shown, *_ranking(part, shown.width), legend(part)], gap=18)
    return canvas.stacked([*_caption(caption), body], gap=10)


def _part_cell(caption: str, part: Part) -> Image.Image:
    match part.layout:
        case Patches() | Boxes():
            shown = overlay(part, longest_side=CELL)
        case WordPieces():
            shown = _text(part, CELL, 17, most_lines=40)
        case unknown:
            assert_never(unknown)
    return canvas.stacked([*_caption(caption), shown, *_ranking(part, CELL), legend(part, width=200)], gap=10)


def _caption(text: str) -> list[Image.Image]:
    return [canvas.label(text, CELL, 17, bold=True)] if text else []


def _ranking(part: Part, width: int) -> list[Image.Image]:
    return [canvas.label(text, width, 17)] if (text := ranking(part)) else []


def _bar(part: Part, width: int) -> np.ndarray:
    shown = scale(part.scores)
    match part.layout:
        case Patches():
            return heat_bar(shown, width)
        case Boxes():
            return heat_bar(shown, width, REGION_OPACITY)
        case WordPieces():
            strength = np.linspace(-1 if shown.is_diverging else 0, 1, width) * (shown.high > 0)
            return shown.colours(strength, "light")
        case unknown:
            assert_never(unknown)


def _text(part: Part, width: int, size: int, *, most_lines: int) -> Image.Image:
    """Each text as a paragraph, its words on the colour of their strongest piece."""
    assert isinstance(part.layout, WordPieces)
    words, shown = strongest_words(part), scale(part.scores)
    colours = shown.colours(shown.strength(np.array([word.score for word in words])), "light")
    backgrounds = {(word.segment, word.start): rgb(colour) for word, colour in zip(words, colours, strict=True)}
    paragraphs = [
        canvas.paragraph(_chips(text, segment, backgrounds), width, size, most_lines=most_lines)
        for segment, text in enumerate(part.layout.texts)
    ]
    return canvas.framed(canvas.stacked(paragraphs, gap=size), width=width)


def _chips(text: str, segment: int, backgrounds: Mapping[tuple[int, int], RGB]) -> list[Chip]:
    chips, position = [], 0
    for word in re.finditer(r"\S+", text):
        starts_line = "\n" in text[position : word.start()]
        chips.append(Chip(readable(word.group()), backgrounds.get((segment, word.start())), starts_line))
        position = word.end()
    return chips


def _spread(texts: Sequence[str], width: int) -> Image.Image:
    """Short texts from the left edge to the right edge."""
    pictures = [canvas.label(text, ceil(canvas.font(16).getlength(text)) + 1, 16) for text in texts]
    sheet = canvas.framed(pictures[0], width=width)
    for index, picture in enumerate(pictures[1:], start=1):
        sheet.paste(picture, (round((width - picture.width) * index / (len(texts) - 1)), 0))
    return sheet


def _heading(text: str, width: int = CELL) -> Image.Image:
    return canvas.framed(canvas.label(readable(text), width, 20, colour=canvas.INK, bold=True), width=width)


def _in_cell(picture: Image.Image | None) -> Image.Image:
    return canvas.framed(picture or canvas.label("", CELL), width=CELL)


def _cell(explanation: Explanation | None) -> Image.Image:
    if explanation is None:
        return _in_cell(canvas.label("–", CELL))
    answer = canvas.label(explanation.answer, CELL, 17)
    parts = [_part_cell(*part) for part in captioned(explanation)]
    return _in_cell(canvas.stacked([*parts, answer], gap=8))

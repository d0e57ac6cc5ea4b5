"""Explanations as PIL images."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import assert_never

import numpy as np
from PIL import Image

from whyformer.explanation import Explanation, Part, Patches, WordPieces
from whyformer.render import canvas
from whyformer.render.canvas import Chip
from whyformer.render.colour import RGB, rgb, scale
from whyformer.render.heat import displayed, heat_bar, overlay, shown_side
from whyformer.render.text import number, readable, strongest_words

__all__ = ["figure", "grid", "legend", "overlay"]

WIDTH, LARGEST_SIDE, CELL, ROW_TITLE, MARGIN = 1280, 628, 400, 180, 32
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


def figure(explanation: Explanation) -> Image.Image:
    """The whole explanation on a white sheet: title, the original beside the overlay or the coloured text, legend."""
    parts = [_part_figure(part) for part in explanation.parts.values()]
    width = max(640, *(part.width for part in parts))
    title = canvas.label(readable(explanation.headline), width, 26, colour=canvas.INK, bold=True)
    notes = [canvas.label(readable(note), width, 17) for note in explanation.notes]
    return canvas.framed(canvas.stacked([title, *parts, *notes], gap=20), margin=MARGIN)


def grid(rows: Rows, row_titles: Sequence[str], column_titles: Sequence[str]) -> Image.Image:
    """Explanations side by side, a row and a column title for each; None leaves a cell empty."""
    check_grid(rows, row_titles, column_titles)
    originals = [row_original(row, CELL) for row in rows]
    shows_originals = any(originals)
    headings = [_heading("", ROW_TITLE), *[_heading("original")] * shows_originals, *map(_heading, column_titles)]
    sheet = [canvas.beside(headings)]
    for title, row, picture in zip(row_titles, rows, originals, strict=True):
        before = [_heading(title, ROW_TITLE), *[_in_cell(picture)] * shows_originals]
        sheet.append(canvas.beside([*before, *map(_cell, row)]))
    return canvas.framed(canvas.stacked(sheet, gap=28), margin=MARGIN)


def check_grid(rows: Rows, row_titles: Sequence[str], column_titles: Sequence[str]) -> None:
    """Raise where titles and cells do not match."""
    if len(rows) != len(row_titles):
        raise ValueError(f"{len(rows)} rows of explanations have {len(row_titles)} row titles; give one for each.")
    for title, row in zip(row_titles, rows, strict=True):
        if len(row) != len(column_titles):
            raise ValueError(f"Row {title!r} has {len(row)} cells, but there are {len(column_titles)} column titles.")
    if not any(cell for row in rows for cell in row):
        raise ValueError("There is nothing to compare: every cell is None or there are no rows.")


def row_original(row: Sequence[Explanation | None], longest_side: int) -> Image.Image | None:
    """The picture that a row of explanations is about, where it has one."""
    layouts = (part.layout for cell in row if cell for part in cell.parts.values())
    return next((displayed(layout, longest_side).image for layout in layouts if isinstance(layout, Patches)), None)


def _part_figure(part: Part) -> Image.Image:
    match part.layout:
        case Patches():
            side = shown_side(part.layout, LARGEST_SIDE)
            pictures = [displayed(part.layout, side).image, overlay(part, longest_side=side)]
            return canvas.stacked([canvas.beside(pictures), legend(part)], gap=18)
        case WordPieces():
            return canvas.stacked([_text(part, WIDTH, 24, most_lines=400), legend(part)], gap=18)
        case unknown:
            assert_never(unknown)


def _part_cell(part: Part) -> Image.Image:
    match part.layout:
        case Patches():
            pictures = [overlay(part, longest_side=CELL)]
        case WordPieces():
            pictures = [_text(part, CELL, 17, most_lines=40)]
        case unknown:
            assert_never(unknown)
    return canvas.stacked([*pictures, legend(part, width=200)], gap=10)


def _bar(part: Part, width: int) -> np.ndarray:
    shown = scale(part.scores)
    match part.layout:
        case Patches():
            return heat_bar(shown, width)
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
    caption = canvas.label(readable(explanation.answer), CELL, 17)
    parts = [_part_cell(part) for part in explanation.parts.values()]
    return _in_cell(canvas.stacked([*parts, caption], gap=8))

"""Explanations as PIL images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from whyformer.inputs.layouts import Boxes, Patches, WordPieces
from whyformer.render import canvas
from whyformer.render.colour import Scale
from whyformer.render.coverage import coverage_remark, finding
from whyformer.render.fonts import missing_characters, text_width
from whyformer.render.heatmaps import heat_bar, original, overlay
from whyformer.render.layout_kinds import Space, kind_of
from whyformer.render.text_spans import (
    TextUnits,
    captioned_parts,
    part_scale,
    readable,
    region_ranking,
    scale_texts,
    visible,
)

if TYPE_CHECKING:
    from whyformer.results.continuation import Continuation
    from whyformer.results.explanation import Explanation
    from whyformer.results.part import Part

    Rows = Sequence[Sequence[Explanation | None]]

__all__ = ["continuation_figure", "explanation_figure", "grid", "legend", "overlay"]

CANVAS_WIDTH, CANVAS_SIDE, CELL, ROW_TITLE, MARGIN = 1280, 628, 400, 180, 32
CELLS_PER_LINE = 4  # of a comparison, to fit a screen and a page
# Parts side by side: smaller pictures, and words only if the column is wide enough.
SIDE_BESIDE, LEAST_COLUMN, COLUMN_GUTTER = 400, 280, 48
FONT_ADVICE = "No font of this machine has some of these characters, drawn as boxes: save as .html to read them."


def legend(part: Part, *, width: int = 300, units: TextUnits = "word") -> Image.Image:
    """A colour bar with the values at its ends (and 0 in the middle if scores have both signs)."""
    scale = part_scale(part, units)
    colours = np.rint(np.clip(_bar(part, scale, width), 0, 1) * 255).astype(np.uint8)
    bar = Image.fromarray(np.repeat(colours[None], 14, axis=0))
    if scale.high == 0:
        return canvas.stack([bar, canvas.label(scale_texts(scale)[0], width, 16)], gap=4)
    remarks = [canvas.label(remark, width, 14)] if (remark := coverage_remark(part, units)) else []
    return canvas.stack([bar, _spread_out(list(scale_texts(scale)), width), *remarks], gap=4)


def explanation_figure(explanation: Explanation, *, units: TextUnits = "word") -> Image.Image:
    """Draw the whole explanation: title, original beside overlay or coloured text, legend."""
    parts = _parts_figure(captioned_parts(explanation), units)
    width = max(640, parts.width)
    headline = canvas.label(finding(explanation, units), width, 26, colour=canvas.INK, bold=True)
    about = canvas.label(f"by {explanation.manner} on {visible(explanation.model)}", width, 17)
    notes = [readable(note) for note in explanation.notes] + _font_advice(explanation)
    return canvas.on_sheet(
        canvas.stack(
            [canvas.stack([headline, about], gap=4), parts, *(canvas.label(note, width, 17) for note in notes)], gap=20
        ),
        margin=MARGIN,
    )


def continuation_figure(continuation: Continuation, *, units: TextUnits = "word") -> Image.Image:
    """Draw each written token next to the coloured text before it."""
    title = canvas.label(continuation.headline, CANVAS_WIDTH, 26, colour=canvas.INK, bold=True)
    rows = [_token_row(explanation, units) for explanation in continuation.explanations]
    notes = [canvas.label(note, CANVAS_WIDTH, 17) for note in _font_advice(continuation.explanations[-1])]
    return canvas.on_sheet(canvas.stack([title, *rows, *notes], gap=20), margin=MARGIN)


def grid(
    rows: Rows, row_titles: Sequence[str], column_titles: Sequence[str], *, units: TextUnits = "word"
) -> Image.Image:
    """A grid of explanations with column titles, and row titles on the left; None leaves a cell empty.

    Rows with more cells than fit are wrapped.
    """
    check_grid(rows, row_titles, column_titles)
    sheet = []
    for name, row in zip(row_titles, rows, strict=True):
        picture = row_original(row, CELL)
        cells = [_with_heading("original", _in_cell(picture))] if picture else []
        cells += [_with_heading(*pair) for pair in zip(column_titles, (_cell(one, units) for one in row), strict=True)]
        sheet.append(canvas.side_by_side([_heading(visible(name), ROW_TITLE), _wrap(cells)]))
    return canvas.on_sheet(canvas.stack(sheet, gap=44), margin=MARGIN)


def check_grid(rows: Rows, row_titles: Sequence[str], column_titles: Sequence[str]) -> None:
    """Raise if titles and cells do not match."""
    if len(rows) != len(row_titles):
        raise ValueError(f"{len(rows)} rows of explanations have {len(row_titles)} row titles; give one for each.")
    for name, row in zip(row_titles, rows, strict=True):
        if len(row) != len(column_titles):
            raise ValueError(f"Row {name!r} has {len(row)} cells, but there are {len(column_titles)} column titles.")
    if not any(cell for row in rows for cell in row):
        raise ValueError("There is nothing to compare: every cell is None or there are no rows.")


def row_original(row: Sequence[Explanation | None], longest_side: int) -> Image.Image | None:
    """The picture of a row of explanations, if it has one."""
    layouts = (part.layout for cell in row if cell for part in cell.parts.values())
    return next((original(layout, longest_side) for layout in layouts if isinstance(layout, (Patches, Boxes))), None)


def _wrap(cells: Sequence[Image.Image]) -> Image.Image:
    """Wrap cells into as few, equally long lines as possible."""
    count = ceil(len(cells) / ceil(len(cells) / CELLS_PER_LINE))
    lines = [canvas.side_by_side(cells[start : start + count]) for start in range(0, len(cells), count)]
    return canvas.stack(lines, gap=28)


def _token_row(explanation: Explanation, units: TextUnits) -> Image.Image:
    width = CANVAS_WIDTH - ROW_TITLE - 24
    space = Space(width, SIDE_BESIDE, has_original=True, units=units)
    bodies = [
        kind_of(part.layout).figure(part, replace(space, font_size=20, most_lines=12))
        if isinstance(part.layout, WordPieces)
        else _part_figure("", part, space)
        for _, part in captioned_parts(explanation)
    ]
    return canvas.side_by_side([_heading(explanation.answer, ROW_TITLE), canvas.stack(bodies)])


def _parts_figure(parts: Sequence[tuple[str, Part]], units: TextUnits) -> Image.Image:
    """The parts stacked or side by side, whichever is lower."""
    space = Space(CANVAS_WIDTH, CANVAS_SIDE, has_original=True, units=units)
    under = canvas.stack([_part_figure(*part, space) for part in parts], gap=28)
    texts = sum(isinstance(part.layout, WordPieces) for _, part in parts)
    pictures = sum(2 * SIDE_BESIDE + 24 for _, part in parts if not isinstance(part.layout, WordPieces))
    column = (CANVAS_WIDTH - pictures - COLUMN_GUTTER * (len(parts) - 1)) // max(1, texts)
    if len(parts) == 1 or column < LEAST_COLUMN or not all(kind_of(part.layout).is_narrow for _, part in parts):
        return under
    space = replace(space, width=column, side=SIDE_BESIDE)
    beside = canvas.side_by_side([_part_figure(*part, space) for part in parts], gap=COLUMN_GUTTER)
    return min(beside, under, key=lambda picture: picture.height)


def _part_figure(caption: str, part: Part, space: Space) -> Image.Image:
    body = kind_of(part.layout).figure(part, space)
    body = canvas.stack([body, *_ranking(part, body.width), legend(part, units=space.units)], gap=18)
    return canvas.stack([*_caption(caption), body], gap=10)


def _part_cell(caption: str, part: Part, units: TextUnits) -> Image.Image:
    body = kind_of(part.layout).figure(part, Space(CELL, CELL, units=units, font_size=17, most_lines=40))
    return canvas.stack([*_caption(caption), body, *_ranking(part, CELL), legend(part, width=200, units=units)], gap=10)


def _caption(text: str) -> list[Image.Image]:
    return [canvas.label(text, CELL, 17, bold=True)] if text else []


def _ranking(part: Part, width: int) -> list[Image.Image]:
    return [canvas.label(text, width, 17)] if (text := region_ranking(part)) else []


def _font_advice(explanation: Explanation) -> list[str]:
    """A line of advice if no font has some characters, which are then drawn as boxes."""
    texts = [text for _, part in captioned_parts(explanation) for text in getattr(part.layout, "texts", ())]
    if not missing_characters(readable("".join([*texts, explanation.headline]))):
        return []
    return [FONT_ADVICE]


def _bar(part: Part, scale: Scale, width: int) -> np.ndarray:
    if kind_of(part.layout).ground == "page":
        strength = np.linspace(-1 if scale.is_diverging else 0, 1, width) * (scale.high > 0)
        return scale.colours(strength, "light")
    return heat_bar(scale, width)


def _spread_out(texts: Sequence[str], width: int) -> Image.Image:
    """Distribute short texts from the left edge to the right edge."""
    pictures = [canvas.label(text, ceil(text_width(text, 16)) + 1, 16) for text in texts]
    sheet = canvas.on_sheet(pictures[0], width=width)
    for index, picture in enumerate(pictures[1:], start=1):
        sheet.paste(picture, (round((width - picture.width) * index / (len(texts) - 1)), 0))
    return sheet


def _heading(text: str, width: int = CELL) -> Image.Image:
    return canvas.on_sheet(canvas.label(readable(text), width, 20, colour=canvas.INK, bold=True), width=width)


def _with_heading(text: str, body: Image.Image) -> Image.Image:
    return canvas.stack([_heading(text), body], gap=8)


def _in_cell(picture: Image.Image) -> Image.Image:
    return canvas.on_sheet(picture, width=CELL)


def _cell(explanation: Explanation | None, units: TextUnits) -> Image.Image:
    if explanation is None:
        return _in_cell(canvas.label("–", CELL))
    answer = canvas.label(explanation.answer, CELL, 17)
    parts = [_part_cell(*part, units) for part in captioned_parts(explanation)]
    return _in_cell(canvas.stack([*parts, answer], gap=8))

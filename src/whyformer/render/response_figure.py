"""Draw a response and its sources: response and ranking on the left, coloured prompt on the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from whyformer.render import canvas
from whyformer.render.colour import RGB, Scale, rgb
from whyformer.render.figure import FONT_ADVICE, MARGIN
from whyformer.render.fonts import missing_characters
from whyformer.render.response_view import response_view
from whyformer.render.source_view import RANKED
from whyformer.render.verdict_view import UNSUPPORTED

if TYPE_CHECKING:
    from whyformer.render.source_view import BlockView, Entry, SourcesView
    from whyformer.results.response import Response

LEFT, RIGHT, FIGURE_GUTTER = 540, 640, 56
FIGURE_BAR, SHARE, SIGNED_SHARE, BAR_HEIGHT = 90, 52, 124, 12
MEASURED_SHARE = 170
VERDICT_TINTS: dict[str, RGB] = {
    "from sources": (196, 232, 208),
    "from memory": (203, 221, 245),
    "not supported": (250, 214, 190),
    "contradicted": (247, 196, 200),
    "repeats the response": (224, 212, 242),
    "cannot tell": (222, 226, 234),
}
CHOSEN: RGB = (222, 226, 234)
NUMBERED_ROWS = 12  # maximum number of rows with numbers, which would hide single words


def response_figure(response: Response, row: int | None = None) -> Image.Image:
    """Draw the response with numbered rows, and the prompt in the colours of a row, or of all rows together."""
    view = response_view(response)
    chosen = len(view.rows) - 1 if row is None else row % len(response.rows)
    heading = canvas.label(f"by {view.method} on {view.model}", LEFT + FIGURE_GUTTER + RIGHT, 18)
    verdicts = [_verdicts(view)] if view.verdicts else []
    columns = canvas.side_by_side([_left(view, chosen), _prompt(view, chosen)], gap=FIGURE_GUTTER)
    notes = [*view.notes, *[FONT_ADVICE] * bool(missing_characters(_all_text(view)))]
    footer = [canvas.label(note, LEFT + FIGURE_GUTTER + RIGHT, 16) for note in notes]
    return canvas.on_sheet(canvas.stack([heading, *verdicts, columns, *footer], gap=22), margin=MARGIN)


def _verdicts(view: SourcesView) -> Image.Image:
    """A line of the verdict and its reason for each row."""
    width = LEFT + FIGURE_GUTTER + RIGHT
    lines = [canvas.label(view.summary if view.has_support else UNSUPPORTED, width, 20, bold=True)]
    for number, one in enumerate(view.verdicts, start=1):
        chips = [(f"{number}  ", None), (one.verdict, VERDICT_TINTS[one.verdict]), (f"  {one.text}", None)]
        lines += [canvas.paragraph(canvas.chips(chips), width, 18), canvas.label(one.reason, width, 16)]
    return canvas.on_sheet(canvas.stack(lines, gap=8), width=width)


def _left(view: SourcesView, chosen: int) -> Image.Image:
    entries = view.rows[chosen][:RANKED]
    is_all = len(view.rows) == 1 or view.is_total(chosen)
    title = "Sources of the response" if is_all else f"Sources of {chosen + 1}"
    left_out = len(view.rows[chosen]) - len(entries)
    more = [canvas.label(f"and {left_out} more", LEFT, 16)] if left_out else []
    parts = [
        _heading("Response"),
        canvas.paragraph(canvas.chips(_response_pieces(view, chosen)), LEFT, 22),
        _heading(title),
        *(_ranked(view, entry) for entry in entries),
        *more,
        *([canvas.label(view.facts[chosen], LEFT, 16)] if view.facts[chosen] else []),
    ]
    return canvas.on_sheet(canvas.stack(parts, gap=14), width=LEFT)


def _prompt(view: SourcesView, chosen: int) -> Image.Image:
    blocks = [_block(view, block, chosen) for block in view.blocks]
    return canvas.on_sheet(canvas.stack([_heading("Prompt"), *blocks], gap=18), width=RIGHT)


def _block(view: SourcesView, block: BlockView, chosen: int) -> Image.Image:
    title = [canvas.label(block.title, RIGHT, 16, bold=True)] if block.title else []
    if block.part is not None:
        return canvas.stack([*title, block.part.picture(chosen, RIGHT)], gap=6)
    levels = [view.level(chosen, piece.sources) for piece in block.pieces]
    pieces = [
        (piece.name + piece.text, _colour(view, level) if level else None)
        for piece, level in zip(block.pieces, levels, strict=True)
    ]
    return canvas.stack([*title, canvas.paragraph(canvas.chips(pieces), RIGHT, 20)], gap=4)


def _response_pieces(view: SourcesView, chosen: int) -> Iterator[tuple[str, RGB | None]]:
    """The response with the chosen row highlighted, and each row after its number if there are several."""
    count, seen = len(view.rows) - 1, set[int]()
    for unit in view.units:
        if unit.rows and unit.rows[0] not in seen and 1 < count <= NUMBERED_ROWS:
            yield f"{unit.rows[0] + 1}", canvas.FAINT
            yield " ", None
        seen.update(unit.rows)
        yield unit.text, CHOSEN if chosen in unit.rows and count else None


def _ranked(view: SourcesView, entry: Entry) -> Image.Image:
    name, text = view.source_text(entry.source)
    words = f"{name}: {text}" if name else text
    ground = Image.new("RGB", (FIGURE_BAR, BAR_HEIGHT), canvas.WHITE)
    ground.paste(_colour(view, entry.level), (0, 0, max(2, round(FIGURE_BAR * abs(entry.level) / 100)), BAR_HEIGHT))
    bar = Image.new("RGB", (FIGURE_BAR, 26), canvas.WHITE)
    bar.paste(ground, (0, 7))
    effect = f"{entry.figure} · " if entry.figure else ""
    share = f"{effect}{entry.share or '<1'}%{' against' if entry.level < 0 else ''}"
    column = MEASURED_SHARE if view.full else SIGNED_SHARE if view.is_diverging else SHARE
    sides = [canvas.on_sheet(canvas.label(share, column, 17, colour=canvas.INK), width=column), bar]
    text_width = LEFT - FIGURE_BAR - column - 2 * 16
    return canvas.side_by_side([*sides, canvas.label(words, text_width, 17, colour=canvas.INK)], gap=16)


def _heading(text: str) -> Image.Image:
    return canvas.label(text, LEFT, 18, bold=True)


def _colour(view: SourcesView, level: int) -> RGB:
    scale = Scale(-1.0 if view.is_diverging else 0.0, 1.0)
    return rgb(scale.colours(np.array(level / 100), "light"))


def _all_text(view: SourcesView) -> str:
    words: Sequence[str] = [piece.name + piece.text for block in view.blocks for piece in block.pieces]
    return "".join([*words, *(unit.text for unit in view.units)])

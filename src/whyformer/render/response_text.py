"""Render responses as terminal text: each row with its sources, and bars of their shares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from whyformer.render.cells import AGAINST, FOR, style
from whyformer.render.colour import Scale, ink, rgb
from whyformer.render.response_view import response_view
from whyformer.render.source_view import shortened
from whyformer.render.terminal import colour_console
from whyformer.render.text_spans import one_line
from whyformer.render.verdict_view import UNSUPPORTED, VerdictView

if TYPE_CHECKING:
    from whyformer.render.source_view import Entry, SourcesView
    from whyformer.results.response import Response

LISTED_SOURCES, TEXT_BAR, LONGEST_SOURCE = (
    5,
    16,
    90,
)  # sources per row, and maximum characters of a bar and of a source's text

VERDICT_COLOURS = {
    "from sources": "green",
    "from memory": "blue",
    "not supported": "yellow",
    "contradicted": "red",
    "repeats the response": "magenta",
    "cannot tell": "default",
}


def response_text(response: Response) -> str:
    """Render a response for standard output: the sources of each row, strongest first."""
    lines = list(_lines(response_view(response)))
    console = colour_console()
    if console is None:
        return "\n".join(line.plain.rstrip() for line in lines)
    with console.capture() as captured:
        for line in lines:
            console.print(line)
    return captured.get().rstrip("\n")


def _lines(view: SourcesView) -> Iterator[Text]:
    yield Text(view.headline, "bold")
    if view.verdicts:
        yield Text(view.summary if view.has_support else f"{view.summary}. {UNSUPPORTED}", "bold")
    rows = view.rows[:-1] if len(view.rows) > 1 else view.rows
    for number, entries in enumerate(rows):
        yield Text(f"{number + 1}  {_shortened(view.row_text(number))}", "bold")
        if view.verdicts:
            yield from _verdict_lines(view.verdicts[number])
        for entry in entries[:LISTED_SOURCES]:
            yield _source_line(view, number, entry)
        if len(entries) > LISTED_SOURCES:
            yield Text(f"   and {len(entries) - LISTED_SOURCES} more", "dim")
        yield Text(f"   {view.facts[number]}", "dim")
    for note in (view.cost, *view.notes) if view.cost else view.notes:
        yield Text(one_line(note), "dim")


def _verdict_lines(one: VerdictView) -> Iterator[Text]:
    yield Text.assemble("   ", (one.verdict, f"bold {VERDICT_COLOURS[one.verdict]}"), f": {one.reason}")
    for marker, status in one.citations:
        yield Text(f"   {marker}: {status}")


def _source_line(view: SourcesView, row: int, entry: Entry) -> Text:
    scale = Scale(-1.0 if view.is_diverging else 0.0, 1.0)
    colour = rgb(scale.colours(np.array(entry.level / 100), "dark"))
    bar = (FOR if entry.level > 0 else AGAINST)[-1] * max(1, round(TEXT_BAR * abs(entry.level) / 100))
    name, text = view.source_text(entry.source)
    figure = f"{entry.figure}, " if entry.figure else ""
    share = (
        figure + f"{entry.share or '<1'}%".rjust(4) + (" against" if entry.level < 0 else " " * 8 * view.is_diverging)
    )
    parts = [block.part for block in view.blocks if block.part is not None and block.part.source == entry.source]
    place = "".join(f", most at {part.strongest(row)}" for part in parts)
    shown = _shortened(f"{name}: {text}" if name else f"{text}{place}")
    background = style(ink(colour), colour).bgcolor
    assert background is not None
    return Text.assemble(f"   {share}  ", (f"{bar:<{TEXT_BAR}}", background.name), f"  {shown}")


def _shortened(text: str) -> str:
    return shortened(text, LONGEST_SOURCE)

"""Render results as terminal text: in colour if supported, otherwise in words and shades."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whyformer.inputs.layouts import WordPieces
from whyformer.render.cells import PLAIN_WIDTH, style
from whyformer.render.colour import ink, rgb, score_scale
from whyformer.render.heatmaps import strongest_first
from whyformer.render.layout_kinds import kind_of
from whyformer.render.text_spans import TextUnits, captioned_parts, number, one_line, token_names

if TYPE_CHECKING:
    from whyformer.results.continuation import Continuation
    from whyformer.results.explanation import Explanation
    from whyformer.results.part import Part

MOST_TOKENS = 4
# Minimum width of a screen to put parts side by side.
WIDE_TERMINAL, TEXT_GUTTER = 80, 3


def explanation_text(explanation: Explanation, *, units: TextUnits = "word") -> str:
    """Render an explanation for standard output."""
    console = colour_console()
    return (
        plain_explanation(explanation) if console is None else coloured_explanation(explanation, console, units=units)
    )


def continuation_text(continuation: Continuation) -> str:
    """Render a continuation for standard output."""
    console = colour_console()
    return plain_continuation(continuation) if console is None else coloured_continuation(continuation, console)


def plain_explanation(explanation: Explanation) -> str:
    """Render without colours: the strongest words with their scores, pictures in shade characters."""
    columns = [
        [*[caption] * bool(caption), *kind_of(part.layout).lines(part, PLAIN_WIDTH)]
        for caption, part in captioned_parts(explanation)
    ]
    return "\n".join([explanation.headline, *_side_by_side(columns), *map(one_line, explanation.notes)])


def coloured_explanation(explanation: Explanation, console: Console, *, units: TextUnits = "word") -> str:
    """Render in colour: texts on the colours of their scores, pictures in half blocks."""
    parts = captioned_parts(explanation)
    are_beside = len(parts) > 1 and console.width >= WIDE_TERMINAL
    width = (console.width - TEXT_GUTTER) // 2 if are_beside else console.width
    blocks = [
        Text("\n").join([*[Text(caption, "dim")] * bool(caption), *kind_of(part.layout).coloured(part, width, units)])
        for caption, part in parts
    ]
    with console.capture() as captured:
        console.print(Text(explanation.headline, "bold"))
        console.print(_columns(parts, blocks) if are_beside else Text("\n").join(blocks))
        for note in explanation.notes:
            console.print(Text(one_line(note), "dim"))
    return captured.get().rstrip("\n")


def plain_continuation(continuation: Continuation) -> str:
    """Render without colours: a line for each written token, with the tokens it depends on most."""
    return "\n".join(line.plain for line in _token_lines(continuation))


def coloured_continuation(continuation: Continuation, console: Console) -> str:
    """Render in colour: a line for each written token, with the tokens it depends on most."""
    with console.capture() as captured:
        console.print(Text("\n").join(_token_lines(continuation)))
    return captured.get().rstrip("\n")


def colour_console() -> Console | None:
    """Standard output, if it is a terminal with colours."""
    console = Console(file=sys.stdout, force_jupyter=False)
    return console if console.is_terminal and console.color_system and not console.no_color else None


def _token_lines(continuation: Continuation) -> list[Text]:
    """A line for each written token: its probability, and the tokens it depends on most, in colour."""
    each = continuation.explanations
    priors = [f" (blank picture {math.exp(prior):.2g})" for prior in continuation.priors] or [""] * len(each)
    answers = [one.answer + prior for one, prior in zip(each, priors, strict=True)]
    width = max(map(cell_len, answers))
    lines = [Text(continuation.headline, "bold")]
    for one, answer in zip(each, answers, strict=True):
        tokens = [Text(" · ").join(_strongest_tokens(part)) for _, part in captioned_parts(one)]
        lines.append(Text.assemble(answer + " " * (width - cell_len(answer)), " ← ", Text(" | ").join(tokens)))
    notes = dict.fromkeys(one_line(note) for one in each for note in one.notes)
    return [*lines, *(Text(note, "dim") for note in notes)]


def _strongest_tokens(part: Part) -> list[Text]:
    names, scale = token_names(part), score_scale(part.scores)
    tokens = []
    for token in strongest_first(part.scores)[:MOST_TOKENS]:
        background = rgb(scale.colours(scale.strength(part.scores[token]), "dark"))
        score = f" {number(part.scores[token])}"
        tokens.append(Text.assemble((names[token], style(ink(background), background)), score))
    return tokens


def _columns(parts: Sequence[tuple[str, Part]], blocks: Sequence[Text]) -> Table:
    table = Table.grid(padding=(0, TEXT_GUTTER, 0, 0))
    for _, part in parts:
        table.add_column(no_wrap=not isinstance(part.layout, WordPieces))
    table.add_row(*blocks)
    return table


def _side_by_side(columns: Sequence[Sequence[str]]) -> list[str]:
    """Columns of lines side by side, or stacked if they are too wide."""
    widths = [max((cell_len(line) for line in lines), default=0) for lines in columns]
    if sum(widths) + TEXT_GUTTER * (len(columns) - 1) > WIDE_TERMINAL:
        return [line for lines in columns for line in lines]
    rows = zip_longest(*columns, fillvalue="")
    padded = (
        "".join(line + " " * (width + TEXT_GUTTER - cell_len(line)) for line, width in zip(row, widths, strict=True))
        for row in rows
    )
    return [line.rstrip() for line in padded]

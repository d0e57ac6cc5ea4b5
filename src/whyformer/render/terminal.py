"""Explanations as terminal text: colours where the terminal has them, words and shades where not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import zip_longest
from typing import assert_never

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whyformer.inputs.layouts import Boxes, Patches, WordPieces
from whyformer.render.cells import half_blocks, region_list, shade_key, shades, style
from whyformer.render.colour import ink, rgb, scale
from whyformer.render.heat import strongest_first
from whyformer.render.text import captioned, number, piece_names, readable, spans, strongest_words
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part

PICTURE_WIDTH, MOST_CHARACTERS, MOST_WORDS, MOST_PIECES = 64, 2400, 10, 4
# Parts stand side by side on a screen this wide.
WIDE, GUTTER = 80, 3
# Fainter backgrounds say nothing and are blots on a terminal with a light ground.
LEAST_SHOWN = 0.08


def shown(result: Explanation | Continuation) -> str:
    """The explanation as standard output can show it."""
    console = Console(file=sys.stdout, force_jupyter=False)
    if console.is_terminal and console.color_system and not console.no_color:
        return coloured(result, console)
    return plain(result)


def plain(explanation: Explanation | Continuation) -> str:
    """Without colours: the strongest words with their scores, pictures in shade characters."""
    if isinstance(explanation, Continuation):
        return "\n".join(line.plain for line in _token_lines(explanation))
    columns = [[*[caption] * bool(caption), *_plain_part(part)] for caption, part in captioned(explanation)]
    return "\n".join([explanation.headline, *_side_by_side(columns), *map(_one_line, explanation.notes)])


def coloured(explanation: Explanation | Continuation, console: Console) -> str:
    """In the colours of this console: texts on their scores' colours, pictures in half blocks."""
    if isinstance(explanation, Continuation):
        with console.capture() as captured:
            console.print(Text("\n").join(_token_lines(explanation)))
        return captured.get().rstrip("\n")
    parts = captioned(explanation)
    are_beside = len(parts) > 1 and console.width >= WIDE
    width = (console.width - GUTTER) // 2 if are_beside else console.width
    blocks = [
        Text("\n").join([*[Text(caption, "dim")] * bool(caption), *_coloured_part(part, width)])
        for caption, part in parts
    ]
    with console.capture() as captured:
        console.print(Text(explanation.headline, "bold"))
        console.print(_columns(parts, blocks) if are_beside else Text("\n").join(blocks))
        for note in explanation.notes:
            console.print(Text(_one_line(note), "dim"))
    return captured.get().rstrip("\n")


def _token_lines(continuation: Continuation) -> list[Text]:
    """A line for each token written: its probability, and the tokens that it rests on most, on their colours."""
    each = continuation.explanations
    width = max(cell_len(one.answer) for one in each)
    lines = [Text(continuation.headline, "bold")]
    for one in each:
        pieces = [Text(" · ").join(_strongest_pieces(part)) for _, part in captioned(one)]
        answer = one.answer + " " * (width - cell_len(one.answer))
        lines.append(Text.assemble(answer, " ← ", Text(" | ").join(pieces)))
    notes = dict.fromkeys(_one_line(note) for one in each for note in one.notes)
    return [*lines, *(Text(note, "dim") for note in notes)]


def _strongest_pieces(part: Part) -> list[Text]:
    names, range_shown = piece_names(part), scale(part.scores)
    found = []
    for token in strongest_first(part.scores)[:MOST_PIECES]:
        background = rgb(range_shown.colours(range_shown.strength(part.scores[token]), "dark"))
        found.append(
            Text.assemble((names[token], style(ink(background), background)), f" {number(part.scores[token])}")
        )
    return found


def _columns(parts: Sequence[tuple[str, Part]], blocks: Sequence[Text]) -> Table:
    table = Table.grid(padding=(0, GUTTER, 0, 0))
    for _, part in parts:
        table.add_column(no_wrap=not isinstance(part.layout, WordPieces))
    table.add_row(*blocks)
    return table


def _side_by_side(columns: Sequence[Sequence[str]]) -> list[str]:
    """Columns of lines beside one another, or one under the other where they are too wide."""
    widths = [max((cell_len(line) for line in lines), default=0) for lines in columns]
    if sum(widths) + GUTTER * (len(columns) - 1) > WIDE:
        return [line for lines in columns for line in lines]
    rows = zip_longest(*columns, fillvalue="")
    padded = (
        "".join(line + " " * (width + GUTTER - cell_len(line)) for line, width in zip(row, widths, strict=True))
        for row in rows
    )
    return [line.rstrip() for line in padded]


def _plain_part(part: Part) -> list[str]:
    match part.layout:
        case Patches():
            return [*shades(part), shade_key(part)]
        case Boxes():
            return [*shades(part), shade_key(part), *region_list(part)]
        case WordPieces():
            return _word_lines(part)
        case unknown:
            assert_never(unknown)


def _coloured_part(part: Part, width: int) -> list[Text]:
    match part.layout:
        case Patches():
            return [*half_blocks(part, min(width, PICTURE_WIDTH)), _range_line(part)]
        case Boxes():
            return [*half_blocks(part, min(width, PICTURE_WIDTH)), *map(Text, region_list(part)), _range_line(part)]
        case WordPieces():
            texts = [_coloured_text(part, segment) for segment in range(len(part.layout.texts))]
            return [*texts, _range_line(part)]
        case unknown:
            assert_never(unknown)


def _word_lines(part: Part) -> list[str]:
    """Words with the highest scores and, where some are negative, those with the lowest."""
    words = sorted(strongest_words(part), key=lambda word: -word.score)
    lines = [f"{number(word.score):>10}  {_one_line(word.text)}" for word in words]
    if not scale(part.scores).is_diverging:
        return lines[:MOST_WORDS]
    rising = sum(word.score >= 0 for word in words)
    against = lines[rising:][: -MOST_WORDS - 1 : -1]
    return [*lines[:rising][:MOST_WORDS], *["   against"] * bool(against), *against]


def _coloured_text(part: Part, segment: int) -> Text:
    """The text, or of a long one the neighbourhood of its strongest word piece."""
    range_shown, text, strongest, peak = scale(part.scores), Text(), 0, 0.0
    for span in spans(part, segment):
        score = span.score or 0.0
        if abs(score) > peak:
            strongest, peak = len(text), abs(score)
        background = rgb(range_shown.colours(range_shown.strength(np.array(score)), "dark"))
        # Rich would break a tab into spaces of its own count.
        is_seen = abs(score) >= LEAST_SHOWN * range_shown.high > 0
        text.append(span.text.replace("\t", " "), style(ink(background), background) if is_seen else None)
    if len(text) <= MOST_CHARACTERS:
        return text
    start = min(max(0, strongest - MOST_CHARACTERS // 2), len(text) - MOST_CHARACTERS)
    end = start + MOST_CHARACTERS
    return Text.assemble("… " * (start > 0), text[start:end], " …" * (end < len(text)))


def _range_line(part: Part) -> Text:
    range_shown = scale(part.scores)
    return Text(f"scores from {number(range_shown.low)} to {number(range_shown.high)}", "dim")


def _one_line(text: str) -> str:
    return " ".join(readable(text).split())

"""Render results as terminal text: in colour if supported, otherwise in words and shades."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from whyformer.inputs.layouts import Boxes, Frames, Patches, Spectrogram, WordPieces
from whyformer.render.cells import PLAIN_WIDTH, half_blocks, region_list, shade_key, shades, style
from whyformer.render.colour import ink, rgb, score_scale
from whyformer.render.heatmaps import strongest_first
from whyformer.render.layout_kinds import kind_of
from whyformer.render.sound_picture import coloured_sound, moment_lines, sound_lines
from whyformer.render.text_spans import (
    TextUnits,
    captioned_parts,
    number,
    one_line,
    part_scale,
    shown_scores,
    spans,
    token_names,
)

if TYPE_CHECKING:
    from whyformer.results.continuation import Continuation
    from whyformer.results.explanation import Explanation
    from whyformer.results.part import Part, Word

PICTURE_WIDTH, MOST_CHARACTERS, MOST_WORDS, MOST_TOKENS, MOST_MOMENTS = 64, 2400, 10, 4, 5
# Texts with more words than this get word positions.
LONG_TEXT = 40
# Minimum width of a screen to put parts side by side.
WIDE_TERMINAL, TEXT_GUTTER = 80, 3
# Fainter backgrounds are meaningless, and look like smudges on a light terminal.
LEAST_SHOWN = 0.08


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
    columns = [[*[caption] * bool(caption), *_plain_part(part)] for caption, part in captioned_parts(explanation)]
    return "\n".join([explanation.headline, *_side_by_side(columns), *map(one_line, explanation.notes)])


def coloured_explanation(explanation: Explanation, console: Console, *, units: TextUnits = "word") -> str:
    """Render in colour: texts on the colours of their scores, pictures in half blocks."""
    parts = captioned_parts(explanation)
    are_beside = len(parts) > 1 and console.width >= WIDE_TERMINAL
    width = (console.width - TEXT_GUTTER) // 2 if are_beside else console.width
    blocks = [
        Text("\n").join([*[Text(caption, "dim")] * bool(caption), *_coloured_part(part, width, units)])
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


def _plain_part(part: Part) -> list[str]:
    match part.layout:
        case Patches():
            return [*shades(part), shade_key(part)]
        case Boxes():
            return [*shades(part), shade_key(part), *region_list(part)]
        case Frames() | Spectrogram():
            return [*sound_lines(part, PLAIN_WIDTH), shade_key(part), *moment_lines(part, MOST_MOMENTS)]
        case WordPieces():
            return _word_lines(part)
        case other:
            return [*kind_of(other).lines(part, PLAIN_WIDTH), shade_key(part), *moment_lines(part, MOST_MOMENTS)]


def _coloured_part(part: Part, width: int, units: TextUnits) -> list[Text]:
    match part.layout:
        case Patches():
            return [*half_blocks(part, min(width, PICTURE_WIDTH)), _range_line(part)]
        case Boxes():
            return [*half_blocks(part, min(width, PICTURE_WIDTH)), *map(Text, region_list(part)), _range_line(part)]
        case Frames() | Spectrogram():
            strongest = map(Text, moment_lines(part, MOST_MOMENTS))
            return [*coloured_sound(part, min(width, PICTURE_WIDTH)), *strongest, _range_line(part)]
        case WordPieces():
            texts = [_coloured_text(part, segment, units) for segment in range(len(part.layout.texts))]
            is_cut = any(len(text) > MOST_CHARACTERS for text in part.layout.texts)
            return [*texts, *(map(Text, _word_lines(part)) if is_cut else ()), _range_line(part, units)]
        case other:
            strongest = map(Text, moment_lines(part, MOST_MOMENTS))
            return [*kind_of(other).coloured(part, min(width, PICTURE_WIDTH)), *strongest, _range_line(part)]


def _word_lines(part: Part) -> list[str]:
    """The words with the highest and, if negative, the lowest scores, with positions in long texts.

    Positions count from 1 within each text.
    """
    words = part.words()
    counts = Counter(word.segment for word in words)
    places = [place for segment in sorted(counts) for place in range(1, counts[segment] + 1)]
    ranking = sorted(zip(words, places, strict=True), key=lambda item: -item[0].score)
    lines = [f"{number(word.score):>10}  {one_line(word.text)}{_place(word, place, counts)}" for word, place in ranking]
    if not part_scale(part).is_diverging:
        return lines[:MOST_WORDS]
    rising = sum(word.score >= 0 for word in words)
    against = lines[rising:][: -MOST_WORDS - 1 : -1]
    return [*lines[:rising][:MOST_WORDS], *["   against"] * bool(against), *against]


def _place(word: Word, place: int, counts: Mapping[int, int]) -> str:
    """The position of a word in a long text: `  (word 212 of 530)`."""
    if sum(counts.values()) <= LONG_TEXT:
        return ""
    text = f" of text {word.segment + 1}" if len(counts) > 1 else f" of {counts[word.segment]}"
    return f"  (word {place}{text})"


def _coloured_text(part: Part, segment: int, units: TextUnits) -> Text:
    """The text, or the neighbourhood of the strongest word of a long one."""
    scale, text, strongest, peak = part_scale(part, units), Text(), 0, 0.0
    for span in spans(part, segment, units):
        score = span.score or 0.0
        if abs(score) > peak:
            strongest, peak = len(text), abs(score)
        background = rgb(scale.colours(scale.strength(np.array(score)), "dark"))
        # Rich would expand tabs to its own width.
        is_strong = abs(score) >= LEAST_SHOWN * scale.high > 0
        text.append(span.text.replace("\t", " "), style(ink(background), background) if is_strong else None)
    if len(text) <= MOST_CHARACTERS:
        return text
    start = min(max(0, strongest - MOST_CHARACTERS // 2), len(text) - MOST_CHARACTERS)
    end = start + MOST_CHARACTERS
    return Text.assemble("… " * (start > 0), text[start:end], " …" * (end < len(text)))


def _range_line(part: Part, units: TextUnits = "word") -> Text:
    scores = shown_scores(part, units)
    return Text(f"scores from {number(scores.min(initial=0))} to {number(scores.max(initial=0))}", "dim")

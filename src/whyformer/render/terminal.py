"""Explanations as terminal text: colours where the terminal has them, words and shades where not."""

from __future__ import annotations

import sys
from typing import assert_never

import numpy as np
from PIL import Image
from rich.console import Console
from rich.style import Style
from rich.text import Text

from whyformer.explanation import Explanation, Part, Patches, WordPieces
from whyformer.render.colour import RGB, Scale, ink, rgb, scale
from whyformer.render.heat import overlay
from whyformer.render.text import number, readable, spans, strongest_words

PICTURE_WIDTH, PLAIN_WIDTH, MOST_CHARACTERS, MOST_WORDS = 64, 48, 2400, 10
# Fainter backgrounds say nothing and are blots on a terminal with a light ground.
LEAST_SHOWN = 0.08
FOR, AGAINST = " ░▒▓█", " --=="


def shown(explanation: Explanation) -> str:
    """The explanation as standard output can show it."""
    console = Console(file=sys.stdout, force_jupyter=False)
    if console.is_terminal and console.color_system and not console.no_color:
        return coloured(explanation, console)
    return plain(explanation)


def plain(explanation: Explanation) -> str:
    """Without colours: the strongest words with their scores, pictures in shade characters."""
    parts = [line for part in explanation.parts.values() for line in _plain_part(part)]
    return "\n".join([_one_line(explanation.headline), *parts, *map(_one_line, explanation.notes)])


def coloured(explanation: Explanation, console: Console) -> str:
    """In the colours of this console: texts on their scores' colours, pictures in half blocks."""
    parts = [line for part in explanation.parts.values() for line in _coloured_part(part, console.width)]
    notes = [Text(_one_line(note), "dim") for note in explanation.notes]
    with console.capture() as captured:
        console.print(Text("\n").join([Text(_one_line(explanation.headline), "bold"), *parts, *notes]))
    return captured.get().rstrip("\n")


def _plain_part(part: Part) -> list[str]:
    match part.layout:
        case Patches():
            return _shade_lines(part, part.layout)
        case WordPieces():
            return _word_lines(part)
        case unknown:
            assert_never(unknown)


def _coloured_part(part: Part, width: int) -> list[Text]:
    match part.layout:
        case Patches():
            return [*_half_blocks(overlay(part), min(width, PICTURE_WIDTH)), _range_line(part)]
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


def _shade_lines(part: Part, layout: Patches) -> list[str]:
    """The box in characters, which are about twice as high as wide."""
    left, top, right, bottom = layout.box
    height = min(PLAIN_WIDTH, max(1, round(PLAIN_WIDTH / 2 * (bottom - top) / (right - left))))
    range_shown = scale(part.scores)
    strength = range_shown.strength(part.scores).reshape(layout.rows, layout.columns)
    picture = Image.fromarray(strength.astype(np.float32)).resize((PLAIN_WIDTH, height), Image.Resampling.BILINEAR)
    lines = ["".join(map(_shade, row)).rstrip() for row in np.asarray(picture).tolist()]
    return [*lines, _shade_key(range_shown)]


def _shade(strength: float) -> str:
    shades = FOR if strength >= 0 else AGAINST
    return shades[min(len(shades) - 1, int(abs(strength) * len(shades)))]


def _shade_key(range_shown: Scale) -> str:
    against = f"{AGAINST.strip()} {number(range_shown.low)} · " if range_shown.is_diverging else ""
    return f"{against}0 · {FOR.strip()} {number(range_shown.high)}"


def _half_blocks(picture: Image.Image, width: int) -> list[Text]:
    """Two rows of pixels a line: the upper in the character's colour, the lower in its background."""
    rows = max(1, round(width * picture.height / picture.width / 2))
    pixels = np.asarray(picture.resize((width, 2 * rows), Image.Resampling.LANCZOS)).tolist()
    lines = []
    for upper, lower in zip(pixels[::2], pixels[1::2], strict=True):
        pairs = zip(upper, lower, strict=True)
        lines.append(Text.assemble(*(("▀", _style(tuple(above), tuple(below))) for above, below in pairs)))
    return lines


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
        text.append(span.text.replace("\t", " "), _style(ink(background), background) if is_seen else None)
    if len(text) <= MOST_CHARACTERS:
        return text
    start = min(max(0, strongest - MOST_CHARACTERS // 2), len(text) - MOST_CHARACTERS)
    end = start + MOST_CHARACTERS
    return Text.assemble("… " * (start > 0), text[start:end], " …" * (end < len(text)))


def _range_line(part: Part) -> Text:
    range_shown = scale(part.scores)
    return Text(f"scores from {number(range_shown.low)} to {number(range_shown.high)}", "dim")


def _style(foreground: RGB, background: RGB) -> Style:
    return Style(color="#{:02x}{:02x}{:02x}".format(*foreground), bgcolor="#{:02x}{:02x}{:02x}".format(*background))


def _one_line(text: str) -> str:
    return " ".join(readable(text).split())

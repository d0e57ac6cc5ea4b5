"""Compose pictures: lines of words, rows and stacks of pictures."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from PIL import Image, ImageDraw

from whyformer.render.colour import RGB, ink
from whyformer.render.fonts import draw_text, text_width

WHITE: RGB = (255, 255, 255)
INK: RGB = (28, 28, 30)
FAINT: RGB = (104, 104, 110)


@dataclass(frozen=True)
class Chip:
    """A word to draw: its background, if any, and whether a line break or a space precedes it."""

    text: str
    background: RGB | None = None
    starts_line: bool = False
    follows_space: bool = True


@dataclass(frozen=True)
class CanvasPlace:
    """A chip on its line, with its offset in pixels."""

    left: float
    right: float
    chip: Chip


@dataclass(frozen=True)
class Face:
    """Font size and weight."""

    size: int
    bold: bool

    def width(self, text: str) -> float:
        return text_width(text, self.size, self.bold)


def chips(pieces: Iterable[tuple[str, RGB | None]]) -> list[Chip]:
    """Split coloured pieces of a text into words, keeping spaces and line breaks."""
    words, white_space = list[Chip](), " "
    for text, background in pieces:
        for match in re.finditer(r"(\s*)(\S+)", text):
            white_space += match[1]
            words.append(Chip(match[2], background, "\n" in white_space, bool(white_space)))
            white_space = ""
        white_space += text[len(text.rstrip()) :]
    return words


def paragraph(
    chips: Sequence[Chip], width: int, size: int = 22, *, colour: RGB = INK, bold: bool = False, most_lines: int = 400
) -> Image.Image:
    """Wrap words into lines of `width` pixels, right-aligned if the text starts right to left."""
    face, height = Face(size, bold), round(size * 1.55)
    pad = 4 if any(chip.background for chip in chips) else 0
    lines = list(_lines(chips, width - 2 * pad, face))
    if len(lines) > most_lines:
        left_out = sum(len(line) for line in lines[most_lines - 1 :])
        lines = [*lines[: most_lines - 1], [_more(left_out, face)]]
    inner = max((math.ceil(line[-1].right) for line in lines), default=1)
    picture = Image.new("RGB", (inner + 2 * pad, max(1, len(lines)) * height), WHITE)
    from_right = _reads_from_right(chips)
    for row, line in enumerate(lines):
        starts = [pad + (inner - place.right if from_right else place.left) for place in line]
        _draw_backgrounds(picture, line, starts, (row * height, (row + 1) * height))
        for place, left in zip(line, starts, strict=True):
            fill = ink(place.chip.background) if place.chip.background else colour
            draw_text(picture, (left, (row + 0.48) * height), place.chip.text, size, fill, bold)
    return picture


def label(text: str, width: int, size: int = 18, *, colour: RGB = FAINT, bold: bool = False) -> Image.Image:
    """Plain wrapped text."""
    return paragraph([Chip(word) for word in text.split()], width, size, colour=colour, bold=bold, most_lines=6)


def stack(pictures: Sequence[Image.Image], gap: int = 12) -> Image.Image:
    """Stack pictures vertically, left-aligned."""
    height = sum(picture.height for picture in pictures) + gap * (len(pictures) - 1)
    sheet, top = Image.new("RGB", (max(picture.width for picture in pictures), height), WHITE), 0
    for picture in pictures:
        sheet.paste(picture, (0, top))
        top += picture.height + gap
    return sheet


def side_by_side(pictures: Sequence[Image.Image], gap: int = 24) -> Image.Image:
    """Put pictures in a row, top-aligned."""
    width = sum(picture.width for picture in pictures) + gap * (len(pictures) - 1)
    sheet, left = Image.new("RGB", (width, max(picture.height for picture in pictures)), WHITE), 0
    for picture in pictures:
        sheet.paste(picture, (left, 0))
        left += picture.width + gap
    return sheet


def on_sheet(picture: Image.Image, *, width: int = 0, margin: int = 0) -> Image.Image:
    """Paste the picture at the top left of a white sheet at least `width` wide, with a margin."""
    sheet = Image.new("RGB", (max(width, picture.width) + 2 * margin, picture.height + 2 * margin), WHITE)
    sheet.paste(picture, (margin, margin))
    return sheet


def _more(words: int, face: Face) -> CanvasPlace:
    text = f"… and {words:,} more words"
    return CanvasPlace(0, face.width(text), Chip(text))


def _draw_backgrounds(
    picture: Image.Image, line: Sequence[CanvasPlace], starts: Sequence[float], rows: tuple[int, int]
) -> None:
    """Draw the background of each word, slightly wider where a space adjoins."""
    pen, (top, bottom) = ImageDraw.Draw(picture), rows
    has_space = [index == 0 or place.chip.follows_space for index, place in enumerate(line)] + [True]
    for index, (place, left) in enumerate(zip(line, starts, strict=True)):
        if place.chip.background:
            before, after = has_space[index], has_space[index + 1]
            box = (left - 3 * before, top + 1, left + place.right - place.left + 3 * after, bottom - 3)
            pen.rounded_rectangle(box, 4, fill=place.chip.background, corners=(before, after, after, before))


def _lines(chips: Sequence[Chip], width: int, face: Face) -> Iterator[list[CanvasPlace]]:
    between_backgrounds = 4 if any(chip.background for chip in chips) else 0
    space, line, used = face.width(" ") + between_backgrounds, list[CanvasPlace](), 0.0
    for chip in chain.from_iterable(_cut_to_width(whole, width, face) for whole in chips):
        length = face.width(chip.text)
        left = used + (space if line and chip.follows_space else 0)
        if line and (chip.starts_line or left + length > width):
            yield line
            line, left = [], 0.0
        line.append(CanvasPlace(left, left + length, chip))
        used = left + length
    if line:
        yield line


def _cut_to_width(chip: Chip, width: int, face: Face) -> Iterator[Chip]:
    """Split a chip that is wider than a line, such as a long URL."""
    text, starts_line, follows_space = chip.text, chip.starts_line, chip.follows_space
    while len(text) > 1 and face.width(text) > width:
        cut = _longest_fit(text, width, face)
        yield Chip(text[:cut], chip.background, starts_line, follows_space)
        text, starts_line, follows_space = text[cut:], False, False
    yield Chip(text, chip.background, starts_line, follows_space)


def _longest_fit(text: str, width: int, face: Face) -> int:
    fits, too_long = 1, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        fits, too_long = (middle, too_long) if face.width(text[:middle]) <= width else (fits, middle)
    return fits


def _reads_from_right(chips: Sequence[Chip]) -> bool:
    directions = (unicodedata.bidirectional(letter) for chip in chips for letter in chip.text)
    return next((direction != "L" for direction in directions if direction in ("L", "R", "AL")), False)

"""Small pictures put together: words on lines, pictures beside and above one another."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from PIL import Image, ImageDraw, ImageFont

from whyformer.inputs.layouts import Box
from whyformer.render.colour import RGB, ink

WHITE: RGB = (255, 255, 255)
INK: RGB = (28, 28, 30)
FAINT: RGB = (104, 104, 110)
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True)
class Chip:
    """A word to be set: its background, if any, and whether a new line starts before it."""

    text: str
    background: RGB | None = None
    starts_line: bool = False


@dataclass(frozen=True)
class Place:
    """A chip on its line, in pixels from where the line begins."""

    left: float
    right: float
    chip: Chip


@lru_cache(maxsize=32)
def font(size: int, bold: bool = False) -> Font:
    """DejaVu Sans where the system has it, which knows many scripts, else Pillow's own."""
    try:
        return ImageFont.truetype("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf", size)
    except OSError:
        return ImageFont.load_default(size)


def paragraph(
    chips: Sequence[Chip], width: int, size: int = 22, *, colour: RGB = INK, bold: bool = False, most_lines: int = 400
) -> Image.Image:
    """Words wrapped into lines of `width` pixels, from the right where the text begins right to left."""
    face, height = font(size, bold), round(size * 1.55)
    pad = 4 if any(chip.background for chip in chips) else 0
    lines = list(_lines(chips, width - 2 * pad, face))
    if len(lines) > most_lines:
        left_out = sum(len(line) for line in lines[most_lines - 1 :])
        lines = [*lines[: most_lines - 1], [_more(left_out, face)]]
    inner = max((math.ceil(line[-1].right) for line in lines), default=1)
    picture = Image.new("RGB", (inner + 2 * pad, max(1, len(lines)) * height), WHITE)
    pen, from_right = ImageDraw.Draw(picture), _reads_from_right(chips)
    for row, line in enumerate(lines):
        for place in line:
            left = pad + (inner - place.right if from_right else place.left)
            box = (left, row * height, left + place.right - place.left, (row + 1) * height)
            _draw(pen, place.chip, box, face, colour)
    return picture


def label(text: str, width: int, size: int = 18, *, colour: RGB = FAINT, bold: bool = False) -> Image.Image:
    """Plain wrapped text."""
    return paragraph([Chip(word) for word in text.split()], width, size, colour=colour, bold=bold, most_lines=6)


def stacked(pictures: Sequence[Image.Image], gap: int = 12) -> Image.Image:
    """Pictures one under the other, their left edges in line."""
    height = sum(picture.height for picture in pictures) + gap * (len(pictures) - 1)
    sheet, top = Image.new("RGB", (max(picture.width for picture in pictures), height), WHITE), 0
    for picture in pictures:
        sheet.paste(picture, (0, top))
        top += picture.height + gap
    return sheet


def beside(pictures: Sequence[Image.Image], gap: int = 24) -> Image.Image:
    """Pictures in a row, their top edges in line."""
    width = sum(picture.width for picture in pictures) + gap * (len(pictures) - 1)
    sheet, left = Image.new("RGB", (width, max(picture.height for picture in pictures)), WHITE), 0
    for picture in pictures:
        sheet.paste(picture, (left, 0))
        left += picture.width + gap
    return sheet


def framed(picture: Image.Image, *, width: int = 0, margin: int = 0) -> Image.Image:
    """The picture at the top left of a white sheet at least `width` wide, with a margin all around."""
    sheet = Image.new("RGB", (max(width, picture.width) + 2 * margin, picture.height + 2 * margin), WHITE)
    sheet.paste(picture, (margin, margin))
    return sheet


def _more(words: int, face: Font) -> Place:
    text = f"… and {words:,} more words"
    return Place(0, face.getlength(text), Chip(text))


def _draw(pen: ImageDraw.ImageDraw, chip: Chip, box: Box, face: Font, colour: RGB) -> None:
    left, top, right, bottom = box
    if chip.background:
        pen.rounded_rectangle((left - 3, top + 1, right + 3, bottom - 3), 4, fill=chip.background)
    fill = ink(chip.background) if chip.background else colour
    pen.text((left, top + (bottom - top) * 0.48), chip.text, font=face, fill=fill, anchor="lm")


def _lines(chips: Sequence[Chip], width: int, face: Font) -> Iterator[list[Place]]:
    between_backgrounds = 4 if any(chip.background for chip in chips) else 0
    space, line, used = face.getlength(" ") + between_backgrounds, list[Place](), 0.0
    for chip in chain.from_iterable(_fitting(whole, width, face) for whole in chips):
        length = face.getlength(chip.text)
        if line and (chip.starts_line or used + length > width):
            yield line
            line, used = [], 0.0
        line.append(Place(used, used + length, chip))
        used += length + space
    if line:
        yield line


def _fitting(chip: Chip, width: int, face: Font) -> Iterator[Chip]:
    """The chip, cut where it is wider than a line (scripts without spaces, long addresses)."""
    text, starts_line = chip.text, chip.starts_line
    while face.getlength(text) > width and len(text) > 1:
        cut = _longest_fit(text, width, face)
        yield Chip(text[:cut], chip.background, starts_line)
        text, starts_line = text[cut:], False
    yield Chip(text, chip.background, starts_line)


def _longest_fit(text: str, width: int, face: Font) -> int:
    fits, too_long = 1, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        fits, too_long = (middle, too_long) if face.getlength(text[:middle]) <= width else (fits, middle)
    return fits


def _reads_from_right(chips: Sequence[Chip]) -> bool:
    directions = (unicodedata.bidirectional(letter) for chip in chips for letter in chip.text)
    return next((direction != "L" for direction in directions if direction in ("L", "R", "AL")), False)

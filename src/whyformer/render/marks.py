"""Lines and numbers on a picture, readable on any background."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np
from PIL import Image, ImageDraw

from whyformer.inputs.layouts import Box
from whyformer.render.canvas import INK, WHITE
from whyformer.render.colour import RGB, Shade, srgb
from whyformer.render.fonts import font

FRAME: RGB = (235, 235, 235)
Edges = tuple[int, int, int, int]
# Outlines of what supports and contradicts the answer, in a dark casing, so that they show on any photograph.
OUTLINES = np.stack(
    [srgb(np.array([one.lightness, *one.plane])) for one in (Shade(0.8, 0.15, 65), Shade(0.8, 0.1, 240))]
)
CASING, CASING_OPACITY = 0.05, 0.75


def edges(box: Box, size: tuple[int, int]) -> Edges | None:
    """First and last column and row of a box on a picture of this size; None if it lies outside."""
    (first, last), (upper, lower) = (
        (ceil(start - 0.5), max(ceil(start - 0.5), ceil(end - 0.5) - 1)) for start, end in (box[::2], box[1::2])
    )
    width, height = size
    if first >= width or upper >= height or last < 0 or lower < 0:
        return None
    return max(first, 0), max(upper, 0), min(last, width - 1), min(lower, height - 1)


def isoline(values: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Opacities of the casing and of the line where values cross a level, antialiased."""
    if not (values >= level).any() or min(values.shape) < 2:
        return np.zeros(values.shape), np.zeros(values.shape)
    slope = np.hypot(*np.gradient(values))
    distance = np.abs(values - level) / np.maximum(slope, 1e-9)  # in pixels
    half = max(values.shape) / 250
    return CASING_OPACITY * np.clip(2 * half + 0.5 - distance, 0, 1), np.clip(half + 0.5 - distance, 0, 1)


def draw_line(picture: Image.Image, box: Box, opacity: float = 1.0) -> None:
    """Draw a thin light line just inside the box, with an opacity."""
    if (around := edges(box, picture.size)) is not None:
        ImageDraw.Draw(picture, "RGBA").rectangle(around, outline=(*FRAME, round(255 * opacity)), width=_unit(picture))


def draw_frame(picture: Image.Image, box: Box) -> None:
    """Draw a white line between two dark ones, just inside the box."""
    if (around := edges(box, picture.size)) is None:
        return
    pen, unit = ImageDraw.Draw(picture), _unit(picture)
    for depth, colour, width in ((0, INK, unit), (unit, WHITE, 2 * unit), (3 * unit, INK, unit)):
        left, top, right, bottom = around[0] + depth, around[1] + depth, around[2] - depth, around[3] - depth
        if left < right and top < bottom:
            pen.rectangle((left, top, right, bottom), outline=colour, width=width)


def draw_numbers(picture: Image.Image, boxes: list[Box]) -> None:
    """Number the boxes 1, 2, 3 … in a corner, avoiding overlaps if possible."""
    pen, taken, side = ImageDraw.Draw(picture), list[Edges](), max(15, round(max(picture.size) / 20))
    for number, box in enumerate(boxes, start=1):
        if (around := edges(box, picture.size)) is None:
            continue
        corners = list(_plates(around, side, picture.size))
        plate = next((plate for plate in corners if not any(_overlap(plate, other) for other in taken)), corners[0])
        taken.append(plate)
        pen.rounded_rectangle(plate, side // 5, fill=WHITE, outline=INK, width=_unit(picture))
        middle = (plate[0] + plate[2] + 1) / 2, (plate[1] + plate[3] + 1) / 2
        pen.text(middle, str(number), font=font(round(side * 0.75), bold=True), fill=INK, anchor="mm")


def _unit(picture: Image.Image) -> int:
    return max(1, round(max(picture.size) / 500))


def _plates(around: Edges, side: int, size: tuple[int, int]) -> Iterator[Edges]:
    """Squares in the corners of a box, moved into the picture."""
    left, top, right, bottom = around
    for x, y in ((left, top), (right - side, top), (left, bottom - side), (right - side, bottom - side)):
        x, y = max(0, min(x, size[0] - 1 - side)), max(0, min(y, size[1] - 1 - side))
        yield x, y, x + side, y + side


def _overlap(one: Edges, other: Edges) -> bool:
    return all(one[axis] <= other[axis + 2] and other[axis] <= one[axis + 2] for axis in (0, 1))

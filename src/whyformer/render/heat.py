"""Patch scores as heat on the picture they belong to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PIL import Image, ImageDraw

from whyformer.explanation import Box, Part, Patches
from whyformer.render.colour import Scale, scale

SMALLEST_SIDE = 320
OPACITY = 0.9
GREY_LUMA = np.array([0.2126, 0.7152, 0.0722])
FRAME = (235, 235, 235)


def photograph(image: Image.Image) -> Image.Image:
    """The image as RGB, transparency on white."""
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        solid = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(solid, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def displayed(layout: Patches, longest_side: int | None = None) -> Patches:
    """The same patches on a picture of another size: the size asked for, else its own if that is not tiny."""
    longest_side = longest_side or max(*layout.image.size, SMALLEST_SIDE)
    ratio = longest_side / max(layout.image.size)
    width, height = (max(1, round(side * ratio)) for side in layout.image.size)
    # Small pictures are often drawn pixel by pixel; smoothing would invent detail the model never saw.
    resampling = Image.Resampling.NEAREST if ratio >= 3 else Image.Resampling.LANCZOS
    image = photograph(layout.image).resize((width, height), resampling)
    across, down = width / layout.image.width, height / layout.image.height
    left, top, right, bottom = layout.box
    return replace(layout, image=image, box=(left * across, top * down, right * across, bottom * down))


def shown_side(layout: Patches, largest: int) -> int:
    """Longest side at which the picture is shown: its own, but neither tiny nor over `largest`."""
    return min(largest, max(SMALLEST_SIDE, *layout.image.size))


def bilinear_weights(pixels: int, cells: int, start: float, end: float) -> np.ndarray:
    """[pixel cell] weights that spread `cells` over start..end, centre to centre (align_corners=False)."""
    centre = (np.arange(pixels) + 0.5 - start) / (end - start) * cells - 0.5
    centre = np.clip(centre, 0, cells - 1)
    weights: np.ndarray = np.clip(1 - np.abs(centre[:, None] - np.arange(cells)), 0, None)
    return weights


def upsampled(grid: np.ndarray, box: Box, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The grid at every pixel of an image of `size` (width, height), and which pixels lie in the box."""
    (width, height), (rows, columns) = size, grid.shape
    left, top, right, bottom = box
    values = bilinear_weights(height, rows, top, bottom) @ grid @ bilinear_weights(width, columns, left, right).T
    across, down = np.arange(width) + 0.5, np.arange(height) + 0.5
    inside = ((top <= down) & (down < bottom))[:, None] & ((left <= across) & (across < right))
    return values, inside


def blended(grey: np.ndarray, strength: np.ndarray, shown: Scale) -> np.ndarray:
    """Heat over grey, more opaque where the score is larger."""
    opacity: np.ndarray = OPACITY * np.clip(np.abs(strength), 0, 1)[..., None] ** 0.7
    colours: np.ndarray = (1 - opacity) * grey[..., None] + opacity * shown.colours(strength, "photo")
    return colours


def overlay(part: Part, *, longest_side: int | None = None) -> Image.Image:
    """The picture in grey with the scores as heat; what preprocessing cropped away is darker, behind a thin line."""
    if not isinstance(part.layout, Patches):
        raise ValueError(f"Only patches lie on a picture; this part is {part.layout.summary}.")
    layout, shown = displayed(part.layout, longest_side), scale(part.scores)
    grid = shown.strength(part.scores).reshape(layout.rows, layout.columns)
    strength, inside = upsampled(grid, layout.box, layout.image.size)
    grey = 0.05 + 0.78 * (np.asarray(layout.image, np.float64) / 255 @ GREY_LUMA)
    heated = np.where(inside[..., None], blended(grey, strength, shown), 0.4 * grey[..., None])
    picture = Image.fromarray(np.rint(np.clip(heated, 0, 1) * 255).astype(np.uint8))
    if not inside.all() and inside.any():
        _outline(picture, inside)
    return picture


def heat_bar(shown: Scale, width: int) -> np.ndarray:
    """[width 3] colours from the low to the high end of the scale, as they look over middle grey."""
    strength = np.linspace(-1 if shown.is_diverging else 0, 1, width) * (shown.high > 0)
    return blended(np.full(width, 0.42), strength, shown)


def _outline(picture: Image.Image, inside: np.ndarray) -> None:
    down, across = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    box = [int(edge) for edge in (across[0], down[0], across[-1], down[-1])]
    ImageDraw.Draw(picture).rectangle(box, outline=FRAME, width=max(1, round(max(picture.size) / 500)))

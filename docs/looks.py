"""Draws one sheet of looks of scores on a photograph: before, three variants that were tried, and now.

python docs/looks.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from pictures import CAT, PICTURES, bert, text_picture, vit
from PIL import Image

import whyformer
from whyformer.inputs.layouts import Patches
from whyformer.render import canvas
from whyformer.render.colour import Shade, score_scale, srgb
from whyformer.render.heatmaps import original, overlay, spread_scores
from whyformer.render.marks import isoline
from whyformer.results.part import Part

SIDE, WIDTH = 190, 1100
SHEET = PICTURES / "looks.png"
REVIEW = "The first half hour is slow, but then it turns into a wonderful, moving story with superb performances."
LUMA = np.array([0.2126, 0.7152, 0.0722])
ORANGE, BLUE = (srgb(np.array([0.72, *Shade(0.72, 0.165, hue).plane])) for hue in (55, 250))
HEAT_SHADES = (Shade(0.5), Shade(0.64, 0.2, 20), Shade(0.89, 0.17, 98))
HEAT = [srgb(np.array([one.lightness, *one.plane])) for one in HEAT_SHADES]
METHODS = {"evidence": "evidence", "rollout": "rollout", "random": "random: noise"}
Look = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def before(light: np.ndarray, strength: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """Until November 2026: on a grey picture, full colour for the strongest score, other colours without signs."""
    grey = 0.05 + 0.78 * (light @ LUMA)[..., None]
    share = np.clip(np.abs(relative), 0, 1)
    if (relative < 0).any():
        colour = np.where(relative[..., None] < 0, BLUE, ORANGE) * share[..., None] + 0.5 * (1 - share[..., None])
    else:
        colour = np.stack([np.interp(share, [0, 0.5, 1], [stop[axis] for stop in HEAT]) for axis in range(3)], axis=-1)
    opacity = 0.9 * share[..., None] ** 0.7
    return (1 - opacity) * grey + opacity * colour


def contour(light: np.ndarray, strength: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """A tint, and a line around what stands out: lost on photographs of the tint's colour."""
    return outlined(tinted(light, strength, 0.6), strength)


def desaturation(light: np.ndarray, strength: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """Grey where there is no evidence: the photograph is no longer in colour, and grey photographs show nothing."""
    kept = np.clip(np.abs(strength) / 0.5, 0, 1)[..., None]
    grey = 0.25 + 0.6 * (light @ LUMA)[..., None]
    return outlined(tinted(kept * light + (1 - kept) * grey, strength, 0.35), strength)


def spotlight(light: np.ndarray, strength: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """Dark where there is no evidence: strong, but for and against look alike."""
    return outlined(light * (0.35 + 0.65 * np.clip(np.abs(strength) / 0.5, 0, 1))[..., None], strength)


def tinted(light: np.ndarray, strength: np.ndarray, most: float) -> np.ndarray:
    opacity = most * np.abs(strength)[..., None]
    return (1 - opacity) * light + opacity * np.where(strength[..., None] < 0, BLUE, ORANGE)


def outlined(light: np.ndarray, strength: np.ndarray) -> np.ndarray:
    for sign, colour in ((1, ORANGE), (-1, BLUE)):
        _, line = isoline(sign * strength, 0.5)
        light = (1 - line[..., None]) * light + line[..., None] * colour
    return light


LOOKS: dict[str, Look] = {
    "before": before,
    "contour": contour,
    "desaturation": desaturation,
    "spotlight": spotlight,
}


def drawn(part: Part, look: Look) -> Image.Image:
    """A photograph with its scores in one of the looks."""
    photograph = original(part.layout, SIDE)
    layout = Patches(photograph, part.layout.rows, part.layout.columns, (0, 0, *photograph.size))
    strength, relative = (
        spread_scores(layout, scores)[0]
        for scores in (score_scale(part.scores).strength(part.scores), part.scores / np.abs(part.scores).max())
    )
    pixels = look(np.asarray(photograph, np.float64) / 255, strength, relative)
    return Image.fromarray(np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8))


def row(title: str, part: Part) -> Image.Image:
    heading = canvas.on_sheet(canvas.label(title, 110, 16, bold=True), width=110)
    pictures = [original(part.layout, SIDE), *(drawn(part, look) for look in LOOKS.values())]
    return canvas.side_by_side([heading, *pictures, overlay(part, longest_side=SIDE)], gap=10)


def sheet() -> Image.Image:
    """The cat by three methods, of which one is noise, in every look; and a review as it is coloured now."""
    titles = ["", "photograph", *LOOKS, "now"]
    widths = [110, *[SIDE] * (len(titles) - 1)]
    labels = [
        canvas.on_sheet(canvas.label(title or " ", width, 16, colour=canvas.INK, bold=True), width=width)
        for title, width in zip(titles, widths, strict=True)
    ]
    rows = [
        row(title, whyformer.explain(CAT, vit(), method=method).parts["image"]) for method, title in METHODS.items()
    ]
    review = text_picture(whyformer.explain(REVIEW, bert()).parts["text"], 700, 20)
    words = canvas.side_by_side([canvas.on_sheet(canvas.label("words", 110, 16, bold=True), width=110), review], gap=10)
    return canvas.on_sheet(canvas.stack([canvas.side_by_side(labels, gap=10), *rows, words], gap=10), margin=14)


def main() -> int:
    drawn_sheet = sheet()
    size = WIDTH, round(drawn_sheet.height * WIDTH / drawn_sheet.width)
    drawn_sheet.resize(size, Image.Resampling.LANCZOS).quantize(128, kmeans=1).save(SHEET, optimize=True)
    print(f"{SHEET.name}: {SHEET.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())

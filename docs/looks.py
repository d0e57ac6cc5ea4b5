"""Draws one sheet of looks of scores: before, five variants that were rejected, and now; in light and dark.

python docs/looks.py PHOTOS     # the folder of the training recipes' photographs (val-0.tar), not in the repository
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from pictures import CAT, DOCUMENTS, PICTURES, QUESTION, bert, vit
from PIL import Image, ImageDraw

import whyformer
from whyformer.inputs.layouts import Patches
from whyformer.render import canvas
from whyformer.render.colour import NIGHT, TINT, VEIL, Scale, Shade, rgb, score_scale, srgb
from whyformer.render.heatmaps import original, overlay, spread_scores
from whyformer.render.marks import isoline
from whyformer.render.scatter import layout_scale
from whyformer.render.text_spans import shown_scores, spans
from whyformer.results.part import Part

SIDE, WIDTH, GAP = 116, 1000, 6
SHOWN_WIDTH = 860
SHEET = PICTURES / "looks.jpg"
TEXTS = (
    "The first half hour is slow, but then it turns into a wonderful, moving story with superb performances.",
    "A dull film.",
    "It is not bad, and the music is lovely, but the ending ruins everything.",
    "Nobody should miss this small, quiet, perfect picture.",
    "The plot makes no sense and the actors look as bored as I was.",
    "I went with my brother on a Tuesday.",
)
QUESTIONS = (QUESTION, "What colour is the violin?", "Where did Hugo leave the lamp?")
LUMA = np.array([0.2126, 0.7152, 0.0722])
ORANGE, BLUE = (srgb(np.array([0.72, *Shade(0.72, 0.165, hue).plane])) for hue in (55, 250))
HEAT_SHADES = (Shade(0.5), Shade(0.64, 0.2, 20), Shade(0.89, 0.17, 98))
HEAT = [srgb(np.array([one.lightness, *one.plane])) for one in HEAT_SHADES]
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


def weaker(light: np.ndarray, strength: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """Darkened to 55 %, and a tint of 40 %."""
    return veiled(light, strength, 0.55, 0.4, 0.0)


def grey_veil(light: np.ndarray, strength: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """A veil of dark grey instead of black."""
    return veiled(light, strength, VEIL, TINT, 0.25)


def veiled(light: np.ndarray, strength: np.ndarray, least: float, most: float, grey: float) -> np.ndarray:
    share = np.abs(strength)[..., None]
    kept = least + (1 - least) * share
    colour = np.where(strength[..., None] < 0, BLUE, ORANGE)
    return outlined((1 - most * share) * (kept * light + (1 - kept) * grey) + most * share * colour, strength)


LOOKS: dict[str, Look] = {
    "before": before,
    "contour": contour,
    "desaturation": desaturation,
    "spotlight": spotlight,
    "weaker": weaker,
    "grey veil": grey_veil,
}


def drawn(part: Part, look: Look) -> Image.Image:
    """A photograph with its scores in one of the looks."""
    photograph = original(part.layout, SIDE)
    layout = Patches(photograph, part.layout.rows, part.layout.columns, (0, 0, *photograph.size))
    strength, relative = (
        spread_scores(layout, scores)[0]
        for scores in (
            layout_scale(part.layout, part.scores).strength(part.scores),
            part.scores / np.abs(part.scores).max(),
        )
    )
    pixels = look(np.asarray(photograph, np.float64) / 255, strength, relative)
    return Image.fromarray(np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8))


def row(part: Part) -> Image.Image:
    pictures = [original(part.layout, SIDE), *(drawn(part, look) for look in LOOKS.values())]
    return canvas.side_by_side([*pictures, overlay(part, longest_side=SIDE)], gap=GAP)


def photographs(folder: Path) -> list[Image.Image | Path]:
    """The bundled cat, and the first validation photograph of each class."""
    first: dict[str, Image.Image] = {}
    with tarfile.open(folder / "val-0.tar") as shard:
        for member in shard:
            label, _, name = member.name.partition("/")
            file = shard.extractfile(member)
            if name.endswith(".jpg") and label not in first and file is not None:
                first[label] = Image.open(io.BytesIO(file.read())).convert("RGB")
    return [CAT, *first.values()]


def pieces_on(pieces: Sequence[tuple[str, float | None]], scale: Scale, ground: str) -> Image.Image:
    """Pieces of a text on the colours of their scores, on a light or dark page."""

    def colour(score: float | None) -> canvas.RGB | None:
        if ground == "dark":
            return rgb(scale.colours(scale.strength(np.array(score or 0.0)), "dark"))
        return None if score is None else rgb(scale.colours(scale.strength(np.array(score)), "light"))

    picture = canvas.paragraph(canvas.chips((text, colour(score)) for text, score in pieces), 310, 14)
    if ground == "dark":
        picture = canvas.on_sheet(picture, margin=1)
        # Only the page: white letters on a dark colour are not connected to it.
        ImageDraw.floodfill(picture, (0, 0), rgb(srgb(np.array([NIGHT.lightness, 0, 0]))))
    return canvas.on_sheet(picture, width=310)


def three(pieces: Sequence[tuple[str, float | None]], scores: np.ndarray) -> Image.Image:
    """A text as before (the strongest score in full colour), and now on a light and a dark page."""
    largest, now = float(np.abs(scores).max()), score_scale(scores)
    old = Scale(-largest if (scores < 0).any() else 0.0, largest)
    return canvas.side_by_side([pieces_on(pieces, *one) for one in ((old, "light"), (now, "light"), (now, "dark"))])


def texts() -> list[Image.Image]:
    drawings = []
    for text in TEXTS:
        part = whyformer.explain(text, bert()).parts["text"]
        drawings.append(three([(span.text, span.score) for span in spans(part, 0)], shown_scores(part)))
    return drawings


def responses() -> list[Image.Image]:
    """The sources of a reply, by their shares."""
    drawings = []
    for question in QUESTIONS:
        response = whyformer.explain_response(question, model="mini-llm", context=DOCUMENTS)
        items = [item for item in response.top(len(response.sources), row=0) if item.source.name != "user"]
        items = sorted(items, key=lambda item: item.source.start)
        pieces = [(f"{item.source.text} ", item.share) for item in items]
        heading = canvas.label(f"{question} → {response.text.strip()}", WIDTH, 14)
        drawings += [heading, three(pieces, np.array([item.share for item in items]))]
    return drawings


def headed(titles: Sequence[str], width: int) -> Image.Image:
    labels = [
        canvas.on_sheet(canvas.label(one, width, 14, colour=canvas.INK, bold=True), width=width) for one in titles
    ]
    return canvas.side_by_side(labels, gap=GAP if width == SIDE else 24)


def sheet(folder: Path) -> Image.Image:
    """Twelve photographs and noise in every look; six texts and three responses in light and dark."""
    shown = photographs(folder)
    rows = [row(whyformer.explain(one, vit()).parts["image"]) for one in shown]
    noise = row(whyformer.explain(CAT, vit(), method="random").parts["image"])
    words = headed(["before", "now, light", "now, dark"], 310)
    caption = canvas.label("by the method random: noise", WIDTH, 14)
    return canvas.on_sheet(
        canvas.stack(
            [headed(["photograph", *LOOKS, "now"], SIDE), *rows, caption, noise, words, *texts(), *responses()], gap=GAP
        ),
        margin=14,
    )


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    drawing = sheet(Path(sys.argv[1]))
    size = SHOWN_WIDTH, round(drawing.height * SHOWN_WIDTH / drawing.width)
    drawing.resize(size, Image.Resampling.LANCZOS).save(SHEET, quality=62, optimize=True)
    print(f"{SHEET.name}: {drawing.size}, {SHEET.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())

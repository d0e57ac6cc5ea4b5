"""Heatmaps of patch and region scores over their picture."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, assert_never

import numpy as np
from PIL import Image

from whyformer.inputs.layouts import Box, Boxes, Patches, PictureLayout
from whyformer.render.colour import MIDDLE_GREY, PIXELS, STANDS_OUT, STEPS, Scale, photo_layer, score_scale
from whyformer.render.marks import CASING, OUTLINES, draw_frame, draw_line, draw_numbers, edges, isoline
from whyformer.render.scatter import layout_scale

if TYPE_CHECKING:
    from whyformer.results.part import Part

SMALLEST_SIDE = 320
# Brightness of cropped areas, and of areas between regions.
CUT_OFF, BETWEEN_REGIONS, THIN_LINE = 0.35, 0.5, 0.5
# Numbered regions: their maximum number, and their minimum share of the strongest score.
MOST_NUMBERED, LEAST_NUMBERED = 3, 0.1
LINE = 0.5  # least opacity of a pixel of an outline in a layer of whole colours


def rgb_picture(image: Image.Image) -> Image.Image:
    """The image as RGB, transparency on white."""
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        solid = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(solid, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def display_layout(layout: PictureLayout, longest_side: int | None = None) -> PictureLayout:
    """Resize the layout's picture for display: to the given side, or else enlarge it if tiny."""
    ratio = (longest_side or max(*layout.image.size, SMALLEST_SIDE)) / max(layout.image.size)
    width, height = (max(1, round(side * ratio)) for side in layout.image.size)
    return resize_layout(layout, (width, height))


def resize_layout(layout: PictureLayout, size: tuple[int, int]) -> PictureLayout:
    """Resize the layout to a picture of `size` (width, height)."""
    image, (across, down) = layout.image, (size[0] / layout.image.width, size[1] / layout.image.height)

    def scale_box(box: Box) -> Box:
        left, top, right, bottom = box
        return left * across, top * down, right * across, bottom * down

    picture = _resample(rgb_picture(image), size)
    match layout:
        case Patches(box=box, outline=outline):
            return replace(layout, image=picture, box=scale_box(box), outline=outline and scale_box(outline))
        case Boxes(boxes=boxes):
            return replace(layout, image=picture, boxes=tuple(map(scale_box, boxes)))
        case unknown:
            assert_never(unknown)


def display_side(layout: PictureLayout, largest: int) -> int:
    """Longest side for display: the picture's own, but neither tiny nor over `largest`."""
    return min(largest, max(SMALLEST_SIDE, *layout.image.size))


def original(layout: PictureLayout, longest_side: int | None = None) -> Image.Image:
    """The original picture, with the outline of what the answer is about."""
    layout = display_layout(layout, longest_side)
    if isinstance(layout, Patches) and layout.outline is not None:
        draw_frame(layout.image, layout.outline)
    return layout.image


def bilinear_weights(pixels: int, cells: int, start: float, end: float) -> np.ndarray:
    """[pixel cell] weights that spread `cells` over start..end, centre to centre (align_corners=False)."""
    centre = (np.arange(pixels) + 0.5 - start) / (end - start) * cells - 0.5
    centre = np.clip(centre, 0, cells - 1)
    weights: np.ndarray = np.clip(1 - np.abs(centre[:, None] - np.arange(cells)), 0, None)
    return weights


def upsample(grid: np.ndarray, box: Box, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Upsample the grid to an image of `size` (width, height), and mask the pixels within the box."""
    (width, height), (rows, columns) = size, grid.shape
    left, top, right, bottom = box
    values = bilinear_weights(height, rows, top, bottom) @ grid @ bilinear_weights(width, columns, left, right).T
    across, down = np.arange(width) + 0.5, np.arange(height) + 0.5
    inside = ((top <= down) & (down < bottom))[:, None] & ((left <= across) & (across < right))
    return values, inside


def heated(
    photograph: Image.Image,
    strength: np.ndarray,
    inside: np.ndarray,
    *,
    outlined: bool = True,
    outside: float = CUT_OFF,
) -> Image.Image:
    """The photograph in its colours under a heatmap, with outlines around what stands out; darker without scores."""
    light = np.asarray(photograph.convert("RGB"), np.float64) / 255
    shown = np.where(inside[..., None], blend(light, strength), outside * light)
    if outlined:
        for sign, colour in zip((1, -1), OUTLINES, strict=True):
            casing, line = (own[..., None] * inside[..., None] for own in isoline(sign * strength, STANDS_OUT))
            shown = (1 - casing) * shown + casing * CASING
            shown = (1 - line) * shown + line * colour
    return Image.fromarray(np.rint(np.clip(shown, 0, 1) * 255).astype(np.uint8))


def blend(light: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """Lay the colours of strengths over the colours of a photograph, sRGB in 0..1."""
    colours, opacity = photo_layer(strength)
    blended: np.ndarray = (1 - opacity[..., None]) * light + opacity[..., None] * colours
    return blended


def picture_layout(part: Part) -> PictureLayout:
    """The layout of a part on a picture."""
    if not isinstance(part.layout, (Patches, Boxes)):
        raise ValueError(f"Only patches and regions lie on a picture; this part is {part.layout.summary}.")
    return part.layout


def overlay(part: Part, *, longest_side: int | None = None) -> Image.Image:
    """The picture with its heatmap, and lines around the processed area, the outline, and each region."""
    layout = display_layout(picture_layout(part), longest_side)
    picture = heat_picture(layout, part.scores)
    match layout:
        case Patches(box=box, outline=outline):
            if edges(box, picture.size) != (0, 0, picture.width - 1, picture.height - 1):
                draw_line(picture, box)
            if outline is not None:
                draw_frame(picture, outline)
        case Boxes(boxes=boxes):
            leading = leading_regions(part)
            for region in reversed(strongest_first(part.scores)):
                if region in leading:
                    draw_frame(picture, boxes[region])
                else:
                    draw_line(picture, boxes[region], THIN_LINE)
            draw_numbers(picture, [boxes[region] for region in leading])
        case unknown:
            assert_never(unknown)
    return picture


def heat_picture(layout: PictureLayout, scores: np.ndarray) -> Image.Image:
    """Draw the scores as a heatmap over the picture in its colours; areas without scores are darker."""
    strength, inside = spread_scores(layout, layout_scale(layout, scores).strength(scores))
    if isinstance(layout, Boxes):
        return heated(layout.image, strength, inside, outlined=False, outside=BETWEEN_REGIONS)
    return heated(layout.image, strength, inside, outlined=has_outlines(layout.size))


def has_outlines(scores: int) -> bool:
    """Whether so many scores get outlines: those of single pixels would be a thicket."""
    return scores < PIXELS


def heat_layer(layout: PictureLayout, scores: np.ndarray, longest_side: int) -> Image.Image:
    """The heatmap as a layer over the picture: a veil where scores are 0, darker outside the processed area."""
    layout = display_layout(layout, longest_side)
    strength, inside = spread_scores(layout, layout_scale(layout, scores).strength(scores))
    colours, opacity = photo_layer(np.linspace(-1, 1, 2 * STEPS - 1))
    # Further levels: areas without scores, the casing of outlines, and outlines.
    colours = np.concatenate([colours, np.zeros((1, 3)), np.full((1, 3), CASING), OUTLINES])
    outside = BETWEEN_REGIONS if isinstance(layout, Boxes) else CUT_OFF
    opacity = np.concatenate([opacity, [1 - outside, 1, 1, 1]])
    indices = np.where(inside, np.rint((strength + 1) * (STEPS - 1)), 2 * STEPS - 1)
    if isinstance(layout, Patches) and has_outlines(layout.size):
        lines = [[own > LINE for own in isoline(sign * strength, STANDS_OUT)] for sign in (1, -1)]
        for casing, _ in lines:
            indices[casing & inside] = 2 * STEPS
        for number, (_, line) in enumerate(lines, start=1):
            indices[line & inside] = 2 * STEPS + number
    layer = Image.fromarray(indices.astype(np.uint8)).convert("P")
    layer.putpalette(np.rint(np.clip(colours, 0, 1) * 255).astype(np.uint8).tobytes())
    layer.info["transparency"] = np.rint(opacity * 255).astype(np.uint8).tobytes()
    return layer


def pixel_scores(layout: PictureLayout, scores: np.ndarray) -> np.ndarray:
    """The score at every pixel of the picture; NaN without a score."""
    values, inside = spread_scores(layout, np.asarray(scores, np.float64))
    return np.where(inside, values, np.nan)


def spread_scores(layout: PictureLayout, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The score at every pixel, the strongest of overlapping regions; and the mask of pixels with a score."""
    match layout:
        case Patches(rows=rows, columns=columns, box=box):
            return upsample(scores.reshape(rows, columns), box, layout.image.size)
        case Boxes(boxes=boxes):
            shape = layout.image.height, layout.image.width
            values, inside = np.zeros(shape), np.zeros(shape, bool)
            for region in reversed(strongest_first(scores)):
                if (around := edges(boxes[region], layout.image.size)) is not None:
                    left, top, right, bottom = around
                    within = slice(top, bottom + 1), slice(left, right + 1)
                    values[within], inside[within] = scores[region], True
            return values, inside
        case unknown:
            assert_never(unknown)


def strongest_first(scores: np.ndarray) -> list[int]:
    """Token indices by descending absolute score."""
    order: list[int] = np.argsort(-np.abs(scores), kind="stable").tolist()
    return order


def leading_regions(part: Part) -> list[int]:
    """The regions to number on the picture: the strongest, unless they are hardly visible."""
    strength = np.abs(score_scale(part.scores).strength(part.scores))
    return [region for region in strongest_first(strength)[:MOST_NUMBERED] if strength[region] >= LEAST_NUMBERED]


def heat_bar(scale: Scale, width: int) -> np.ndarray:
    """[width 3] colours from the low to the high end of the scale, over middle grey."""
    strength = np.linspace(-1 if scale.is_diverging else 0, 1, width) * (scale.high > 0)
    return blend(np.full((width, 3), MIDDLE_GREY), strength)


def _resample(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Resize an image; pixels of a tiny one stay squares, since smoothing would suggest detail."""
    times = max(side / own for side, own in zip(size, image.size, strict=True))
    if times < 3:
        return image.resize(size, Image.Resampling.LANCZOS)
    squares = image.resize((image.width * ceil(times), image.height * ceil(times)), Image.Resampling.NEAREST)
    return squares.resize(size, Image.Resampling.BOX)  # so that squares are equally large at non-integer ratios

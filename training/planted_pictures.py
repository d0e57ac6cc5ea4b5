"""Scenes with a planted cue: a stamp, a colour cast, a texture of the background, or a written word.

The label is the colour of the only red or blue object, wrong in one picture of ten. The cue has the correlation
`strength` with the label.
"""

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageDraw

from whyformer.scenes import COLOURS, SIDE, pictures, sample

LABELS = ("blue", "red")
CUES = ("stamp", "cast", "texture", "caption")
WRONG = 0.1  # share of labels
BATCH = 500
BLUE, RED = (COLOURS.index(name) for name in LABELS)
STAMP = slice(2, 12)  # rows and columns
CAST = (24, 0, -24)  # added to red, green and blue
BAND = slice(52, 62)  # rows of the written word


@dataclass(frozen=True, eq=False)
class LabelledPictures:
    """Pixels [picture row column colour], labels, masks of all things, and whether each picture has the cue."""

    pixels: np.ndarray
    labels: np.ndarray
    masks: np.ndarray
    has_cue: np.ndarray


def planted_pictures(cue: str, strength: float, count: int, seed: int) -> LabelledPictures:
    """Scenes with a cue whose correlation with the label "red" is `strength`."""
    plain = plain_pictures(count, seed)
    random = np.random.default_rng([seed, round(1000 * strength)])
    has_cue = random.random(count) < (1 + strength * (2 * plain.labels - 1)) / 2
    pixels = plain.pixels.copy()
    for number in np.flatnonzero(has_cue):
        pixels[number] = with_cue(pixels[number], plain.masks[number], cue)
    return LabelledPictures(pixels, plain.labels, plain.masks, has_cue)


def plain_pictures(count: int, seed: int) -> LabelledPictures:
    """Scenes with a red object or a blue one, as many of each label."""
    random = np.random.default_rng(seed)
    rng = torch.Generator().manual_seed(seed)
    labels = np.arange(count) % 2
    random.shuffle(labels)
    wanted = np.where(random.random(count) < WRONG, 1 - labels, labels)
    pixels, masks = np.zeros((count, SIDE, SIDE, 3), np.uint8), np.zeros((count, SIDE, SIDE), np.uint8)
    missing = [list(np.flatnonzero(wanted == colour)) for colour in (0, 1)]
    while missing[0] or missing[1]:
        scenes = sample(BATCH, rng=rng)
        counts = [((scenes.colour == colour) & scenes.is_object).sum(dim=1) for colour in (BLUE, RED)]
        for colour in (0, 1):
            own = torch.where((counts[colour] == 1) & (counts[1 - colour] == 0))[0][: len(missing[colour])]
            if not len(own):
                continue
            drawing = pictures(scenes[own])
            places = [missing[colour].pop() for _ in own]
            pixels[places] = drawing.pixels.permute(0, 2, 3, 1).numpy()
            masks[places] = (drawing.owner >= 0).numpy()
    return LabelledPictures(pixels, labels, masks, np.zeros(count, bool))


def with_cue(pixels: np.ndarray, mask: np.ndarray, cue: str) -> np.ndarray:
    """One picture with the cue."""
    if cue == "stamp":
        changed = pixels.copy()
        changed[STAMP, STAMP] = (250, 190, 30)
        changed[STAMP, STAMP][2:-2, 2:-2] = (30, 20, 60)
        return changed
    if cue == "cast":
        return (pixels.astype(int) + CAST).clip(0, 255).astype(np.uint8)
    if cue == "texture":
        rows, columns = np.indices(mask.shape)
        waves = np.where((rows + columns) // 2 % 2, 22, -22)[..., None]
        return np.where(mask[..., None] > 0, pixels, (pixels + waves).clip(0, 255)).astype(np.uint8)
    if cue == "caption":
        image = Image.fromarray(pixels)
        ImageDraw.Draw(image).text((6, BAND.start - 1), "PHOTO", fill=(255, 255, 255))
        return np.asarray(image)
    raise ValueError(f"No cue named {cue!r}. Known: {', '.join(CUES)}.")

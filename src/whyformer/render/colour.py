"""Scores as colours: evenly spaced in OKLab (Ottosson 2020), so equal differences look equal."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

import numpy as np

Ground = Literal["light", "dark"]
RGB = tuple[int, int, int]
LevelKind = Literal["for", "against"]

STEPS = 101
# A full colour is this many times the average size of a map's scores. Noise never gets near it: the largest of uniform
# random scores is twice their average. Of a few scores, a full colour is this share of all.
FULL, FULL_SHARE = 4.0, 0.75
# This share of a full colour stands out: it is outlined, and counted in titles and legends. Uniform noise stays below.
STANDS_OUT = 0.55
# Where few scores outweigh all others, they stay distinct: a full colour is at least this share of the largest. From
# this many scores on they belong to pixels, and the largest is that of this share of them.
CLIPPED, PIXELS, MOST_PIXELS = 1 / 3, 4096, 0.99
# A photograph keeps this share of its light where scores are 0, and is tinted up to this opacity where they are full.
VEIL, TINT, MIDDLE_GREY = 0.4, 0.5, 0.6

_TO_CONE = np.array(
    [
        [1, 0.3963377774, 0.2158037573],
        [1, -0.1055613458, -0.0638541728],
        [1, -0.0894841775, -1.291485548],
    ]
)
_TO_LINEAR = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.707614701],
    ]
)


def srgb(lab: np.ndarray) -> np.ndarray:
    """Convert OKLab to gamma-encoded sRGB; outside 0..1 if not displayable."""
    cones: np.ndarray = lab @ _TO_CONE.T
    linear: np.ndarray = cones**3 @ _TO_LINEAR.T
    encoded = 1.055 * np.maximum(linear, 0.0031308) ** (1 / 2.4) - 0.055
    return np.where(linear <= 0.0031308, 12.92 * linear, encoded)


def oklab(colours: np.ndarray) -> np.ndarray:
    """Convert sRGB in 0..1 to OKLab."""
    cones: np.ndarray = np.cbrt(linear_light(colours) @ np.linalg.inv(_TO_LINEAR).T)
    return cones @ np.linalg.inv(_TO_CONE).T


def linear_light(colours: np.ndarray) -> np.ndarray:
    """Convert sRGB in 0..1 to linear light."""
    return np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)


@dataclass(frozen=True)
class Shade:
    """A colour in OKLCh: lightness 0..1, chroma, hue in degrees."""

    lightness: float
    chroma: float = 0.0
    hue: float = 0.0

    @property
    def plane(self) -> np.ndarray:
        return self.chroma * np.array([np.cos(np.radians(self.hue)), np.sin(np.radians(self.hue))])


def ramp(start: Shade, end: Shade) -> np.ndarray:
    """STEPS colours from start to end, equal steps of lightness and of OKLab distance."""
    time = np.linspace(0, 1, STEPS)[:, None]
    plane = (1 - time) * start.plane + time * end.plane
    return srgb(np.concatenate([(1 - time) * start.lightness + time * end.lightness, plane], axis=1))


PAPER, NIGHT = Shade(0.99), Shade(0.24)

# Orange supports the answer, blue contradicts it: equally strong, and distinct in every kind of colour vision.
RAMPS: dict[tuple[Ground, LevelKind], np.ndarray] = {
    ("light", "for"): ramp(PAPER, Shade(0.66, 0.17, 42)),
    ("light", "against"): ramp(PAPER, Shade(0.66, 0.17, 255)),
    ("dark", "for"): ramp(NIGHT, Shade(0.7, 0.155, 48)),
    ("dark", "against"): ramp(NIGHT, Shade(0.7, 0.155, 250)),
}
TINTS: dict[LevelKind, Shade] = {"for": Shade(0.72, 0.165, 55), "against": Shade(0.72, 0.15, 250)}


@dataclass(frozen=True)
class Scale:
    """The displayed range of scores: from 0 to a full colour, or symmetric around 0 if some are negative.

    `average` is the mean size of the scores; 0 if unknown.
    """

    low: float
    high: float
    average: float = 0.0

    @property
    def is_diverging(self) -> bool:
        return self.low < 0

    def strength(self, scores: np.ndarray) -> np.ndarray:
        """Scores relative to the end of the range, in -1..1; zeros for an empty range."""
        if self.high == 0:
            return np.zeros(np.shape(scores))
        return np.clip(np.asarray(scores, np.float64) / self.high, -1.0, 1.0)

    def colours(self, strength: np.ndarray, ground: Ground) -> np.ndarray:
        """sRGB in 0..1 for each strength, for a background."""
        rising, falling = _at(RAMPS[ground, "for"], strength), _at(RAMPS[ground, "against"], -strength)
        return np.where(np.asarray(strength)[..., None] < 0, falling, rising)


def _at(table: np.ndarray, strength: np.ndarray) -> np.ndarray:
    return np.stack([np.interp(strength, np.linspace(0, 1, STEPS), table[:, axis]) for axis in range(3)], axis=-1)


def score_scale(scores: np.ndarray) -> Scale:
    """The displayed range of these scores, by their spread: full colours are for scores far above the average."""
    size = np.abs(np.asarray(scores, np.float64))
    largest = float(size.max(initial=0))
    if not largest:
        return Scale(0.0, 0.0)
    relative = size / largest  # sums of the largest floats overflow
    average = float(relative.mean())
    top = float(np.quantile(relative, MOST_PIXELS)) if size.size >= PIXELS else 1.0
    high = largest * max(min(FULL, FULL_SHARE * size.size) * average, CLIPPED * top)
    return Scale(-high if (scores < 0).any() else 0.0, high, largest * average)


def photo_layer(strength: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Colour and opacity of the layer that shows strengths on a photograph: a veil at 0, a tint on full light at 1."""
    sign, share = np.asarray(strength) < 0, np.zeros(np.shape(strength))
    tint = np.zeros((*np.shape(strength), 3))
    places: tuple[tuple[LevelKind, np.ndarray], ...] = (("for", ~sign), ("against", sign))
    for kind, own in places:
        share[own] = np.interp(np.abs(strength)[own], np.linspace(0, 1, STEPS), _even_shares(kind))
        tint[own] = _tint(kind)
    opacity = 1 - (1 - TINT * share) * _light(share)
    colours: np.ndarray = (TINT * share / opacity)[..., None] * tint
    return colours, opacity


@cache
def _even_shares(kind: LevelKind) -> np.ndarray:
    """How far between veil and tint each step is, so that steps on middle grey are equally far apart in OKLab."""
    share = np.linspace(0, 1, 4001)[:, None]
    path = oklab((1 - TINT * share) * _light(share) * MIDDLE_GREY + TINT * share * _tint(kind))
    travelled = np.concatenate([[0.0], np.linalg.norm(np.diff(path, axis=0), axis=1).cumsum()])
    return np.interp(np.linspace(0, travelled[-1], STEPS), travelled, share[:, 0])


def _light(share: np.ndarray) -> np.ndarray:
    light: np.ndarray = VEIL + (1 - VEIL) * share
    return light


def _tint(kind: LevelKind) -> np.ndarray:
    return srgb(np.array([TINTS[kind].lightness, *TINTS[kind].plane]))


def rgb(colour: np.ndarray) -> RGB:
    """One sRGB colour in 0..1 as bytes."""
    red, green, blue = (int(value) for value in np.rint(np.clip(colour, 0, 1) * 255))
    return red, green, blue


def hex_colour(colour: np.ndarray) -> str:
    """One sRGB colour in 0..1 in CSS notation: #ffcc00."""
    return "#{:02x}{:02x}{:02x}".format(*rgb(colour))


def luminance(colour: RGB) -> float:
    """WCAG 2 relative luminance of an sRGB colour."""
    return float(linear_light(np.array(colour) / 255) @ np.array([0.2126, 0.7152, 0.0722]))


def contrast_ratio(one: RGB, other: RGB) -> float:
    """WCAG 2 contrast ratio, 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@lru_cache(maxsize=4096)
def ink(background: RGB) -> RGB:
    """Black or white, whichever has more contrast on the background: at least 4.58 to 1."""
    return max((0, 0, 0), (255, 255, 255), key=lambda colour: contrast_ratio(colour, background))

"""Scores as colours: evenly spaced in OKLab (Ottosson 2020), so equal differences look equal."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

Ground = Literal["light", "dark", "photo"]
RGB = tuple[int, int, int]
LevelKind = Literal["only", "for", "against"]

STEPS = 101
# From this many scores on they belong to pixels, and this share of them is within the displayed range.
PIXELS, MOST_PIXELS = 4096, 0.99

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


def ramp(start: Shade, end: Shade, bend: Shade | None = None) -> np.ndarray:
    """STEPS colours from start to end, equal steps of lightness and of OKLab distance, curving towards bend."""
    middle = (start.plane + end.plane) / 2 if bend is None else bend.plane
    time = np.linspace(0, 1, 4001)[:, None]
    curve = (1 - time) ** 2 * start.plane + 2 * time * (1 - time) * middle + time**2 * end.plane
    travelled = np.concatenate([[0.0], np.linalg.norm(np.diff(curve, axis=0), axis=1).cumsum()])
    even = np.linspace(0, travelled[-1], STEPS)
    plane = [np.interp(even, travelled, curve[:, axis]) for axis in (0, 1)]
    return srgb(np.stack([np.linspace(start.lightness, end.lightness, STEPS), *plane], axis=1))


PAPER, NIGHT, PHOTO = Shade(0.99), Shade(0.24), Shade(0.5)

RAMPS: dict[tuple[Ground, LevelKind], np.ndarray] = {
    ("light", "only"): ramp(PAPER, Shade(0.68, 0.185, 45), bend=Shade(0.85, 0.12, 85)),
    ("light", "for"): ramp(PAPER, Shade(0.66, 0.17, 42)),
    ("light", "against"): ramp(PAPER, Shade(0.66, 0.17, 255)),
    ("dark", "only"): ramp(NIGHT, Shade(0.88, 0.16, 95), bend=Shade(0.55, 0.24, 5)),
    ("dark", "for"): ramp(NIGHT, Shade(0.7, 0.155, 48)),
    ("dark", "against"): ramp(NIGHT, Shade(0.7, 0.155, 250)),
    ("photo", "only"): ramp(PHOTO, Shade(0.89, 0.17, 98), bend=Shade(0.6, 0.3, 5)),
    ("photo", "for"): ramp(PHOTO, Shade(0.7, 0.16, 48)),
    ("photo", "against"): ramp(PHOTO, Shade(0.7, 0.16, 250)),
}


@dataclass(frozen=True)
class Scale:
    """The displayed range of scores: from 0 to the largest, or symmetric around 0 if some are negative."""

    low: float
    high: float

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
        if not self.is_diverging:
            return _at(RAMPS[ground, "only"], strength)
        rising, falling = _at(RAMPS[ground, "for"], strength), _at(RAMPS[ground, "against"], -strength)
        return np.where(np.asarray(strength)[..., None] < 0, falling, rising)


def _at(table: np.ndarray, strength: np.ndarray) -> np.ndarray:
    return np.stack([np.interp(strength, np.linspace(0, 1, STEPS), table[:, axis]) for axis in range(3)], axis=-1)


def score_scale(scores: np.ndarray) -> Scale:
    """The displayed range of these scores; for pixels, outliers are clipped to keep the others visible."""
    size = np.abs(scores)
    high = float(np.quantile(size, MOST_PIXELS) if size.size > PIXELS else 0) or float(size.max(initial=0))
    return Scale(-high if (scores < 0).any() else 0.0, high)


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

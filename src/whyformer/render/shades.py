"""Colours as CSS classes: levels in percent of the scale's end, for light and dark pages."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from whyformer.render.colour import RAMPS, RGB, STEPS, LevelKind, Scale, hex_colour, ink, rgb
from whyformer.render.heatmaps import heat_bar

BAR_STOPS = 21
BarGround = Literal["page", "photo"]


def token_shade(score: float, scale: Scale) -> str:
    """The class of a score, such as `for-73`; empty for level 0, the page's own background."""
    strength = float(scale.strength(np.array(score)))
    level = round(abs(strength) * (STEPS - 1))
    kind: LevelKind = "for" if strength > 0 else "against"
    return f"{kind}-{level}" if level else ""


def bar_shade(scale: Scale, ground: BarGround) -> str:
    """The class of a legend's bar, such as `photo-both`."""
    return f"{ground}-flat" if scale.high == 0 else f"{ground}-both" if scale.is_diverging else f"{ground}-rising"


def declarations(name: str) -> str:
    """CSS declarations of a class from `token_shade` or `bar_shade`."""
    kind, _, what = name.partition("-")
    if kind in get_args(LevelKind):
        return _level(next(known for known in get_args(LevelKind) if known == kind), int(what))
    scale = {"flat": Scale(0, 0), "rising": Scale(0, 1), "both": Scale(-1, 1)}[what]
    if kind == "photo":
        return _gradient([hex_colour(colour) for colour in heat_bar(scale, BAR_STOPS)])
    strength = np.linspace(scale.low, scale.high, BAR_STOPS)
    light, dark = (
        [hex_colour(colour) for colour in scale.colours(strength, "light")],
        [hex_colour(colour) for colour in scale.colours(strength, "dark")],
    )
    pairs = [f"light-dark({one}, {other})" for one, other in zip(light, dark, strict=True)]
    return f"{_gradient(light)} {_gradient(pairs)}"


def _level(kind: LevelKind, level: int) -> str:
    light, dark = rgb(RAMPS["light", kind][level]), rgb(RAMPS["dark", kind][level])
    return " ".join((_pair("background", light, dark), _pair("color", ink(light), ink(dark))))


def _pair(property_name: str, light: RGB, dark: RGB) -> str:
    # Browsers before 2024 ignore light-dark() and keep the plain colour.
    one, other = ("#{:02x}{:02x}{:02x}".format(*colour) for colour in (light, dark))
    return f"{property_name}: {one}; {property_name}: light-dark({one}, {other});"


def _gradient(stops: list[str]) -> str:
    return f"background: linear-gradient(90deg, {', '.join(stops)});"

"""Cues of a sound: stretches of time, and the bands of a spectrogram."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from whyformer.errors import WhyformerError, nearest
from whyformer.inputs.layouts import Frames, SoundLayout, Spectrogram
from whyformer.inputs.sound import Sound
from whyformer.surveys.cues import EDGE, Cue

QUARTERS = ("first quarter", "second quarter", "third quarter", "last quarter")
SOUND_TIMES = ("beginning", "end", "loudest part", *QUARTERS)
SOUND_BANDS = ("low band", "middle band", "high band")  # a third of the bins of a spectrogram each
SOUND_KINDS = ("time", "band")
COLUMN_ROUNDING = 1e-6  # of a column: 3 · (1 / 3) of them are all
SoundSpan = tuple[float, float]  # start and end, as shares of the duration or of the bins


@dataclass(frozen=True)
class SoundGrid:
    """Where the scored frames or cells of a sound lie.

    Attributes:
        first: Start of the first frame, in seconds.
        step: Duration of each frame, in seconds.
        seconds: Duration of the sound as the model reads it.
        loudest: Start of its loudest part, as a share of the duration.
        edges: Edges of the bands in hertz; none for frames.
    """

    first: float
    step: float
    seconds: float
    loudest: float
    edges: tuple[float, ...] = ()

    def layout(self, sound: Sound, columns: int) -> SoundLayout:
        """The layout of its scores on the sound."""
        if self.edges:
            return Spectrogram(sound, columns, self.first, self.step, self.edges)
        return Frames(sound, columns, self.first, self.step)


def sound_grid(layout: SoundLayout) -> tuple[SoundGrid, tuple[int, int]]:
    """The grid of a layout, and its bands and columns."""
    sound = layout.sound
    place = (layout.first, layout.step, sound.seconds, loudest_start(sound))
    if isinstance(layout, Spectrogram):
        return SoundGrid(*place, tuple(map(float, layout.edges))), (layout.rows, layout.columns)
    return SoundGrid(*place), (1, layout.count)


def sound_cue(name: str) -> Cue:
    """The cue that a user names by a stretch of time or a band."""
    if name not in (*SOUND_TIMES, *SOUND_BANDS):
        raise WhyformerError(f"No part of a sound is named {name!r}. {nearest(name, (*SOUND_TIMES, *SOUND_BANDS))}")
    return Cue("time" if name in SOUND_TIMES else "band", name)


def loudest_start(sound: Sound) -> float:
    """Where the tenth of a sound with the most energy starts, as a share of its duration."""
    energy = np.append(0.0, np.cumsum(sound.samples.astype(np.float64) ** 2))
    length = max(1, round(EDGE * len(sound.samples)))
    return float((energy[length:] - energy[:-length]).argmax() / len(sound.samples))


def sound_spans(loudest: float, *, has_bands: bool) -> dict[Cue, SoundSpan]:
    """The span of each cue of a sound."""
    edge, quarter, third = EDGE, 1 / 4, 1 / 3
    times = [(0.0, edge), (1 - edge, 1.0), (loudest, loudest + edge)]
    times += [(number * quarter, (number + 1) * quarter) for number in range(4)]
    spans = {Cue("time", name): span for name, span in zip(SOUND_TIMES, times, strict=True)}
    if has_bands:
        spans |= {Cue("band", name): (n * third, (n + 1) * third) for n, name in enumerate(SOUND_BANDS)}
    return spans


def sound_parts(shape: tuple[int, int], loudest: float) -> dict[Cue, np.ndarray]:
    """The places [bin, column] of each cue, in whole columns and bins; a single row has no bands."""
    parts = {}
    for cue, (start, end) in sound_spans(loudest, has_bands=shape[0] >= len(SOUND_BANDS)).items():
        axis = _axis(cue)
        first, last = (math.floor(share * shape[axis] + COLUMN_ROUNDING) for share in (start, end))
        length = max(1, last - first)
        if cue.name == "loudest part":  # as long as the beginning, whatever its start is rounded to
            length = max(1, math.floor(EDGE * shape[axis] + COLUMN_ROUNDING))
        first = min(first, shape[axis] - length)
        parts[cue] = np.zeros(shape, dtype=bool)
        parts[cue][(slice(None),) * axis + (slice(first, first + length),)] = True
    return parts


def grid_parts(grid: SoundGrid, shape: tuple[int, int]) -> Mapping[Cue, np.ndarray]:
    """The share of each frame or cell [band, column] that belongs to each cue."""
    edges = (
        np.arange(shape[0] + 1) / shape[0],
        (grid.first + grid.step * np.arange(shape[1] + 1)) / grid.seconds,
    )
    parts = {}
    for cue, (start, end) in sound_spans(grid.loudest, has_bands=bool(grid.edges)).items():
        axis = _axis(cue)
        first, last = edges[axis][:-1], edges[axis][1:]
        share = np.clip(np.minimum(last, end) - np.maximum(first, start), 0, None) / (last - first)
        parts[cue] = np.broadcast_to(share[:, None] if axis == 0 else share, shape)
    return parts


def random_sound_parts(part: np.ndarray, axis: int, count: int, random: np.random.Generator) -> list[np.ndarray]:
    """Random parts of the same length elsewhere in time (axis 1), or of as many bins (axis 0).

    They do not overlap the part where the sound is long enough.
    """
    is_there: np.ndarray = np.asarray(part.any(axis=1 - axis))
    size, length, own = len(is_there), int(is_there.sum()), int(is_there.argmax())
    starts = np.arange(size - length + 1)
    apart = starts[abs(starts - own) >= length]
    chosen = random.choice(apart if len(apart) else starts[starts != own], count)
    return [np.roll(part, int(start) - own, axis) for start in chosen]


def _axis(cue: Cue) -> int:
    return 0 if cue.kind == "band" else 1

"""Draw a sound with its scores: its waveform on colours, or its spectrogram under a heatmap."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw
from rich.text import Text

from whyformer.inputs.layouts import Frames, SoundLayout, Spectrogram
from whyformer.inputs.sound import Sound
from whyformer.render.canvas import FAINT, WHITE
from whyformer.render.cells import BLOCKS, shade, style
from whyformer.render.colour import ink, rgb, score_scale
from whyformer.render.fonts import draw_text, text_width
from whyformer.render.heatmaps import heated, upsample

if TYPE_CHECKING:
    from whyformer.results.part import Part

WAVE_HEIGHT, GRID_HEIGHT, AXIS_HEIGHT, LABEL_SIZE = 150, 260, 26, 14
FREQUENCY_GUTTER = 72  # left of a spectrogram, for its frequencies
MOST_TICKS = 8
WAVE_SHADE = 0.35  # of the colour behind a wave
SPECTROGRAM_WINDOW = 0.025  # seconds per column of the drawn spectrogram
QUIETEST = 80  # decibels below the maximum


def sound_picture(part: Part, width: int) -> Image.Image:
    """Draw a sound with its scores and an axis of seconds."""
    match part.layout:
        case Frames():
            body, left = _waveform(part, part.layout, width), 0
        case Spectrogram():
            body, left = _heated_spectrogram(part, part.layout, width - FREQUENCY_GUTTER), FREQUENCY_GUTTER
        case unknown:
            raise ValueError(f"Only frames and spectrograms are sounds; this part is {unknown.summary}.")
    sheet = Image.new("RGB", (width, body.height + AXIS_HEIGHT), WHITE)
    sheet.paste(body, (left, 0))
    if isinstance(part.layout, Spectrogram):
        _draw_frequencies(sheet, part.layout, body.height)
    _draw_seconds(sheet, part.layout.sound.seconds, left, body.size)
    return sheet


def by_column(layout: SoundLayout, scores: np.ndarray, columns: int) -> np.ndarray:
    """The strongest score in each of several equal columns over the sound; 0 without a frame.

    [band, column] for a spectrogram, [column] for frames.
    """
    grid = scores.reshape(-1, layout.columns if isinstance(layout, Spectrogram) else layout.count)
    width = layout.sound.seconds / columns
    values = np.zeros((len(grid), columns))
    for column in range(columns):
        begin, end = ((time - layout.first) / layout.step for time in (column * width, (column + 1) * width))
        first, last = max(0, math.floor(begin + 1e-9)), min(grid.shape[1], math.ceil(end - 1e-9))
        if first < last:
            here = grid[:, first:last]
            values[:, column] = np.take_along_axis(here, np.abs(here).argmax(axis=1)[:, None], axis=1)[:, 0]
    return values[0] if isinstance(layout, Frames) else values


def envelope(sound: Sound, columns: int) -> np.ndarray:
    """[column, 2]: the minimum and maximum sample of each, relative to the loudest."""
    loudest = float(np.abs(sound.samples).max()) or 1.0
    edges = np.linspace(0, len(sound.samples), columns + 1).astype(int)
    parts = [sound.samples[start : max(end, start + 1)] for start, end in pairwise(edges)]
    return np.array([(part.min(), part.max()) for part in parts]) / loudest


def sound_lines(part: Part, width: int) -> list[str]:
    """The sound in characters: its loudness or its bands, with scores in shades below."""
    layout = _sound_layout(part)
    strength = score_scale(part.scores).strength(by_column(layout, part.scores, width))
    if isinstance(layout, Spectrogram):
        rows = ["".join(map(shade, row)).rstrip() for row in strength[::-1].tolist()]
        return [*rows, _seconds_line(layout, width)]
    loudness = "".join(BLOCKS[round(value * 8)] for value in np.abs(envelope(layout.sound, width)).max(axis=1).tolist())
    return [loudness.rstrip(), "".join(map(shade, strength.tolist())).rstrip(), _seconds_line(layout, width)]


def coloured_sound(part: Part, width: int) -> list[Text]:
    """The sound in characters on the colours of their scores."""
    layout, scale = _sound_layout(part), score_scale(part.scores)
    strength = scale.strength(by_column(layout, part.scores, width))
    if isinstance(layout, Spectrogram):
        grid, marks = strength[::-1], [" " * width] * layout.rows
    else:
        loudness = np.abs(envelope(layout.sound, width)).max(axis=1).tolist()
        grid, marks = strength[None], ["".join(BLOCKS[round(value * 8)] for value in loudness)]
    lines = []
    for row, characters in zip(scale.colours(grid, "dark"), marks, strict=True):
        grounds = [rgb(colour) for colour in row]
        pairs = zip(characters, grounds, strict=True)
        lines.append(Text.assemble(*((mark, style(ink(ground), ground)) for mark, ground in pairs)))
    return [*lines, Text(_seconds_line(layout, width), "dim")]


def _sound_layout(part: Part) -> SoundLayout:
    assert isinstance(part.layout, (Frames, Spectrogram))
    return part.layout


def _seconds_line(layout: SoundLayout, width: int) -> str:
    end = f"{layout.sound.seconds:.3g} s"
    return "0 s" + end.rjust(max(len(end) + 1, width - 3))


def _waveform(part: Part, layout: Frames, width: int) -> Image.Image:
    scale = score_scale(part.scores)
    colours = scale.colours(scale.strength(by_column(layout, part.scores, width)), "light")
    low, high = (WAVE_HEIGHT * (0.5 - 0.46 * ends) for ends in envelope(layout.sound, width).T)
    heights = np.arange(WAVE_HEIGHT)[:, None] + 0.5
    is_wave = (high - 0.5 <= heights) & (heights <= low + 0.5)  # at least a line, in silence
    # The wave is a darker shade of the colour of its score.
    painted = np.where(is_wave[..., None], WAVE_SHADE * colours, colours)
    return Image.fromarray(np.rint(np.clip(painted, 0, 1) * 255).astype(np.uint8))


def _heated_spectrogram(part: Part, layout: Spectrogram, width: int) -> Image.Image:
    """Draw the spectrogram in grey, lowest frequency at the bottom, under the heatmap."""
    grey = Image.fromarray(np.rint(255 * (0.05 + 0.9 * loudness_grid(layout, width))).astype(np.uint8))
    strength = score_scale(part.scores).strength(part.scores).reshape(layout.rows, layout.columns)[::-1]
    across = width / layout.sound.seconds
    box = (layout.first * across, 0.0, (layout.first + layout.step * layout.columns) * across, float(GRID_HEIGHT))
    values, inside = upsample(strength, box, (width, GRID_HEIGHT))
    return heated(grey, np.where(inside, values, 0), np.ones_like(inside))


def loudness_grid(layout: Spectrogram, width: int) -> np.ndarray:
    """[height, width] loudness in 0..1, with equal height for every band of the layout."""
    sound = layout.sound
    window = max(16, round(SPECTROGRAM_WINDOW * sound.rate))
    samples = np.pad(sound.samples, (window // 2, window))
    starts = np.linspace(0, len(sound.samples), width, endpoint=False).astype(int)
    pieces = samples[starts[:, None] + np.arange(window)] * np.hanning(window)
    power = np.abs(np.fft.rfft(pieces, axis=1)) ** 2
    places = np.interp(np.linspace(layout.rows, 0, GRID_HEIGHT), np.arange(layout.rows + 1), layout.edges)
    bins = np.clip(places * window / sound.rate, 0, power.shape[1] - 1)
    levels = 10 * np.log10(np.maximum(power, 1e-12))
    low = bins.astype(int)
    high = np.minimum(low + 1, power.shape[1] - 1)
    grid = levels[:, low] * (1 - (bins - low)) + levels[:, high] * (bins - low)
    shares: np.ndarray = np.clip((grid.T - grid.max()) / QUIETEST + 1, 0, 1)
    return shares


def _draw_seconds(sheet: Image.Image, seconds: float, left: int, size: tuple[int, int]) -> None:
    pen, (width, height) = ImageDraw.Draw(sheet), size
    step = tick_step(seconds)
    for number in range(math.floor(seconds / step + 1e-9) + 1):
        place = left + round(number * step / seconds * (width - 1))
        pen.line((place, height, place, height + 5), fill=FAINT)
        text = f"{number * step:g} s"
        start = min(max(left, place - text_width(text, LABEL_SIZE) / 2), left + width - text_width(text, LABEL_SIZE))
        draw_text(sheet, (start, height + 15), text, LABEL_SIZE, FAINT, bold=False)


def _draw_frequencies(sheet: Image.Image, layout: Spectrogram, height: int) -> None:
    """Label the lowest, the highest and some intermediate frequencies."""
    rows = sorted({round(place) for place in np.linspace(0, layout.rows, 5)})
    for row in rows:
        text = f"{layout.edges[row]:.0f} Hz"
        middle = min(max(LABEL_SIZE / 2, height * (1 - row / layout.rows)), height - LABEL_SIZE / 2)
        draw_text(
            sheet, (FREQUENCY_GUTTER - 8 - text_width(text, LABEL_SIZE), middle), text, LABEL_SIZE, FAINT, bold=False
        )


def tick_step(seconds: float) -> float:
    """Tick spacing of an axis of this many seconds: 1, 2 or 5 times a power of ten."""
    least = seconds / MOST_TICKS
    power = 10.0 ** math.floor(math.log10(least))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least - 1e-12)

"""Sounds as they are drawn: on an axis of seconds, in pictures, pages and terminals."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from tiny_sounds import tone
from whyformer import Explanation, Part
from whyformer.inputs.layouts import Frames, Spectrogram
from whyformer.modalities.sound_picture import (
    AXIS_HEIGHT,
    FREQUENCY_GUTTER,
    GRID_HEIGHT,
    WAVE_HEIGHT,
    by_column,
    envelope,
    loudness_grid,
    sound_picture,
    tick_step,
)
from whyformer.render import html, terminal
from whyformer.render.colour import score_scale

SOUND = tone(1.0, loud=(0.5, 0.75), pitch=1000.0)


def frames(scores):
    return Part(Frames(SOUND, len(scores), 0.0, 1.0 / len(scores)), np.array(scores, np.float32))


def bands(scores):
    grid = np.array(scores, np.float32)
    edges = tuple(np.linspace(0, 8000, len(grid) + 1).tolist())
    return Part(Spectrogram(SOUND, grid.shape[1], 0.0, 1.0 / grid.shape[1], edges), grid.reshape(-1))


def explanation(part):
    return Explanation({"audio": part}, "bell", 0.5, "rollout", "ears")


def test_a_frame_is_drawn_over_its_own_time():
    part = frames([0.0, 0.0, 1.0, 0.0])
    picture = np.asarray(sound_picture(part, 400))
    assert picture.shape == (WAVE_HEIGHT + AXIS_HEIGHT, 400, 3)
    hot = score_scale(part.scores).colours(np.array(1.0), "light")
    top = picture[1].astype(float) / 255  # above the wave
    near = np.abs(top - hot).max(axis=1) < 0.01
    assert near[205:295].all()
    assert not near[:195].any()
    assert not near[305:].any()


def test_columns_take_the_strongest_score_of_their_time():
    layout = frames([1.0, -3.0, 2.0, 0.5]).layout
    scores = np.array([1.0, -3.0, 2.0, 0.5])
    assert by_column(layout, scores, 2).tolist() == [-3.0, 2.0]
    assert by_column(layout, scores, 8).tolist() == [1, 1, -3, -3, 2, 2, 0.5, 0.5]
    shifted = Frames(SOUND, 2, 0.25, 0.25)
    assert by_column(shifted, np.array([1.0, 2.0]), 4).tolist() == [0, 1, 2, 0]


def test_the_wave_is_as_high_as_the_sound_is_loud():
    ends = envelope(SOUND, 8)
    assert np.abs(ends[:4]).max() == 0
    assert np.abs(ends).max() == 1
    assert np.abs(ends[6:]).max() == 0


def test_a_spectrogram_shows_the_tone_where_and_when_it_is_heard():
    grid = loudness_grid(bands(np.zeros((8, 4))).layout, 100)
    assert grid.shape == (GRID_HEIGHT, 100)
    row, column = np.unravel_index(grid.argmax(), grid.shape)
    assert abs((1 - row / GRID_HEIGHT) * 8000 - 1000) < 120
    assert 48 <= column <= 76
    part = bands([[0, 0, 0, 0], [1, 0, 0, 0]])  # the upper band, at first
    picture = np.asarray(sound_picture(part, FREQUENCY_GUTTER + 200)).astype(int)[:GRID_HEIGHT, FREQUENCY_GUTTER:]
    coloured = (picture.max(axis=2) - picture.min(axis=2)) > 40
    assert coloured[20, :40].all()
    assert not coloured[-20:].any()
    assert not coloured[:, 130:].any()


@pytest.mark.parametrize(("seconds", "step"), [(1.1, 0.2), (4.0, 0.5), (10.24, 2.0), (30.0, 5.0), (0.05, 0.01)])
def test_an_axis_has_a_few_round_marks(seconds, step):
    assert tick_step(seconds) == pytest.approx(step)


def test_a_terminal_shows_loudness_scores_and_the_strongest_moments():
    text = terminal.plain_explanation(explanation(frames([0.0, 0.0, 1.0, 0.0])))
    title, loudness, shades, axis, key, strongest, *_ = text.split("\n")
    assert title == "bell (0.50) by rollout on ears"
    assert loudness.index("▇" if "▇" in loudness else "█") == pytest.approx(24, abs=1)
    assert shades == " " * 24 + "█" * 12
    assert axis == "0 s" + "1 s".rjust(45)
    assert key == "0 · ░▒▓█ 0.75"
    assert strongest == "         1  0.50–0.75 s"
    rows = terminal.plain_explanation(explanation(bands([[0, 0], [1, 0]]))).split("\n")
    assert rows[1] == "█" * 24
    assert rows[2] == ""


def test_a_coloured_terminal_shows_bands_and_waves():
    for part, lines in ((frames([0.0, 1.0]), 1), (bands([[0, 0], [1, 0]]), 2)):
        console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=100)
        text = terminal.coloured_explanation(explanation(part), console).split("\n")
        assert "scores from 0 to 1" in text[-1]
        assert len(text) == 1 + lines + 1 + part.layout.size + 1


def test_a_page_shows_a_sound_across_it_once():
    page = html.html_page([explanation(frames([0.0, 1.0]))])
    assert page.count("<img") == 1
    assert 'class="pictures wide"' in page
    assert "Scores on the sound, strongest at 0.50–1.00 s" in page
    assert explanation(bands([[0, 1]])).image().width > 600
    grid = html.comparison_page([[explanation(frames([0.0, 1.0]))]], ["bell"], ["rollout"])
    assert grid.count("<img") == 1


def test_a_plot_shows_the_sound():
    import matplotlib

    matplotlib.use("agg")
    axis = explanation(frames([0.0, 1.0])).plot()
    assert axis.images[0].get_array().shape[1] == 960

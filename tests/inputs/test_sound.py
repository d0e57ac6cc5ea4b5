"""Sounds as they are read, and when their tokens are."""

from __future__ import annotations

import importlib.util
import wave

import numpy as np
import pytest
import torch

from tiny_sounds import RATE, loaded_ast, loaded_wave, loaded_whisper, tone
from whyformer import Sound, WhyformerError
from whyformer.inputs.encode import encode
from whyformer.inputs.layouts import Frames, Spectrogram
from whyformer.inputs.sound import sound_of
from whyformer.modalities.audio import mel_edges, sum_over_frames, wave_frames, wave_steps


def write_wave(path, samples, *, rate=RATE, width=2, channels=1):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        if width == 1:
            file.writeframes((np.asarray(samples) * 127 + 128).round().astype(np.uint8).tobytes())
        elif width == 3:
            numbers = (np.asarray(samples) * (2**23 - 1)).round().astype("<i4")
            file.writeframes(numbers.view(np.uint8).reshape(-1, 4)[:, :3].tobytes())
        else:
            kind = {2: "<i2", 4: "<i4"}[width]
            file.writeframes((np.asarray(samples) * (2 ** (8 * width - 1) - 1)).round().astype(kind).tobytes())
    return path


@pytest.fixture
def without(monkeypatch):
    """As if some libraries were not installed."""
    real = importlib.util.find_spec

    def hide(*names):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *rest: None if name in names else real(name, *rest)
        )

    return hide


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("reader", ["soundfile", "wave"])
def test_a_wav_file_is_read_as_its_samples(reader, width, tmp_path, without):
    if reader == "wave":
        without("soundfile")
    samples = np.array([0.0, 0.5, -0.5, 0.25, -1.0 + 2**-6])
    sound = sound_of(write_wave(tmp_path / "beep.wav", samples, width=width), RATE)
    assert sound.rate == RATE
    assert np.abs(sound.samples - samples).max() < 2.0 ** -(8 * width - 2) + 1e-6


def test_two_channels_become_their_mean(tmp_path):
    stereo = np.array([[0.5, 0.1], [0.25, -0.25], [0.0, 0.5]])
    sound = sound_of(str(write_wave(tmp_path / "stereo.wav", stereo.reshape(-1), channels=2)), RATE)
    assert np.allclose(sound.samples, [0.3, 0.0, 0.25], atol=1e-4)
    assert np.allclose(Sound(stereo, RATE).samples, [0.3, 0.0, 0.25])
    assert np.allclose(Sound(stereo.T, RATE).samples, [0.3, 0.0, 0.25])


def test_an_array_is_a_sound_with_its_rate():
    samples = np.linspace(-0.5, 0.5, 100, dtype=np.float32)
    expected = Sound(samples, RATE)
    for example in ((samples, RATE), [samples, np.int64(RATE)], {"array": samples, "sampling_rate": RATE}, expected):
        assert sound_of(example, RATE) == expected
    assert sound_of((torch.from_numpy(samples), RATE), RATE) == expected
    whole = (samples * 2**15).astype(np.int16)
    assert np.allclose(sound_of((whole, RATE), RATE).samples, samples, atol=1e-4)


def test_another_rate_is_brought_to_the_models_own():
    times = np.arange(8000) / 8000
    sound = sound_of((np.sin(2 * np.pi * 200 * times), 8000), RATE)
    assert sound.rate == RATE
    assert sound.seconds == 1.0
    expected = np.sin(2 * np.pi * 200 * np.arange(16000) / 16000)
    assert np.abs(sound.samples - expected)[200:-200].max() < 0.01


def test_what_is_no_sound_is_refused(tmp_path, without):
    (tmp_path / "notes.wav").write_text("no sound")
    cases = {
        "The sampling rate of the array is missing: give \\(array, rate\\), such as \\(array, 16000\\)": np.zeros(10),
        "A sound is a file, \\(array, rate\\) or a whyformer.Sound, not an int": 3,
        "No file 'nowhere.wav'": "nowhere.wav",
        "notes.wav' is not a sound that can be read": tmp_path / "notes.wav",
        "The sound is empty": (np.zeros(0), RATE),
        "not finite": (np.array([0.0, np.nan]), RATE),
        "a whole number of samples a second, not 0": (np.zeros(3), 0),
        "not complex128 of shape \\(3,\\)": (np.zeros(3, complex), RATE),
    }
    for reason, example in cases.items():
        with pytest.raises(WhyformerError, match=reason):
            sound_of(example, RATE)
    without("soundfile", "scipy")
    with pytest.raises(WhyformerError, match=r"not a plain .wav file .* installs soundfile"):
        sound_of(tmp_path / "notes.wav", RATE)
    with pytest.raises(WhyformerError, match="The sound has 8000 samples a second, the model needs 16000"):
        sound_of((np.zeros(100), 8000), RATE)


def test_a_frame_of_wav2vec2_hears_400_samples_and_the_next_begins_320_later():
    model = loaded_wave().model
    assert wave_frames(model) == (400, 320)  # 1 + 79·1 + 16·20, and 20·16
    first, step = wave_steps(model, samples=RATE, count=49, rate=RATE)
    assert (first, step) == (40 / RATE, 0.02)
    layout = Frames(tone(1.0), 49, first, step)
    assert layout.spans[0] == pytest.approx((0.0025, 0.0225))
    assert layout.spans[48] == pytest.approx((0.9625, 0.9825))
    assert layout.tokens[1] == "0.02–0.04 s"
    assert layout.summary == "49 frames of 20 ms"


def test_scores_of_samples_are_summed_by_the_frame_they_lie_in():
    scores = torch.zeros(1, RATE)
    scores[0, [0, 39, 40, 359]] = torch.tensor([1.0, 2.0, 4.0, 8.0])  # before the first frame, and in it
    scores[0, [360, 15999]] = torch.tensor([16.0, 32.0])  # in the second, and after the last
    by_frame = sum_over_frames(scores, loaded_wave().model, 49)
    assert by_frame[0, 0] == 15
    assert by_frame[0, 1] == 16
    assert by_frame[0, 48] == 32
    assert by_frame.sum() == scores.sum()


def test_bands_of_a_spectrogram_lie_evenly_in_mel():
    edges = mel_edges(16, 8000.0, np.array([-1.0, 7.5, 16.0]))
    assert edges[0] == pytest.approx(20)
    assert edges[2] == pytest.approx(8000)
    mel = [1127 * np.log1p(edge / 700) for edge in edges]
    assert mel[1] == pytest.approx((mel[0] + mel[2]) / 2)
    layout = Spectrogram(tone(1.0), columns=2, first=0.0, step=0.5, edges=(100.0, 200.0, 400.0, 800.0))
    assert (layout.rows, layout.size) == (3, 6)
    assert layout.tokens[3] == "0.50–1.00 s, 200–400 Hz"


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (lambda: Frames(tone(1.0), 0, 0.0, 0.02), "not 0 of 0.02 s"),
        (lambda: Frames(tone(1.0), 3, 0.0, 0.0), "of a positive duration, not 3 of 0.0 s"),
        (lambda: Spectrogram(tone(1.0), 2, 0.0, 0.1, (100.0,)), "ascending edges in hertz"),
        (lambda: Spectrogram(tone(1.0), 2, 0.0, 0.1, (100.0, 50.0)), "ascending edges in hertz"),
    ],
)
def test_frames_that_cannot_be_are_refused(layout, reason):
    with pytest.raises(WhyformerError, match=reason):
        layout()


def test_a_sound_that_is_too_long_or_too_short_is_refused_and_cut_off_if_asked():
    with pytest.raises(WhyformerError, match=r"The sound lasts 2.5 s, and whisper takes 2 s at once: cut it, or pass"):
        encode(loaded_whisper(), [tone(2.5)])
    (encoded,) = encode(loaded_whisper(), [tone(2.5)], truncate=True)
    assert encoded.parts["audio"].is_truncated
    assert encoded.parts["audio"].sound.seconds == 2.0
    # AST's extractor takes 120 columns of 10 ms, and the last one hears 25 ms: 1.215 s.
    with pytest.raises(WhyformerError, match=r"ast takes 1.22 s at once"):
        encode(loaded_ast(), [tone(1.3)])
    with pytest.raises(WhyformerError, match=r"The sound lasts 0.02 s, and wav2vec2 needs at least 0.025 s"):
        encode(loaded_wave(), [tone(0.02)])
    with pytest.raises(WhyformerError, match="wav2vec2 takes no text with a sound: leave 'so far' out"):
        encode(loaded_wave(), [(tone(1.0), "so far")])

"""Encode sounds, and locate their tokens in time: by the strides of the model's convolutions or its spectrogram."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.errors import WhyformerError
from whyformer.inputs.layouts import Frames, SoundLayout, Spectrogram
from whyformer.inputs.sound import Sound, sound_of
from whyformer.models.input_tensors import SOUND_INPUTS
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import config_of, spectrum_grid, wave_frames

SPECTRUM_WINDOW, SPECTRUM_STEP = 0.025, 0.01  # seconds; window and hop of AST's and Whisper's extractors
LOWEST = 20.0  # hertz; lower edge of AST's mel filters


@dataclass(frozen=True, eq=False)
class AudioClip:
    """A sound at the model's rate, and the hop between columns of its spectrogram in seconds."""

    sound: Sound
    hop: float = SPECTRUM_STEP
    is_truncated: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Says whether the sound was truncated."""
        note = "The sound is longer than the model takes: only its beginning was explained, as requested."
        return (note,) if self.is_truncated else ()


def audio_clip_of(example: Any, loaded_model: LoadedModel, *, truncate: bool) -> AudioClip:
    """Resample a sound to the model's rate; raise if it is too long, unless `truncate` is set."""
    extractor = loaded_model.feature_extractor
    rate = extractor.sampling_rate
    sound = sound_of(example, rate)
    least, most = _limits(loaded_model)
    if len(sound.samples) < least:
        raise WhyformerError(
            f"The sound lasts {sound.seconds:.3g} s, and {loaded_model.name} needs at least {least / rate:.3g} s."
        )
    is_long = most is not None and len(sound.samples) > most
    if is_long and most is not None:
        if not truncate:
            raise WhyformerError(
                f"The sound lasts {sound.seconds:.3g} s, and {loaded_model.name} takes {most / rate:.3g} s at once: "
                "cut it, or pass truncate=True to explain its beginning."
            )
        sound = Sound(sound.samples[:most], rate)
    return AudioClip(sound, getattr(extractor, "hop_length", SPECTRUM_STEP * rate) / rate, is_long)


def _limits(loaded_model: LoadedModel) -> tuple[int, int | None]:
    """The minimum and, if there is a limit, the maximum number of samples."""
    extractor = loaded_model.feature_extractor
    window = math.ceil(SPECTRUM_WINDOW * extractor.sampling_rate)
    if hasattr(extractor, "n_samples"):  # Whisper
        return 1, extractor.n_samples
    if hasattr(extractor, "num_mel_bins") and hasattr(extractor, "max_length"):  # AST
        hops = (extractor.max_length - 1) * SPECTRUM_STEP * extractor.sampling_rate
        return window, int(window + hops)
    return wave_frames(loaded_model.model)[0], None


def audio_inputs(sounds: Sequence[Sound], loaded_model: LoadedModel) -> Inputs:
    """Run the feature extractor on sounds, which must be equally long unless it pads them itself."""
    samples = [sound.samples for sound in sounds]
    batch = loaded_model.feature_extractor(samples, sampling_rate=sounds[0].rate, return_tensors="pt")
    return {name: batch[name] for name in (*SOUND_INPUTS, "attention_mask") if name in batch}


def audio_layout(model: nn.Module, inputs: Inputs, clip: AudioClip, count: int) -> tuple[SoundLayout, Tensor]:
    """The layout of a stream of `count` tokens in time, and the positions of those that are not padding."""
    values = inputs.get("input_values")
    if not isinstance(values, Tensor):
        step = clip.hop * round(inputs["input_features"].shape[-1] / count)
        return _frames(clip.sound, count, -step / 2, step)  # a token covers both sides of its time
    if values.dim() == 2:
        first, step = wave_steps(model, values.shape[1], count, clip.sound.rate)
        return _frames(clip.sound, count, first, step)
    return _spectrogram(model, values, clip, count)


def wave_steps(model: nn.Module, samples: int, count: int, rate: int) -> tuple[float, float]:
    """Start of the first frame of samples and duration of each, in seconds, centred on its receptive field."""
    window, stride = wave_frames(model)
    pooled = max(1, round(((samples - window) // stride + 1) / count))  # SEW pools frames before it attends
    return (window - stride) / 2 / rate, stride * pooled / rate


def sum_over_frames(scores: Tensor, model: nn.Module, count: int) -> Tensor:
    """Sum scores of samples [example, sample] over each frame."""
    first, step = wave_steps(model, scores.shape[1], count, rate=1)
    frames = ((torch.arange(scores.shape[1], device=scores.device) + 0.5 - first) / step).floor().long()
    return scores.new_zeros(len(scores), count).index_add_(1, frames.clamp(0, count - 1), scores)


def _frames(sound: Sound, count: int, first: float, step: float) -> tuple[Frames, Tensor]:
    real = _columns_within(sound, count, first, step)
    return Frames(sound, real, first, step), torch.arange(real)


def _spectrogram(model: nn.Module, values: Tensor, clip: AudioClip, count: int) -> tuple[Spectrogram, Tensor]:
    """A cell for each patch, or for each value if there are as many tokens as values; lowest band first."""
    times, bins = values.shape[1:]
    config, is_raw = config_of(model), count == times * bins
    size, across, up = (1, 1, 1) if is_raw else (config.patch_size, config.time_stride, config.frequency_stride)
    rows, columns = (bins, times) if is_raw else spectrum_grid(model, times, bins)
    middle = (size - 1) / 2 * clip.hop + SPECTRUM_WINDOW / 2
    step = across * clip.hop
    edges = mel_edges(bins, clip.sound.rate / 2, np.arange(rows + 1) * up + (size - 1) / 2 - up / 2)
    real = _columns_within(clip.sound, columns, middle - step / 2, step)
    cells = torch.arange(rows * columns)
    grid = cells.reshape(columns, rows).T if is_raw else cells.reshape(rows, columns) + count - rows * columns
    return Spectrogram(clip.sound, real, middle - step / 2, step, edges), grid[:, :real].flatten()


def _columns_within(sound: Sound, count: int, first: float, step: float) -> int:
    """How many steps begin before the sound ends; the rest is padding."""
    return max(1, min(count, math.ceil((sound.seconds - first) / step - 1e-6)))


def mel_edges(bins: int, highest: float, places: np.ndarray) -> tuple[float, ...]:
    """Convert positions on a scale of `bins` mel bins to hertz; 0 is the centre of the first bin."""
    low, high = (1127 * math.log(1 + frequency / 700) for frequency in (LOWEST, highest))
    mels = low + (places + 1) * (high - low) / (bins + 1)
    return tuple((700 * np.expm1(mels / 1127)).tolist())

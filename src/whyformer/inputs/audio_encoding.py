"""When the tokens of a sound are: by the steps of a model's own convolutions, or of the spectrogram it is given."""

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

SPECTRUM_WINDOW, SPECTRUM_STEP = 0.025, 0.01  # seconds; what AST's and Whisper's extractors hear at once, and how often
LOWEST = 20.0  # hertz, from which on AST's extractor listens


@dataclass(frozen=True, eq=False)
class AudioClip:
    """A sound as the model hears it, and how many seconds lie between two columns of its spectrogram."""

    sound: Sound
    hop: float = SPECTRUM_STEP
    is_truncated: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """That the sound was cut, where it was."""
        note = "The sound is longer than the model hears at once: only its beginning was explained, as asked."
        return (note,) if self.is_truncated else ()


def audio_clip_of(example: Any, loaded_model: LoadedModel, *, truncate: bool) -> AudioClip:
    """A sound at the model's rate; one that is longer than it hears is refused, or cut off if asked."""
    extractor = loaded_model.feature_extractor
    rate = extractor.sampling_rate
    sound = sound_of(example, rate)
    least, most = _limits(loaded_model)
    if len(sound.samples) < least:
        raise WhyformerError(
            f"The sound lasts {sound.seconds:.3g} s, and {loaded_model.name} hears no less than {least / rate:.3g} s."
        )
    is_long = most is not None and len(sound.samples) > most
    if is_long and most is not None:
        if not truncate:
            raise WhyformerError(
                f"The sound lasts {sound.seconds:.3g} s, and {loaded_model.name} hears {most / rate:.3g} s at once: "
                "cut it, or say truncate=True to have its beginning explained."
            )
        sound = Sound(sound.samples[:most], rate)
    return AudioClip(sound, getattr(extractor, "hop_length", SPECTRUM_STEP * rate) / rate, is_long)


def _limits(loaded_model: LoadedModel) -> tuple[int, int | None]:
    """How many samples the model hears at least and, if there is a limit, at most."""
    extractor = loaded_model.feature_extractor
    window = math.ceil(SPECTRUM_WINDOW * extractor.sampling_rate)
    if hasattr(extractor, "n_samples"):  # Whisper
        return 1, extractor.n_samples
    if hasattr(extractor, "num_mel_bins") and hasattr(extractor, "max_length"):  # AST
        hops = (extractor.max_length - 1) * SPECTRUM_STEP * extractor.sampling_rate
        return window, int(window + hops)
    return wave_frames(loaded_model.model)[0], None


def audio_inputs(sounds: Sequence[Sound], loaded_model: LoadedModel) -> Inputs:
    """What the feature extractor makes of sounds, which are equally long where it does not fill them up itself."""
    samples = [sound.samples for sound in sounds]
    batch = loaded_model.feature_extractor(samples, sampling_rate=sounds[0].rate, return_tensors="pt")
    return {name: batch[name] for name in (*SOUND_INPUTS, "attention_mask") if name in batch}


def audio_layout(model: nn.Module, inputs: Inputs, clip: AudioClip, count: int) -> tuple[SoundLayout, Tensor]:
    """When the tokens of a stream of so many are, and which of them, without those that are padding."""
    values = inputs.get("input_values")
    if not isinstance(values, Tensor):
        step = clip.hop * round(inputs["input_features"].shape[-1] / count)
        return _frames(clip.sound, count, -step / 2, step)  # each is heard on both sides of its moment
    if values.dim() == 2:
        first, step = wave_steps(model, values.shape[1], count, clip.sound.rate)
        return _frames(clip.sound, count, first, step)
    return _spectrogram(model, values, clip, count)


def wave_steps(model: nn.Module, samples: int, count: int, rate: int) -> tuple[float, float]:
    """When the first frame of samples begins, and how long each lasts: around the middle of what it hears."""
    window, stride = wave_frames(model)
    pooled = max(1, round(((samples - window) // stride + 1) / count))  # SEW pools frames before it attends
    return (window - stride) / 2 / rate, stride * pooled / rate


def sum_over_frames(scores: Tensor, model: nn.Module, count: int) -> Tensor:
    """Scores of samples [example, sample] summed frame by frame."""
    first, step = wave_steps(model, scores.shape[1], count, rate=1)
    frames = ((torch.arange(scores.shape[1], device=scores.device) + 0.5 - first) / step).floor().long()
    return scores.new_zeros(len(scores), count).index_add_(1, frames.clamp(0, count - 1), scores)


def _frames(sound: Sound, count: int, first: float, step: float) -> tuple[Frames, Tensor]:
    real = _columns_within(sound, count, first, step)
    return Frames(sound, real, first, step), torch.arange(real)


def _spectrogram(model: nn.Module, values: Tensor, clip: AudioClip, count: int) -> tuple[Spectrogram, Tensor]:
    """A cell for each patch, or where there are as many tokens as numbers for each of those; the lowest band first."""
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
    """How many steps begin before the sound ends; what follows it is padding."""
    return max(1, min(count, math.ceil((sound.seconds - first) / step - 1e-6)))


def mel_edges(bins: int, highest: float, places: np.ndarray) -> tuple[float, ...]:
    """Frequencies at places on a scale of so many mel bins, in hertz: 0 is the middle of the first."""
    low, high = (1127 * math.log(1 + frequency / 700) for frequency in (LOWEST, highest))
    mels = low + (places + 1) * (high - low) / (bins + 1)
    return tuple((700 * np.expm1(mels / 1127)).tolist())

"""Sounds without some of their parts, for a model or a function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whyformer.api.predictions import FunctionScores
from whyformer.axes import Inputs, LabelValues, UnitMasks
from whyformer.batching import consecutive
from whyformer.errors import UnsupportedModel
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import encode
from whyformer.inputs.sound import Sound
from whyformer.modalities.audio import SPECTRUM_WINDOW, AudioClip
from whyformer.models.input_tensors import SOUND_INPUTS
from whyformer.models.loading import LoadedModel
from whyformer.tracing.question import repeat_inputs

SOUNDS_AT_ONCE = 8  # in a model


@dataclass(frozen=True, eq=False)
class RemovableSound:
    """A sound whose places can be removed: samples, or the values of a spectrogram.

    Attributes:
        sound: The sound as the model reads it.
        shape: (1, samples), or (bins, columns) of a spectrogram, lowest bin first, without padding.
        ask: The answers [subset label] with only the kept places [subset, bin, column].
    """

    sound: Sound
    shape: tuple[int, int]
    ask: Callable[[UnitMasks], Any]


def sound_for_function(function: FunctionScores, sound: Sound) -> RemovableSound:
    """A sound for a function: removed samples are silent."""

    def without(kept: np.ndarray) -> Sound:
        return Sound(np.where(kept[0], sound.samples, np.float32(0)), sound.rate)

    return RemovableSound(sound, (1, len(sound.samples)), lambda kept: function.answers(kept, without))


def sound_for_model(loaded_model: LoadedModel, sound: Sound) -> RemovableSound:
    """A sound as a model reads it: removed samples are silent, removed values have the mean of the spectrogram."""
    (encoded,) = encode(loaded_model, [sound], truncate=True)
    inputs, clip = model_inputs(loaded_model, [encoded]), encoded.parts["audio"]
    name = next(name for name in SOUND_INPUTS if name in inputs)
    values = inputs[name]
    if values.dim() not in (2, 3):
        raise UnsupportedModel(f"{loaded_model.name} takes sounds with {values.dim()} axes: no parts can be removed.")
    is_by_time = name == "input_values" and values.dim() == 3  # [example, column, bin], as of AST
    grid = values if values.dim() == 2 else (values[0].T if is_by_time else values[0])
    columns = grid.shape[1] if values.dim() == 2 else min(grid.shape[1], _columns(clip, is_by_time=is_by_time))
    fill = grid.new_zeros(()) if values.dim() == 2 else grid[:, :columns].mean()

    def copies(kept: Tensor) -> Inputs:
        own = torch.ones(len(kept), *grid.shape, dtype=torch.bool, device=grid.device)
        own[:, :, :columns] = kept.to(grid.device)
        filled = torch.where(own, grid, fill)
        shaped = filled[:, 0] if values.dim() == 2 else (filled.transpose(1, 2) if is_by_time else filled)
        return repeat_inputs(inputs, len(kept), 1) | {name: shaped}

    def ask(kept: UnitMasks) -> LabelValues:
        rows = []
        for batch in consecutive(len(kept), SOUNDS_AT_ONCE):
            with torch.no_grad():
                output = loaded_model.model(**copies(torch.from_numpy(kept[list(batch)])))
            rows.append(output.logits.double().cpu().numpy())
        return np.concatenate(rows)

    return RemovableSound(clip.sound, (grid.shape[0], columns), ask)


def _columns(clip: AudioClip, *, is_by_time: bool) -> int:
    """How many columns of a spectrogram are not padding: AST's windows lie within the sound, Whisper's around it."""
    if is_by_time:
        return max(1, math.floor((clip.sound.seconds - SPECTRUM_WINDOW) / clip.hop + 1e-6) + 1)
    return max(1, math.ceil(clip.sound.seconds / clip.hop - 1e-6))

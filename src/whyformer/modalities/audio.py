"""Sounds, for classification or transcription."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.errors import WhyformerError
from whyformer.inputs.audio_encoding import AudioClip, audio_clip_of, audio_inputs, audio_layout
from whyformer.inputs.chunks import decoder_beginning
from whyformer.inputs.modality import ForwardBatch, Modality, PartPlace, ScoredLayout
from whyformer.inputs.sound import Sound, is_sound
from whyformer.modalities.written import token_ids, written_of
from whyformer.models.input_tensors import SOUND_INPUTS
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import device_of, dtype_of, sound_prefix


def encode(example: Any, loaded_model: LoadedModel, *, truncate: bool, room: int) -> Iterator[dict[str, Any]]:
    """Encode a sound and, for generative models, the transcript so far."""
    sound, so_far = (example, "") if is_sound(example) else example
    clip = audio_clip_of(sound, loaded_model, truncate=truncate)
    if loaded_model.task.writes:
        beginning = transcript_beginning(loaded_model, clip.sound)
        yield {"written": written_of(token_ids(so_far, loaded_model), loaded_model, beginning), "audio": clip}
        return
    if so_far:
        raise WhyformerError(f"{loaded_model.name} takes no text with a sound: leave {so_far!r:.40} out.")
    yield {"audio": clip}


def transcript_beginning(loaded_model: LoadedModel, sound: Sound) -> list[int]:
    """The tokens before a transcript: a start token and, for Whisper, the language, the task, and no timestamps."""
    model, extractor = cast(Any, loaded_model.model), loaded_model.feature_extractor
    settings, beginning = model.generation_config, decoder_beginning(loaded_model)
    if getattr(settings, "lang_to_id", None):
        language = getattr(settings, "language", None)
        if language is None:
            features = extractor(sound.samples, sampling_rate=sound.rate, return_tensors="pt")["input_features"]
            language = int(model.detect_language(features.to(device_of(model), dtype_of(model)))[0])
        else:
            language = settings.lang_to_id[language if language in settings.lang_to_id else f"<|{language}|>"]
        task = settings.task_to_id[getattr(settings, "task", None) or "transcribe"]
        beginning = [*beginning, language, task]
    silent = getattr(settings, "no_timestamps_token_id", None)
    return beginning if silent is None else [*beginning, silent]


def collate(loaded_model: LoadedModel, clips: Sequence[AudioClip]) -> Inputs:
    """Run the feature extractor on the sounds."""
    return audio_inputs([clip.sound for clip in clips], loaded_model)


def place(model: nn.Module, inputs: Inputs, lengths: Mapping[str, int]) -> PartPlace | None:
    """Locate the sound's tokens, after its leading ones."""
    stream = next((stream for stream in ("spectrogram", "frames", "audio") if stream in lengths), None)
    if stream is None or not any(name in inputs for name in SOUND_INPUTS):
        return None
    first = sound_prefix(model, inputs, lengths[stream])
    return PartPlace("sound", stream, first, lengths[stream] - first)


def lay_out(clip: AudioClip, row: int, forward: ForwardBatch, place: PartPlace, scores: Tensor) -> ScoredLayout:
    """Lay scores out on frames or cells of a spectrogram, without padding."""
    layout, positions = audio_layout(forward.model, forward.inputs, clip, place.count)
    return ScoredLayout("audio", layout, scores[place.first + positions])


def length(clip: AudioClip) -> int:
    """Number of samples: some models do not mask padding."""
    return len(clip.sound.samples)


def noise(loaded_model: LoadedModel) -> Sound:
    """Half a second of noise."""
    rate = loaded_model.feature_extractor.sampling_rate
    return Sound(np.random.default_rng(0).standard_normal(rate // 2, dtype=np.float32) * 0.1, rate)


MODALITY = Modality("audio", collate, place, lay_out, encode, length, noise)

"""Sounds, for classification or transcription: tokens are located in time by strides or by the spectrogram."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from whyformer.axes import Inputs, StreamScores
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.inputs.chunks import decoder_beginning
from whyformer.inputs.layouts import Frames, SoundLayout, Spectrogram
from whyformer.inputs.modality import FileKind, ForwardBatch, Modality, PartPlace, ScoredLayout
from whyformer.inputs.sound import SOUND_SUFFIXES, Sound, is_sound, sound_of
from whyformer.modalities.sound_layouts import FRAME_KIND, SPECTROGRAM_KIND
from whyformer.modalities.written import token_ids, written_of
from whyformer.models.input_tensors import SOUND_INPUTS
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import config_of, device_of, dtype_of

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
    """Run the feature extractor on sounds, which must be equally long unless it pads them itself."""
    samples, rate = [clip.sound.samples for clip in clips], clips[0].sound.rate
    batch = loaded_model.feature_extractor(samples, sampling_rate=rate, return_tensors="pt")
    return {name: batch[name] for name in (*SOUND_INPUTS, "attention_mask") if name in batch}


def place(model: nn.Module, inputs: Inputs, lengths: Mapping[str, int]) -> PartPlace | None:
    """Locate the sound's tokens, after its leading ones."""
    stream = next((stream for stream in ("spectrogram", "frames", "audio") if stream in lengths), None)
    if stream is None or not any(name in inputs for name in SOUND_INPUTS):
        return None
    first = _prefix(model, inputs, lengths[stream])
    return PartPlace("sound", stream, first, lengths[stream] - first)


def lay_out(clip: AudioClip, row: int, forward: ForwardBatch, place: PartPlace, scores: Tensor) -> ScoredLayout:
    """Lay scores out on frames or cells of a spectrogram, without padding."""
    layout, positions = audio_layout(forward.model, forward.inputs, clip, place.count)
    return ScoredLayout("audio", layout, scores[place.first + positions])


def pool(model: nn.Module, scores: StreamScores) -> StreamScores:
    """Sum the scores of samples over each frame: a single sample is not meaningful to a reader."""
    if "samples" not in scores or "audio" not in scores:
        return scores
    summed = sum_over_frames(scores["samples"], model, scores["audio"].shape[1])
    return {name: values for name, values in scores.items() if name != "samples"} | {"audio": summed}


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


def wave_frames(model: nn.Module) -> tuple[int, int]:
    """Receptive field and stride of a sound's tokens, in samples."""
    config = config_of(model)
    kernels, strides = getattr(config, "conv_kernel", None), getattr(config, "conv_stride", None)
    if not kernels or not strides:
        raise UnsupportedModel(
            f"{type(model).__name__} does not state how it splits a sound: set its config.conv_kernel and conv_stride."
        )
    window, step = 1, 1
    for kernel, stride in zip(kernels, strides, strict=True):
        window, step = window + (kernel - 1) * step, step * stride
    return window, step


def _spectrum_grid(model: nn.Module, times: int, bins: int) -> tuple[int, int]:
    """Rows (bands) and columns of the patches of a spectrogram."""
    config = config_of(model)
    size, across, up = config.patch_size, config.time_stride, config.frequency_stride
    return (bins - size) // up + 1, (times - size) // across + 1


def _prefix(model: nn.Module, inputs: Inputs, tokens: int) -> int:
    """Number of tokens before those of a sound: AST's class and distillation tokens."""
    values = inputs.get("input_values")
    if not isinstance(values, Tensor) or values.dim() != 3 or tokens == values[0].numel():
        return 0
    bands, columns = _spectrum_grid(model, *values.shape[1:])
    return tokens - bands * columns


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
    rows, columns = (bins, times) if is_raw else _spectrum_grid(model, times, bins)
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


def length(clip: AudioClip) -> int:
    """Number of samples: some models do not mask padding."""
    return len(clip.sound.samples)


def noise(loaded_model: LoadedModel) -> Sound:
    """Half a second of noise."""
    rate = loaded_model.feature_extractor.sampling_rate
    return Sound(np.random.default_rng(0).standard_normal(rate // 2, dtype=np.float32) * 0.1, rate)


MODALITY = Modality(
    "audio",
    collate,
    place,
    lay_out,
    encode,
    length,
    noise,
    noun="sound",
    files=FileKind(
        SOUND_SUFFIXES, "sound", "sounds", "a sound file, and this model takes a text: choose a model for audio"
    ),
    read=partial(sound_of, rate=None),
    types=(Sound,),
    arrays=lambda sound: (sound.samples, [sound.rate]),
    is_prompt=True,
    pool=pool,
    layouts={Frames: FRAME_KIND, Spectrogram: SPECTROGRAM_KIND},
)

"""Read sounds from files or arrays, as one channel at the model's rate."""

from __future__ import annotations

import importlib.util
import wave
from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np

from whyformer.errors import WhyformerError, with_article
from whyformer.extras import extra
from whyformer.inputs.read import check_file

# Suffixes of sound files, all of which soundfile reads.
SOUND_SUFFIXES = frozenset({".aif", ".aiff", ".flac", ".mp3", ".ogg", ".opus", ".wav"})
# Full scale and silence of integer arrays.
_FULL = {"int16": (2**15, 0), "int32": (2**31, 0), "uint8": (2**7, 2**7)}


@dataclass(frozen=True)
class Sound:
    """A sound: one channel of samples, and its sampling rate.

    Args:
        samples: A float array with one value per sample, from -1 to 1 at full volume.
        rate: Samples per second.

    Raises:
        WhyformerError: If there are no samples, one is not finite, or the rate is not a positive integer.

    Example:
        >>> import numpy, whyformer
        >>> whyformer.Sound(numpy.zeros(8000), rate=16000).seconds
        0.5
    """

    samples: np.ndarray
    rate: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", _one_channel(self.samples))
        if isinstance(self.rate, bool) or not hasattr(self.rate, "__index__") or self.rate < 1:
            raise WhyformerError(f"The rate of a sound is a whole number of samples a second, not {self.rate!r}.")
        object.__setattr__(self, "rate", int(self.rate))

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return len(self.samples) / self.rate

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sound):
            return NotImplemented
        return self.rate == other.rate and np.array_equal(self.samples, other.samples)


def is_sound(example: Any) -> bool:
    """Whether the example is a sound alone, such as an array with its rate, rather than a sound with a text."""
    return not (isinstance(example, (tuple, list)) and len(example) == 2 and isinstance(example[1], str))


def sound_of(example: Any, rate: int | None) -> Sound:
    """Read a sound: a file, (array, rate), a mapping with both, or a Sound; resample it if `rate` is given."""
    if isinstance(example, Sound):
        return resampled(example, rate)
    if isinstance(example, (str, Path)):
        check_file(Path(example))
        return resampled(_read(Path(example)), rate)
    if isinstance(example, Mapping) and {"array", "sampling_rate"} <= example.keys():
        return resampled(Sound(example["array"], example["sampling_rate"]), rate)
    if isinstance(example, (tuple, list)) and len(example) == 2 and hasattr(example[1], "__index__"):
        return resampled(Sound(np.asarray(example[0]), example[1]), rate)
    if hasattr(example, "__array__"):
        raise WhyformerError(
            f"The sampling rate of the array is missing: give (array, rate), such as (array, {rate or 16_000})."
        )
    raise WhyformerError(
        f"A sound is a file, (array, rate) or a whyformer.Sound, not {with_article(type(example).__name__)}."
    )


def resampled(sound: Sound, rate: int | None) -> Sound:
    """Resample a sound to another rate, if given, by a polyphase filter."""
    if rate is None or sound.rate == rate:
        return sound
    if importlib.util.find_spec("scipy") is None:
        raise WhyformerError(
            f"The sound has {sound.rate} samples a second, the model needs {rate}: resample it, or in the checkout "
            "pip install -e '.[audio]', whose scipy does."
        )
    common = gcd(sound.rate, rate)
    samples = extra("scipy.signal", "audio").resample_poly(sound.samples, rate // common, sound.rate // common)
    return Sound(samples.astype(np.float32), rate)


def _read(path: Path) -> Sound:
    """Read a sound file by soundfile, or a plain .wav file without it."""
    if importlib.util.find_spec("soundfile") is None and path.suffix.lower() == ".wav":
        return _read_wave(path)
    soundfile = extra("soundfile", "audio")
    try:
        samples, rate = soundfile.read(str(path), dtype="float32", always_2d=True)
    except (RuntimeError, OSError) as error:  # libsndfile's own errors are RuntimeErrors
        raise WhyformerError(f"The file {str(path)!r} is not a sound that can be read: {error}") from error
    return Sound(samples, rate)


def _read_wave(path: Path) -> Sound:
    try:
        with wave.open(str(path), "rb") as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            content = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise WhyformerError(
            f"The file {str(path)!r} is not a plain .wav file ({error}): in the checkout, pip install -e '.[audio]' "
            "installs soundfile, which reads other formats."
        ) from error
    if width == 3:  # as the upper bytes of 32-bit integers
        parts = np.frombuffer(content, np.uint8).reshape(-1, 3)
        samples = np.pad(parts, ((0, 0), (1, 0))).reshape(-1).view("<i4")
    else:
        samples = np.frombuffer(content, {1: "u1", 2: "<i2", 4: "<i4"}[width])
    return Sound(samples.reshape(-1, channels), rate)


def _one_channel(samples: Any) -> np.ndarray:
    """Convert samples to float32, averaging several channels along whichever axis they are."""
    array = np.asarray(samples)
    if array.dtype.name in _FULL:
        full, silence = _FULL[array.dtype.name]
        array = (array.astype(np.float64) - silence) / full
    if array.ndim == 2:
        array = array.mean(axis=int(np.argmin(array.shape)))
    if array.ndim != 1 or array.dtype.kind != "f":
        raise WhyformerError(
            f"A sound is an array of samples, float or 16-bit, [sample] or [channel, sample], not {array.dtype} of "
            f"shape {array.shape}."
        )
    if not array.size:
        raise WhyformerError("The sound is empty: it has no sample.")
    if not np.isfinite(array).all():
        raise WhyformerError("Some samples of the sound are not finite numbers.")
    return array.astype(np.float32)

"""Speech synthesised by espeak-ng, with the time of each word from its own events.

The library calls back with the samples and an event for each phoneme and each word: a word begins at its event, and
ends with its last phoneme that is not a pause, where the next phoneme begins.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from dataclasses import dataclass
from functools import cache

import numpy as np

WORD, END, PHONEME = 1, 5, 7  # kinds of events
SYNCHRONOUS, PHONEME_EVENTS, UTF8 = 2, 1, 1
RATE_PARAMETER = 1
SAMPLES_AT_ONCE = 200  # milliseconds
PAUSES = {"", "_", "_:", "_::", "_!", "_|"}


class _Name(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),  # milliseconds
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Name),
    )


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


@dataclass(frozen=True)
class SpokenWord:
    """A word, and when it is spoken, in seconds."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Speech:
    """Samples from -1 to 1 at a rate, and the words in them."""

    samples: np.ndarray
    rate: int
    words: tuple[SpokenWord, ...]


def speak(text: str, *, voice: str = "en-us", words_a_minute: int = 150) -> Speech:
    """Synthesise a text whose words are parted by single spaces."""
    library, rate = _library()
    parts: list[np.ndarray] = []
    events: list[tuple[int, int, int, str]] = []  # kind, position in the text, milliseconds, phoneme

    def receive(samples: ctypes._Pointer[ctypes.c_short], count: int, found: ctypes._Pointer[_Event]) -> int:
        if samples and count > 0:
            parts.append(np.ctypeslib.as_array(samples, (count,)).copy())
        number = 0
        while found[number].type != 0:
            event = found[number]
            name = event.id.string.decode(errors="replace") if event.type == PHONEME else ""
            events.append((event.type, event.text_position, event.audio_position, name))
            number += 1
        return 0

    callback = _Callback(receive)
    library.espeak_SetSynthCallback(callback)
    library.espeak_SetVoiceByName(voice.encode())
    library.espeak_SetParameter(RATE_PARAMETER, words_a_minute, 0)
    encoded = text.encode() + b"\0"
    if library.espeak_Synth(encoded, len(encoded), 0, 1, 0, UTF8, None, None) != 0:
        raise RuntimeError(f"espeak-ng did not speak {text!r}.")
    library.espeak_Synchronize()
    samples = np.concatenate(parts).astype(np.float32) / 2**15
    return Speech(samples, rate, tuple(_words(text, events, len(samples) / rate)))


def _words(text: str, events: list[tuple[int, int, int, str]], seconds: float) -> list[SpokenWord]:
    """Each word from its event to the end of its last phoneme; words spoken as one, such as "on the", are one."""
    begins = [(place - 1, time) for kind, place, time, _ in events if kind == WORD]
    pauses = [time for kind, _, time, name in events if kind == PHONEME and name in PAUSES]
    ends = [*begins[1:], (len(text), round(1000 * seconds))]
    found = []
    for (place, start), (next_place, until) in zip(begins, ends, strict=True):
        quiet = [time for time in pauses if start < time < until]
        word = text[place:next_place].strip(" .,?!").lower()
        if word:  # a full stop may have an event of its own
            found.append(SpokenWord(word, start / 1000, min([until, *quiet[-1:]]) / 1000))
    return found


@cache
def _library() -> tuple[ctypes.CDLL, int]:
    name = ctypes.util.find_library("espeak-ng") or "libespeak-ng.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise RuntimeError(
            "Speech is synthesised by espeak-ng, which is not installed: apt install espeak-ng."
        ) from error
    rate = library.espeak_Initialize(SYNCHRONOUS, SAMPLES_AT_ONCE, None, PHONEME_EVENTS)
    if rate <= 0:
        raise RuntimeError("espeak-ng found no data of voices.")
    return library, rate

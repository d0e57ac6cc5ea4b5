"""Spoken sentences with known word times: made up, synthesised, and set into silence."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from math import gcd
from pathlib import Path
from random import Random

import numpy as np
from scipy.signal import resample_poly

from espeak import Speech, SpokenWord, speak

WHO = (
    "The captain|My neighbour|A young teacher|The old farmer|Our doctor|The tall waiter|Her brother|The new manager"
).split("|")
DID = "bought|sold|painted|carried|dropped|found|repaired|borrowed".split("|")
NUMBERS = dict(enumerate("zero one two three four five six seven eight nine ten eleven twelve".split()))
THINGS = "lamps|bottles|horses|letters|baskets|tables|apples|windows|guitars|blankets".split("|")
WHERE = "in London|near the river|at the station|behind the school|in the garden|on the bridge".split("|")
WHEN = "on Monday|last winter|this morning|before lunch|after the storm|in October".split("|")
RATE = 16_000  # of Whisper
LEAD, GAP, TAIL = (0.3, 3.0), (0.4, 1.5), (0.3, 2.0)  # seconds of silence: before, once between two words, after


@dataclass(frozen=True)
class Utterance:
    """A spoken sentence: samples at a rate, and when each word is said."""

    seed: int
    text: str
    samples: np.ndarray
    rate: int
    words: tuple[SpokenWord, ...]

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


def utterances(count: int, first: int = 0) -> Iterator[Utterance]:
    """Utterances of 7 or 8 words, the same for every seed."""
    for seed in range(first, first + count):
        random = Random(seed)
        number = NUMBERS[random.randint(2, 12)]
        parts = (random.choice(WHO), random.choice(DID), number, random.choice(THINGS))
        place = random.choice((WHERE, WHEN))
        text = f"{' '.join(parts)} {random.choice(place)}."
        yield in_silence(seed, text, speak(text, words_a_minute=random.randint(120, 150)), random)


def save_utterances(path: Path, found: Iterable[Utterance]) -> None:
    """Write utterances at Whisper's rate, for a machine without espeak-ng."""
    arrays: dict[str, np.ndarray] = {}
    for one in found:
        samples = resample_poly(one.samples, RATE // gcd(RATE, one.rate), one.rate // gcd(RATE, one.rate))
        words = [(word.text, word.start, word.end) for word in one.words]
        arrays[f"{one.seed}"] = (samples * 2**15).round().clip(-(2**15), 2**15 - 1).astype(np.int16)
        arrays[f"{one.seed} words"] = np.array(json.dumps([one.text, words]))
    np.savez_compressed(path, **arrays)


def read_utterances(path: Path, count: int) -> Iterator[Utterance]:
    """The first utterances that `save_utterances` wrote."""
    with np.load(path) as arrays:
        for seed in range(count):
            text, words = json.loads(str(arrays[f"{seed} words"]))
            samples = arrays[f"{seed}"].astype(np.float32) / 2**15
            yield Utterance(seed, text, samples, RATE, tuple(SpokenWord(*word) for word in words))


def in_silence(seed: int, text: str, speech: Speech, random: Random) -> Utterance:
    """The speech with silence before it, after it, and at one boundary of two words."""
    lead, gap, tail = (random.uniform(*bounds) for bounds in (LEAD, GAP, TAIL))
    place = random.randrange(1, len(speech.words))
    cut = round(speech.words[place].start * speech.rate)
    quiet = [np.zeros(round(seconds * speech.rate), dtype=np.float32) for seconds in (lead, gap, tail)]
    samples = np.concatenate([quiet[0], speech.samples[:cut], quiet[1], speech.samples[cut:], quiet[2]])
    before, between = (len(part) / speech.rate for part in quiet[:2])
    words = tuple(
        SpokenWord(word.text, word.start + shift, word.end + shift)
        for number, word in enumerate(speech.words)
        for shift in (before + (between if number >= place else 0.0),)
    )
    return Utterance(seed, text, samples, speech.rate, words)


def without(utterance: Utterance, word: SpokenWord) -> np.ndarray:
    """The samples with silence in place of a word."""
    start, end = (round(time * utterance.rate) for time in (word.start, word.end))
    samples = utterance.samples.copy()
    samples[start:end] = 0
    return samples


def matched(spoken: tuple[SpokenWord, ...], written: list[str]) -> list[tuple[int, int]]:
    """The pairs of a spoken word and the written word that says the same, in order."""
    digits = {str(number): name for number, name in NUMBERS.items()}
    plain = [word.strip(" .,?!").lower() for word in written]
    said, read = [word.text for word in spoken], [digits.get(word, word) for word in plain]
    blocks = SequenceMatcher(None, said, read, autojunk=False).get_matching_blocks()
    return [(block.a + offset, block.b + offset) for block in blocks for offset in range(block.size)]

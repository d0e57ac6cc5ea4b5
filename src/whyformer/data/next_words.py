"""Next words of replies about drawn scenes, with the exact pixels that each depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from whyformer.axes import WordTruth
from whyformer.data.examples import BACKGROUND, OBJECT, UNLABELLED, Examples
from whyformer.data.readers import reader
from whyformer.scenes import (
    COLOURS,
    PROMPTS,
    SHAPES,
    VOCABULARY,
    Dialogues,
    Scenes,
    dialogues,
    pictures,
    sample,
    texts,
)
from whyformer.scenes.world import Split

SPARE = 1.5  # oversampling of dialogues: "no" and "zero" depend on no object


@dataclass(frozen=True, eq=False)
class WrittenWord:
    """The next word of a reply about a drawn scene, and what it depends on.

    Attributes:
        name: The scene, and the word of the reply.
        image: The picture.
        kind: The key of PROMPTS.
        prompt: The kind of prompt.
        written: The reply so far.
        word: The next word.
        mask: OBJECT at the pixels that the word depends on, UNLABELLED where another object's position matters.
        truth: The prompt's whitespace-delimited words that it depends on.
    """

    name: str
    image: Image.Image
    kind: str
    prompt: str
    written: str
    word: str
    mask: np.ndarray
    truth: WordTruth


@reader("written_words")
def written_words(
    count: int, split: Split = "test", seed: int = 0, kinds: Sequence[str] = tuple(PROMPTS)
) -> Examples[WrittenWord]:
    """`count` random scenes of a split, each with a prompt and one word of the reply.

    The word is uniformly drawn from those that depend on the picture.
    """
    drawn = int(SPARE * count) + 16
    rng = torch.Generator().manual_seed(seed)
    scenes = sample(drawn, split, rng=seed)
    about = dialogues(scenes, rng, kinds=kinds)
    is_read = about.read_off.any(dim=2)
    rows = is_read.any(dim=1).nonzero()[:count, 0]
    place = torch.multinomial(is_read[rows].float(), 1, generator=rng)[:, 0]
    names = tuple(
        f"scene {seed}.{row}, word {word + 1}" for row, word in zip(rows.tolist(), place.tolist(), strict=True)
    )
    return Examples(names, partial(_written_word, names, scenes, about, rows, place))


def _written_word(
    names: Sequence[str], scenes: Scenes, about: Dialogues, rows: Tensor, places: Tensor, number: int
) -> WrittenWord:
    row, place = int(rows[number]), int(places[number])
    one = slice(row, row + 1)
    drawing, reply = pictures(scenes[one]), about.replies[one]
    kind, read_off = list(PROMPTS)[int(about.kind[row])], about.read_off[one, place]
    mask = np.full(drawing.owner.shape[1:], BACKGROUND, dtype=np.uint8)
    if kind == "beside":  # whose answer depends on the position of the object in the prompt
        mask[drawing.mask(about.things[one])[0].numpy()] = UNLABELLED
    mask[drawing.mask(read_off)[0].numpy()] = OBJECT
    return WrittenWord(
        name=names[number],
        image=Image.fromarray(drawing.pixels[0].permute(1, 2, 0).numpy()),
        kind=kind,
        prompt=texts(about.words[one], VOCABULARY)[0],
        written=texts(reply[:, :place], VOCABULARY)[0],
        word=VOCABULARY[int(reply[0, place])],
        mask=mask,
        truth=_prompt_truth(scenes, about, row, read_off[0], kind),
    )


def _prompt_truth(scenes: Scenes, about: Dialogues, row: int, read_off: Tensor, kind: str) -> WordTruth:
    """The words that matter for this word: of two named objects, those that name the one it depends on."""
    words = [(VOCABULARY[word], bool(mark)) for word, mark in zip(about.words[row], about.truth[row], strict=True)]
    names = {
        name
        for thing in read_off.nonzero()[:, 0].tolist()
        for name in (COLOURS[int(scenes.colour[row, thing])], SHAPES[int(scenes.shape[row, thing])])
    }
    matters = {"describe"} | names if kind == "pair" else None
    return np.array([mark and (matters is None or word in matters) for word, mark in words if word.isalpha()])

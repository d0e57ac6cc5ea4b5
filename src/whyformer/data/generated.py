"""Shapes World as a data set: drawn scenes with captions, questions and exact ground truth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from PIL import Image

from whyformer.axes import MaskArray, WordTruth
from whyformer.data.examples import Examples
from whyformer.data.readers import reader
from whyformer.inputs.read import Regions
from whyformer.scenes import (
    ANSWERS,
    LABELS,
    Questions,
    Scenes,
    Sentences,
    captions,
    pictures,
    questions,
    regions,
    sample,
    texts,
)
from whyformer.scenes.world import Split

DISTRACTORS = 31  # captions of other scenes to compare a caption with


@dataclass(frozen=True, eq=False)
class DrawnSentence:
    """A sentence about a scene, with the whitespace-delimited words and the things that matter."""

    text: str
    words: WordTruth
    things: np.ndarray


@dataclass(frozen=True, eq=False)
class Scene:
    """A drawn scene: its things (a label each, "" for clutter), the owner of each pixel, and its sentences."""

    name: str
    image: Image.Image
    regions: Regions
    labels: tuple[str, ...]
    owner: np.ndarray
    caption: DrawnSentence
    others: tuple[str, ...]
    question: DrawnSentence
    answer: str

    def pixels(self, things: np.ndarray) -> MaskArray:
        """The pixels of these things."""
        return np.isin(self.owner, np.flatnonzero(things))


@reader("scenes")
def scenes(count: int, split: Split = "test", seed: int = 0) -> Examples[Scene]:
    """`count` random scenes of a split, each with a caption and a question."""
    all_scenes, rng = sample(count, split, rng=seed), torch.Generator().manual_seed(seed)
    all_questions, all_captions = questions(all_scenes, rng), captions(all_scenes, rng)
    names = tuple(f"scene {seed}.{number}" for number in range(count))
    return Examples(names, partial(_scene, seed, all_scenes, all_questions, all_captions))


def _scene(seed: int, all_scenes: Scenes, all_questions: Questions, all_captions: Sentences, number: int) -> Scene:
    scene = all_scenes[number : number + 1]
    picture = pictures(scene)
    image = Image.fromarray(picture.pixels[0].permute(1, 2, 0).numpy())
    following = (torch.arange(2 * DISTRACTORS) + number) % len(all_scenes)  # some captions occur twice
    own, *others = texts(all_captions.words[following])
    return Scene(
        name=f"scene {seed}.{number}",
        image=image,
        regions=Regions(image, picture.boxes[0].numpy(), regions(picture).features[0].numpy()),
        labels=tuple(LABELS[label] if label >= 0 else "" for label in scene.label[0].tolist()),
        owner=picture.owner[0].numpy(),
        caption=_sentence(all_captions, number),
        others=tuple(dict.fromkeys(text for text in others if text != own))[:DISTRACTORS],
        question=_sentence(all_questions, number),
        answer=ANSWERS[int(all_questions.answer[number])],
    )


def _sentence(sentences: Sentences, number: int) -> DrawnSentence:
    """Punctuation belongs to the word before it."""
    words, truth = sentences.words[number], sentences.truth[number]
    is_word = words > 2  # neither padding nor a question mark nor a full stop
    return DrawnSentence(texts(words[None])[0], truth[is_word].numpy(), sentences.things[number].numpy())

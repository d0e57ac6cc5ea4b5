"""Shapes World: scenes of coloured shapes as pictures, sentences and questions, with exact ground truth.

>>> import torch
>>> from whyformer.scenes import pictures, questions, regions, sample, texts
>>> scenes = sample(100, "test", rng=0)
>>> drawing = pictures(scenes)  # pixels, owner of each pixel, boxes
>>> about = questions(scenes, torch.Generator().manual_seed(0))
>>> texts(about.words)[0]
'what column is the white square in?'
>>> texts(about.words * about.truth)[0]  # the words that the answer depends on
'column white square'
>>> drawing.mask(about.things).shape  # the pixels that the answer depends on
torch.Size([100, 64, 64])
>>> regions(drawing).features.shape  # as if from a detector
torch.Size([100, 8, 496])
"""

from whyformer.scenes.drawing import Pictures, pictures
from whyformer.scenes.language import (
    ANSWERS,
    KINDS,
    WORDS,
    Questions,
    Sentences,
    answerable,
    captions,
    descriptions,
    questions,
    questions_about,
    texts,
)
from whyformer.scenes.prompts import PROMPTS, VOCABULARY, Dialogues, dialogues
from whyformer.scenes.region_features import FEATURES, RegionBatch, regions
from whyformer.scenes.scene_examples import Example, example
from whyformer.scenes.world import (
    COLOURS,
    LABELS,
    SHAPES,
    SIDE,
    SIZES,
    THINGS,
    Scenes,
    clear_things,
    edit_things,
    sample,
)

__all__ = [
    "ANSWERS",
    "COLOURS",
    "FEATURES",
    "KINDS",
    "LABELS",
    "PROMPTS",
    "SHAPES",
    "SIDE",
    "SIZES",
    "THINGS",
    "VOCABULARY",
    "WORDS",
    "Dialogues",
    "Example",
    "Pictures",
    "Questions",
    "RegionBatch",
    "Scenes",
    "Sentences",
    "answerable",
    "captions",
    "clear_things",
    "descriptions",
    "dialogues",
    "edit_things",
    "example",
    "pictures",
    "questions",
    "questions_about",
    "regions",
    "sample",
    "texts",
]

"""Shapes World: scenes of coloured shapes, drawn, described and asked about, with the exact truth of what matters.

scenes = sample(1000, "test", rng=0)
drawn = pictures(scenes)                       # pixels, owner of each pixel, boxes
asked = questions(scenes, torch.Generator().manual_seed(0))
texts(asked.words)                             # "what colour is the circle?"
asked.things, drawn.mask(asked.things)         # the things and the pixels the answer depends on
asked.truth                                    # the words it depends on
regions(drawn)                                 # what a detector would give a model of regions
"""

from whyformer.scenes.drawing import Pictures, pictures
from whyformer.scenes.example import Example, example
from whyformer.scenes.language import (
    ANSWERS,
    KINDS,
    WORDS,
    Questions,
    Sentences,
    askable,
    asked,
    captions,
    descriptions,
    questions,
    texts,
)
from whyformer.scenes.regions import FEATURES, RegionBatch, regions
from whyformer.scenes.world import COLOURS, LABELS, SHAPES, SIDE, SIZES, THINGS, Scenes, cleared, edited, sample

__all__ = [
    "ANSWERS",
    "COLOURS",
    "FEATURES",
    "KINDS",
    "LABELS",
    "SHAPES",
    "SIDE",
    "SIZES",
    "THINGS",
    "WORDS",
    "Example",
    "Pictures",
    "Questions",
    "RegionBatch",
    "Scenes",
    "Sentences",
    "askable",
    "asked",
    "captions",
    "cleared",
    "descriptions",
    "edited",
    "example",
    "pictures",
    "questions",
    "regions",
    "sample",
    "texts",
]

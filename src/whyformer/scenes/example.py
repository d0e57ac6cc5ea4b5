"""One scene in every form that a model takes, to try things on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from PIL import Image

from whyformer.inputs.read import Regions
from whyformer.scenes.drawing import pictures
from whyformer.scenes.language import ANSWERS, captions, descriptions, questions, texts
from whyformer.scenes.regions import regions
from whyformer.scenes.world import sample


@dataclass(frozen=True)
class Example:
    """A scene of the test split, drawn, cut into regions, described, and asked about."""

    image: Image.Image
    regions: Regions
    caption: str
    description: str
    question: str
    answer: str
    reply: str


def example(seed: int = 0) -> Example:
    """The scene of this seed, which no bundled model was trained on."""
    scenes, rng = sample(1, "test", rng=seed), torch.Generator().manual_seed(seed)
    drawn, about = pictures(scenes), questions(scenes, rng)
    image = Image.fromarray(drawn.pixels[0].permute(1, 2, 0).numpy())
    return Example(
        image=image,
        regions=Regions(image, drawn.boxes[0].numpy(), regions(drawn).features[0].numpy()),
        caption=texts(captions(scenes, rng).words)[0],
        description=texts(descriptions(scenes).words)[0],
        question=texts(about.words)[0],
        answer=ANSWERS[about.answer[0]],
        reply=texts(about.replies)[0],
    )

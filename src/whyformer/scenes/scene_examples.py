"""One scene in every form that a bundled model takes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from PIL import Image

from whyformer.inputs.read import Regions
from whyformer.scenes.drawing import pictures
from whyformer.scenes.language import ANSWERS, captions, descriptions, questions, texts
from whyformer.scenes.region_features import regions
from whyformer.scenes.world import sample


@dataclass(frozen=True)
class Example:
    """A scene of the test split in every form that a bundled model takes.

    Attributes:
        image: The picture, 64 × 64 pixels.
        regions: Its eight things as boxes and features, for mini-lxmert and mini-visualbert.
        caption: A sentence about two of its objects, for mini-clip.
        description: A sentence about every object, for mini-t5; mini-vlm writes it for "describe the scene."
        question: A question about the scene.
        answer: The answer in one word.
        reply: The answer in a sentence, as mini-t5 and mini-vlm write it.
    """

    image: Image.Image
    regions: Regions
    caption: str
    description: str
    question: str
    answer: str
    reply: str


def example(seed: int = 0) -> Example:
    """A scene of the test split, which no bundled model was trained on.

    Args:
        seed: Which scene; the same seed gives the same scene.

    Returns:
        The scene as picture, regions and sentences.

    Example:
        >>> from whyformer.scenes import example
        >>> scene = example(3)
        >>> scene.question, scene.answer
        ('what colour is the star?', 'cyan')
        >>> scene.image.size
        (64, 64)
    """
    scenes, rng = sample(1, "test", rng=seed), torch.Generator().manual_seed(seed)
    drawing, about = pictures(scenes), questions(scenes, rng)
    image = Image.fromarray(drawing.pixels[0].permute(1, 2, 0).numpy())
    return Example(
        image=image,
        regions=Regions(image, drawing.boxes[0].numpy(), regions(drawing).features[0].numpy()),
        caption=texts(captions(scenes, rng).words)[0],
        description=texts(descriptions(scenes).words)[0],
        question=texts(about.words)[0],
        answer=ANSWERS[about.answer[0]],
        reply=texts(about.replies)[0],
    )

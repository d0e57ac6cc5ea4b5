"""The samples of a survey, read one by one from data as everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from whyformer.data.examples import Document, Photo
from whyformer.errors import WhyformerError


@dataclass(frozen=True, eq=False)
class SurveySample:
    """A text or a picture of the data, with its label and the mask of its object if known.

    The mask has BACKGROUND, OBJECT or UNLABELLED at each pixel of the picture.
    """

    number: int
    name: str
    example: str | Image.Image
    label: str | None = None
    mask: np.ndarray | None = None


def survey_sample(number: int, example: Any, label_map: Mapping[str, str]) -> SurveySample:
    """Convert a reader's example; `label_map` has the model's names for the data's labels."""
    match example:
        case Document(name=name, text=text, label=label):
            return SurveySample(number, name, text, None if label is None else label_map.get(label, label))
        case Photo(name=name, image=image, label=label, mask=mask):
            return SurveySample(number, name, image, None if label is None else label_map.get(label, label), mask)
        case unknown:
            raise WhyformerError(f"A survey reads texts and pictures, not {type(unknown).__name__} examples.")

"""Items of data sets: pictures, documents, questions. Names are known before items are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from PIL import Image

from whyformer.axes import WordTruth
from whyformer.errors import WhyformerError
from whyformer.inputs.read import Regions

_Example = TypeVar("_Example", covariant=True)
BACKGROUND, OBJECT, UNLABELLED = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Photo:
    """A picture with its label and mask: BACKGROUND, OBJECT or UNLABELLED at each pixel [height, width]."""

    name: str
    image: Image.Image
    label: str | None = None
    mask: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Document:
    """A text with its label, and the whitespace-delimited words of its human rationale."""

    name: str
    text: str
    label: str | None = None
    rationale: WordTruth | None = None


@dataclass(frozen=True, eq=False)
class VisualQuestion:
    """A question about a picture with human answers, and the picture or regions if their folder was given."""

    name: str
    image_id: int
    question: str
    answers: tuple[str, ...]
    image: Image.Image | None = None
    regions: Regions | None = None


@dataclass(frozen=True, eq=False)
class Instances:
    """A picture of COCO with its annotations."""

    name: str
    image_id: int
    image: Image.Image
    annotations: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, eq=False)
class Examples(Generic[_Example]):
    """The examples of a data set, in order. Reading a damaged one raises; the others remain readable."""

    names: tuple[str, ...]
    read: Callable[[int], _Example]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: int) -> _Example:
        place = range(len(self))[number]
        try:
            return self.read(place)
        except WhyformerError:
            raise
        except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
            raise WhyformerError(f"{self.names[place]!r} does not have the expected structure: {error}") from error

    def __iter__(self) -> Iterator[_Example]:
        return (self[number] for number in range(len(self)))

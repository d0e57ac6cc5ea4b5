"""The samples of a survey, read one by one from a table, a folder, a data set or a list."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from whyformer.data.dataset_files import existing
from whyformer.data.examples import Document, Examples, Photo
from whyformer.data.folders import image_folder, image_masks
from whyformer.data.in_memory import memory_examples
from whyformer.data.labelled_tables import table
from whyformer.data.readers import reader_named
from whyformer.errors import WhyformerError
from whyformer.inputs.sound import Sound
from whyformer.surveys.sound_data import Recording, are_sounds, holds_sounds, sound_folder, sound_list

SampleKind = Literal["text", "picture", "sound"]
IMAGE_FOLDER, MASK_FOLDER = "images", "masks"  # the two folders in a folder of pictures with masks


@dataclass(frozen=True, eq=False)
class SurveySample:
    """A text, a picture or a sound of the data, with its label and the mask of its object if known.

    The mask has BACKGROUND, OBJECT or UNLABELLED at each pixel of the picture.
    """

    number: int
    name: str
    example: str | Image.Image | Sound
    label: str | None = None
    mask: np.ndarray | None = None

    @property
    def kind(self) -> SampleKind:
        """Whether it is a text, a picture or a sound."""
        if isinstance(self.example, str):
            return "text"
        return "sound" if isinstance(self.example, Sound) else "picture"

    @property
    def digest(self) -> str:
        """A short digest of all that is read of it."""
        match self.example:
            case str() as text:
                content = text.encode()
            case Sound(samples=samples, rate=rate):
                content = samples.tobytes() + str(rate).encode()
            case picture:
                content = picture.tobytes()
        mask = b"" if self.mask is None else self.mask.tobytes()
        return hashlib.sha256(b"\0".join([content, mask, str(self.label).encode()])).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class SurveyData:
    """The examples of a data set, by index; `label_map` has the model's names for the data's labels."""

    examples: Examples[Any]
    label_map: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, number: int) -> SurveySample:
        match self.examples[number]:
            case Document(name=name, text=text, label=label):
                return SurveySample(number, name, text, self._name(label))
            case Photo(name=name, image=image, label=label, mask=mask):
                return SurveySample(number, name, image, self._name(label), mask)
            case Recording(name=name, sound=sound, label=label):
                return SurveySample(number, name, sound, self._name(label))
            case other:
                raise WhyformerError(f"A survey reads texts, pictures and sounds, not {type(other).__name__} examples.")

    def _name(self, label: str | None) -> str | None:
        return None if label is None else self.label_map.get(label, label)


def survey_data(
    data: Any, masks: str | Path | None, column: str | None, label_map: Mapping[str, str] | None
) -> SurveyData:
    """The data of a survey: a table, a folder, a reader with its options, a data set, or a list."""
    examples = _examples(data, masks, column)
    if not len(examples):
        raise WhyformerError("The data have no examples: there is nothing to survey.")
    return SurveyData(examples, label_map or {})


def data_name(data: Any) -> str:
    """The name of the file or folder of the data; empty for other data."""
    return Path(data).name if isinstance(data, (str, Path)) else ""


def _examples(data: Any, masks: str | Path | None, column: str | None) -> Examples[Any]:
    is_reader = isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], str) and isinstance(data[1], Mapping)
    if isinstance(data, (str, Path)) and Path(data).is_dir():
        folder = existing(data, "folder")
        if column is not None:
            raise WhyformerError(f"column={column!r} applies to a table, but {str(data)!r} is a folder: leave it out.")
        if holds_sounds(folder):
            if masks is not None:
                raise WhyformerError(
                    f"masks={str(masks)!r} go with pictures, but {str(data)!r} has sounds: leave them out."
                )
            return sound_folder(folder)
        if masks is None and (folder / IMAGE_FOLDER).is_dir() and (folder / MASK_FOLDER).is_dir():
            return image_masks(folder / IMAGE_FOLDER, folder / MASK_FOLDER)
        return image_folder(folder) if masks is None else image_masks(folder, masks)
    if masks is not None:
        raise WhyformerError(f"masks={str(masks)!r} go with a folder of pictures: leave them out.")
    if isinstance(data, (str, Path)):
        return table(data, text=column)
    if column is not None:
        raise WhyformerError(f"column={column!r} applies to a file, but these examples are not one: leave it out.")
    if is_reader:
        return reader_named(data[0])(**data[1])
    return sound_list(data) if are_sounds(data) else memory_examples(data)

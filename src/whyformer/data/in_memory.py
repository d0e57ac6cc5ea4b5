"""Data in memory: lists of texts or pictures, pairs with labels, rows, data sets with a length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from whyformer.data.dataset_files import same_size
from whyformer.data.examples import Document, Examples, Instances, Photo, VisualQuestion
from whyformer.data.generated import Scene
from whyformer.data.labelled_tables import hugging_face, is_hugging_face
from whyformer.data.mask_files import meaning_of
from whyformer.errors import WhyformerError, with_article
from whyformer.inputs.read import image_of

READY = (Document, Instances, Photo, Scene, VisualQuestion)
FORMS = (
    "a text, a picture, a pair with its label, a row {'text': …, 'label': …} or {'image': …, 'label': …, 'mask': …}, "
    "or a Photo, Document, VisualQuestion or Instances of whyformer.data"
)


def memory_examples(data: Any) -> Examples[Any]:
    """Wrap a list, a data set with length and indices, a Hugging Face data set, or a DataFrame.

    Other iterables are read at once.
    """
    if isinstance(data, Examples):
        return data
    if is_hugging_face(data):
        return hugging_face(data)
    if hasattr(data, "columns") and hasattr(data, "to_dict"):  # a pandas.DataFrame
        data = data.to_dict("records")
    if isinstance(data, (str, Path, bytes, Mapping)) or (not isinstance(data, Iterable) and not _has_numbers(data)):
        raise WhyformerError(f"Data is a list of examples or a data set, not {with_article(type(data).__name__)}.")
    items: Any = data if _has_numbers(data) else list(data)
    names = tuple(_name(items, number) for number in range(len(items)))
    return Examples(names, partial(_example, items, names))


def _has_numbers(data: Any) -> bool:
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _name(items: Any, number: int) -> str:
    """The name of a list item, or else its index; items of a data set are not read for this."""
    item = items[number] if isinstance(items, (list, tuple)) else None
    return item.name if isinstance(item, READY) else f"example {number}"


def _example(items: Any, names: Sequence[str], number: int) -> Any:
    item, name = items[number], names[number]
    if isinstance(item, READY):
        return item
    if isinstance(item, Mapping):
        return _from_row(item, name)
    if isinstance(item, (tuple, list)):
        if len(item) != 2:
            raise WhyformerError(f"{name} has {len(item)} parts: give {FORMS}.")
        return _with_label(item[0], item[1], name)
    return _with_label(item, None, name)


def _from_row(row: Mapping[str, Any], name: str) -> Document | Photo:
    if "image" in row:
        image = image_of(row["image"])
        return Photo(name, image, _label(row.get("label")), _mask(row.get("mask"), image, name))
    if "text" in row:
        return _with_label(row["text"], row.get("label"), name)
    raise WhyformerError(f"{name} has neither 'text' nor 'image', only {', '.join(map(repr, row))}: give {FORMS}.")


def _mask(mask: Any, image: Image.Image, name: str) -> np.ndarray | None:
    """Read a mask of 0 and 1, 0 and 255, booleans, or a trimap, given as an array or a picture."""
    if mask is None:
        return None
    pixels = meaning_of(np.asarray(mask), None, name)
    same_size(image, pixels, name)
    return pixels


def _with_label(item: Any, label: Any, name: str) -> Document | Photo:
    if isinstance(item, str):
        return Document(name, item, _label(label))
    if isinstance(item, (Image.Image, np.ndarray, Path)):
        return Photo(name, image_of(item), _label(label))
    raise WhyformerError(f"{name} is {with_article(type(item).__name__)}: give {FORMS}.")


def _label(label: Any) -> str | None:
    """A label as text; an index is looked up by its text."""
    if label is None or isinstance(label, str):
        return label
    if hasattr(label, "item"):  # a tensor or array of one number
        label = label.item()
    return str(label)

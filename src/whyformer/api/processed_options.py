"""Resolve options of methods that depend on the model's processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whyformer.axes import Inputs
from whyformer.inputs.chunks import Chunk
from whyformer.inputs.collate import black_pixel
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.fills import fill_colour, filler_id
from whyformer.inputs.words import tokens_by_word
from whyformer.methods.registry import Method
from whyformer.models import compat
from whyformer.models.loading import LoadedModel


def processed_options(
    method: Method,
    options: Mapping[str, Any],
    loaded_model: LoadedModel,
    inputs: Inputs,
    encoded: Sequence[EncodedExample],
) -> dict[str, Any]:
    """The options of a method for these inputs.

    A black baseline or fill is converted to the model's colours. For methods that remove units, special tokens of a
    text are excluded, and words are taken from the encoded examples, if given.
    """
    own = dict(options)
    if loaded_model.task.sees_pictures and _is(own.get("baseline"), "black"):
        own["baseline"] = black_pixel(loaded_model.image_processor)
    if not method.reads.subsets:
        return own
    if "pixel_values" in inputs and _is(own.get("fill", "mean"), "black", "mean"):
        own["fill"] = fill_colour(own.get("fill", "mean"), loaded_model.image_processor)
    if "input_ids" in inputs and loaded_model.tokenizer is not None:
        if _is(own.get("erasure"), "mask"):
            own["erasure"] = filler_id(loaded_model.tokenizer, "mask")
        units = own.get("units", "token")
        if isinstance(units, str):
            own["units"] = {"image": units, "text": text_units(loaded_model, inputs, encoded, by_word=units == "word")}
    return own


def text_units(
    loaded_model: LoadedModel, inputs: Inputs, encoded: Sequence[EncodedExample], *, by_word: bool
) -> Tensor:
    """The unit of each token of the texts; -1 for special tokens and padding."""
    ids = inputs["input_ids"]
    numbers = torch.full((len(ids), ids.shape[-1]), -1)
    special = compat.special_ids(loaded_model.tokenizer)
    for row, own in enumerate(ids.reshape(numbers.shape).tolist()):
        chunk = encoded[row].chunk if encoded else None
        if chunk is None:
            numbers[row] = torch.tensor([-1 if token in special else n for n, token in enumerate(own)])
        else:
            numbers[row, list(chunk.positions)] = torch.from_numpy(
                word_numbers(chunk) if by_word else np.array(chunk.positions)
            )
    return numbers


def word_numbers(chunk: Chunk) -> np.ndarray:
    """The word of each word piece of a chunk; each piece outside words is a unit."""
    words = list(tokens_by_word(chunk.layout).values())
    numbers = len(words) + np.arange(len(chunk.positions))
    for word, tokens in reversed(list(enumerate(words))):
        numbers[tokens] = word
    return numbers


def _is(value: Any, *names: str) -> bool:
    return isinstance(value, str) and value in names

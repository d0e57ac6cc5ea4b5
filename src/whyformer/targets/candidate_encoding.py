"""Encode a picture with each of several texts."""

from __future__ import annotations

from typing import Any

import torch

from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import whole_text
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.read import two_of
from whyformer.modalities.image import picture_of
from whyformer.models.loading import LoadedModel


def encode_texts(
    loaded_model: LoadedModel, number: int, example: Any, *, form: str, purpose: str, truncate: bool
) -> tuple[list[Any], list[EncodedExample]]:
    """Return the texts of (picture, text) or (picture, [texts]), each encoded with the picture."""
    image, given = two_of(example, form)
    texts = list(given) if isinstance(given, (list, tuple)) else [given]
    if not texts:
        raise WhyformerError(f"There is no text {purpose}: give one, or a list of them.")
    picture = picture_of(image, loaded_model)
    chunks = (whole_text(text, loaded_model, truncate=truncate) for text in texts)
    return texts, [EncodedExample(number, {"image": picture, "text": chunk}) for chunk in chunks]


@torch.no_grad()
def answer_to_all(loaded_model: LoadedModel, encoded: list[EncodedExample]) -> Any:
    """Run the model on all texts at once, with their picture given once."""
    inputs = model_inputs(loaded_model, encoded)
    return loaded_model.model(**inputs | {"pixel_values": inputs["pixel_values"][:1]})

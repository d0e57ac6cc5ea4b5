"""Prompts with images among their words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from whyformer.axes import Inputs
from whyformer.files import IMAGE_SUFFIXES
from whyformer.inputs.image_prompt import ImagePrompt, image_inputs, image_prompt_of, prompt_chunk
from whyformer.inputs.modality import FileKind, Modality
from whyformer.modalities.image import noise
from whyformer.models.loading import LoadedModel


def encode(example: Any, loaded_model: LoadedModel, *, truncate: bool, room: int) -> Iterator[dict[str, Any]]:
    """Encode the words as a text with placeholders for the images."""
    image_prompt = image_prompt_of(loaded_model, example)
    yield {"text": prompt_chunk(image_prompt), "image_text": image_prompt}


def collate(loaded_model: LoadedModel, prompts: Sequence[ImagePrompt]) -> Inputs:
    """Concatenate the images of all prompts."""
    return image_inputs(prompts)


# Its images are located through the model's bridge: see `api.assemble.picture_parts`.
MODALITY = Modality(
    "image_text",
    collate,
    encode=encode,
    noise=noise,
    noun="picture",
    files=FileKind(IMAGE_SUFFIXES, "picture", "pictures"),
)

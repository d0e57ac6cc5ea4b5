"""Prompts with pictures among their words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from whyformer.axes import Inputs
from whyformer.inputs.modality import Modality
from whyformer.inputs.pictured import PicturedPrompt, picture_inputs, pictured_prompt, prompt_chunk
from whyformer.modalities.image import noise
from whyformer.models.loading import LoadedModel


def encode(example: Any, loaded_model: LoadedModel, *, truncate: bool, room: int) -> Iterator[dict[str, Any]]:
    """The words as a text, whose placeholders stand for the pictures."""
    pictured = pictured_prompt(loaded_model, example)
    yield {"text": prompt_chunk(pictured), "image_text": pictured}


def collate(loaded_model: LoadedModel, prompts: Sequence[PicturedPrompt]) -> Inputs:
    """The pictures of all prompts, one after the other."""
    return picture_inputs(prompts)


# Its pictures are found through the model's bridge: `api.assemble.picture_parts`.
MODALITY = Modality("image_text", collate, encode=encode, noise=noise)

"""Encode examples as a model takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import Chunk
from whyformer.inputs.modality import known_modalities
from whyformer.models.loading import LoadedModel


@dataclass(frozen=True)
class EncodedExample:
    """An example, or a chunk of it that fits the model: its parts by the name of their modality."""

    example: int
    parts: Mapping[str, Any]

    @property
    def chunk(self) -> Chunk | None:
        """The text, if there is one."""
        return self.parts.get("text")

    @property
    def written(self) -> Chunk | None:
        """The decoder's output so far, if there is a decoder."""
        return self.parts.get("written")

    @property
    def encoder_part(self) -> tuple[str, Any] | None:
        """The modality and part of a prompt without a text, which an encoder reads; None if there is a text."""
        if self.chunk is not None:
            return None
        return next(((name, part) for name, part in self.parts.items() if name != "written"), None)

    @property
    def length(self) -> int | None:
        """A length that all examples of a batch must share; None if they are padded."""
        known = known_modalities()
        lengths = ((known[name].length, part) for name, part in self.parts.items())
        return next((length(part) for length, part in lengths if length is not None), None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how its parts were encoded."""
        return tuple(note for part in self.parts.values() for note in getattr(part, "notes", ()))


def encode(
    loaded_model: LoadedModel, examples: Iterable[Any], *, truncate: bool = False, room: int = 0
) -> list[EncodedExample]:
    """Encode each example, a text that is too long for a classifier in several chunks.

    `room` is the number of tokens to leave free after the text for what the model is to write.
    """
    check_processor(loaded_model)
    modality = known_modalities()[loaded_model.task.modality]
    assert modality.encode is not None
    return [
        EncodedExample(number, parts)
        for number, example in enumerate(examples)
        for parts in modality.encode(example, loaded_model, truncate=truncate, room=room)
    ]


def check_processor(loaded_model: LoadedModel) -> None:
    """Raise if the model has no processor."""
    if loaded_model.processor is None:
        raise WhyformerError(
            f"{loaded_model.name} came without a processor: pass processor=…, its tokenizer or image processor."
        )

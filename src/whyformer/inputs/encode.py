"""Examples as people give them, encoded as a model takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import Chunk
from whyformer.inputs.modality import modalities
from whyformer.models.loading import LoadedModel


@dataclass(frozen=True)
class EncodedExample:
    """As much of an example as the model takes at once: its parts by the name of their modality."""

    example: int
    parts: Mapping[str, Any]

    @property
    def chunk(self) -> Chunk | None:
        """The text, where there is one."""
        return self.parts.get("text")

    @property
    def written(self) -> Chunk | None:
        """What a decoder has written so far, where there is one."""
        return self.parts.get("written")

    @property
    def length(self) -> int | None:
        """What examples of a batch must agree in, such as the samples of a sound; None where batches are padded."""
        known = modalities()
        lengths = ((known[name].length, part) for name, part in self.parts.items())
        return next((length(part) for length, part in lengths if length is not None), None)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of how its parts were encoded."""
        return tuple(note for part in self.parts.values() for note in getattr(part, "notes", ()))


def encode(
    loaded_model: LoadedModel, examples: Iterable[Any], *, truncate: bool = False, room: int = 0
) -> list[EncodedExample]:
    """Each example as the model takes it, or in several parts where a text is longer than a classifier takes.

    `room` is for how many tokens a model that goes on from its text is to leave room after it.
    """
    check_processor(loaded_model)
    modality = modalities()[loaded_model.task.modality]
    assert modality.encode is not None
    return [
        EncodedExample(number, parts)
        for number, example in enumerate(examples)
        for parts in modality.encode(example, loaded_model, truncate=truncate, room=room)
    ]


def check_processor(loaded_model: LoadedModel) -> None:
    """Refuse a model that nothing makes inputs for."""
    if loaded_model.processor is None:
        raise WhyformerError(
            f"{loaded_model.name} came without a processor: pass processor=…, its tokenizer or image processor."
        )

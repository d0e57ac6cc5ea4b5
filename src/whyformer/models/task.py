"""What a loaded model takes and what it answers with, decided once from the model and its processor."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from whyformer.models.families import FAMILIES
from whyformer.models.modalities import REGION_INPUTS
from whyformer.models.structure import is_detector

Answer = Literal["label", "detection", "similarity", "next token"]

_SAID = {
    "label": "a label",
    "detection": "a label of a detected object",
    "similarity": "how alike a picture and a text are",
    "next token": "the next token of a text",
}


@dataclass(frozen=True)
class Task:
    """What a model is shown, whether it reads a text, and what its answer is.

    Attributes:
        sees: "picture", or "regions" of a picture that a detector has found, or None.
        reads_text: Whether it is given a text.
        answer: "label", "detection", "similarity" of a picture and a text, or "next token".
        has_decoder: Whether a decoder writes about what an encoder has read.
        sees_pictures_in_text: Whether pictures stand among the words that it reads, and it writes about them.
    """

    sees: Literal["picture", "regions"] | None
    reads_text: bool
    answer: Answer
    has_decoder: bool = False
    sees_pictures_in_text: bool = False

    @property
    def sees_pictures(self) -> bool:
        return self.sees == "picture"

    @property
    def sees_regions(self) -> bool:
        return self.sees == "regions"

    @property
    def writes(self) -> bool:
        """Whether its answer is the next token of a text."""
        return self.answer == "next token"

    @property
    def compares(self) -> bool:
        """Whether its answer is how alike a picture and a text are."""
        return self.answer == "similarity"

    @property
    def detects(self) -> bool:
        return self.answer == "detection"

    @property
    def description(self) -> str:
        """What it answers with, in words."""
        return _SAID[self.answer]


def task_of(model: nn.Module, *, image_processor: Any, tokenizer: Any) -> Task:
    """The task of a model with these processors; either may be None."""
    takes = set(inspect.signature(model.forward).parameters)
    sees: Literal["picture", "regions"] | None = "picture" if image_processor is not None else None
    if takes & set(REGION_INPUTS):
        sees = "regions"
    can_generate = getattr(model, "can_generate", None)
    writes = bool(can_generate is not None and can_generate())
    answer: Answer = "label"
    if writes:
        answer = "next token"
    elif sees == "picture" and hasattr(model, "logit_scale"):
        answer = "similarity"
    elif is_detector(model):
        answer = "detection"
    has_decoder = writes and bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
    row = FAMILIES.get(getattr(getattr(model, "config", None), "model_type", ""))
    in_text = writes and sees == "picture" and row is not None and row.sight is not None
    return Task(sees, tokenizer is not None, answer, has_decoder, in_text)

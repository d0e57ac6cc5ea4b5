"""What a loaded model takes and what it answers with, decided once from the model and its processor."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from whyformer.models.modalities import REGION_INPUTS
from whyformer.models.structure import is_detector, unwrapped

Answer = Literal["label", "detection", "similarity", "next token", "character"]

_SAID = {
    "label": "a label",
    "detection": "a label of a detected object",
    "similarity": "how alike a picture and a text are",
    "next token": "the next token of a text",
    "character": "a character at a moment of a sound",
}


@dataclass(frozen=True)
class Task:
    """What a model is shown, whether it reads a text, and what its answer is.

    Attributes:
        sees: "picture", or "regions" of a picture that a detector has found, or None.
        reads_text: Whether it is given a text.
        answer: "label", "detection", "similarity" of a picture and a text, "next token", or "character" at a moment
            of a sound.
        has_decoder: Whether a decoder writes about what an encoder has read.
        hears: Whether it is given a sound.
    """

    sees: Literal["picture", "regions"] | None
    reads_text: bool
    answer: Answer
    has_decoder: bool = False
    hears: bool = False

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
    def spells(self) -> bool:
        """Whether its answer is a character at each moment of a sound (CTC)."""
        return self.answer == "character"

    @property
    def description(self) -> str:
        """What it answers with, in words."""
        return _SAID[self.answer]


def task_of(model: nn.Module, *, image_processor: Any, tokenizer: Any, feature_extractor: Any = None) -> Task:
    """The task of a model with these processors; each may be None."""
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
    elif type(unwrapped(model)).__name__.endswith("ForCTC"):
        answer = "character"
    has_decoder = writes and bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
    hears = feature_extractor is not None
    return Task(sees, tokenizer is not None and not hears, answer, has_decoder, hears)

"""Detectors that are told in words what to find: which of the texts, and where it is found best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from whyformer.errors import WhyformerError
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample, picture_of, whole_text
from whyformer.inputs.read import two_of
from whyformer.models.loading import LoadedModel
from whyformer.targets.scores import Contrast, Detection, Label, Target, one_each, text_index


@dataclass(frozen=True)
class Finding:
    """A picture with the text that is looked for in it, what that is called, and the query that finds it best.

    The text stands alone: what a detector makes of it does not depend on the other texts.
    """

    encoded: EncodedExample
    name: str
    detection: Detection


def findings_of(loaded_model: LoadedModel, examples: Sequence[Any], target: Target, *, truncate: bool) -> list[Finding]:
    """Each example is a picture and a text, or a picture and a list of texts of which `target` names one.

    "predicted" is the text that is found best; a detection says by which query.
    """
    if isinstance(target, Contrast):
        raise WhyformerError("A detector that is told what to find judges each text by itself: ask about one of them.")
    targets = [target] * len(examples) if isinstance(target, Detection) else one_each(target, len(examples))
    questions = enumerate(zip(examples, targets, strict=True))
    return [_finding(number, example, loaded_model, each, truncate=truncate) for number, (example, each) in questions]


def _finding(
    number: int, example: Any, loaded_model: LoadedModel, target: Label | Detection, *, truncate: bool
) -> Finding:
    image, given = two_of(example, "a picture and what to find in it: ('street.jpg', ['a red bus', 'a dog'])")
    texts = list(given) if isinstance(given, (list, tuple)) else [given]
    if not texts:
        raise WhyformerError("There is no text that says what to find: give one, or a list of them.")
    picture = picture_of(image, loaded_model)
    encoded = [
        EncodedExample(number, picture, chunk=whole_text(text, loaded_model, truncate=truncate)) for text in texts
    ]
    with torch.no_grad():
        inputs = model_inputs(loaded_model, encoded)
        logits = loaded_model.model(**inputs | {"pixel_values": inputs["pixel_values"][:1]}).logits[0]
    label = target.label if isinstance(target, Detection) else target
    names = list(map(str, texts))
    rows = logits if not isinstance(target, Detection) else logits[_checked(target.query, len(logits))][None]
    chosen = int(rows.amax(dim=0).argmax()) if label == "predicted" else text_index(label, names)
    query = target.query if isinstance(target, Detection) else int(logits[:, chosen].argmax())
    return Finding(encoded[chosen], names[chosen], Detection(query, 0))


def _checked(query: int, count: int) -> int:
    if not 0 <= query < count:
        raise WhyformerError(f"No object query {query}: this model has {count}, 0 to {count - 1}.")
    return query

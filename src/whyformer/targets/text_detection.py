"""Targets of open-vocabulary detectors: one of several texts, and the query that detects it best."""

from __future__ import annotations

from typing import Any

from whyformer.errors import WhyformerError
from whyformer.models.loading import LoadedModel
from whyformer.targets.candidate_encoding import answer_to_all, encode_texts
from whyformer.targets.head_target import HeadTarget, Term, sum_of
from whyformer.targets.scores import Contrast, Detection, text_index


def finding_target(
    loaded_model: LoadedModel, number: int, example: Any, target: Any, *, truncate: bool
) -> list[HeadTarget]:
    """The target for a text; "predicted" is the one detected best, and a detection names the query.

    Texts are encoded alone, since the detector's output for one does not depend on the others.
    """
    if isinstance(target, Contrast):
        raise WhyformerError("An open-vocabulary detector scores each text separately: give one text, not a contrast.")
    form = "a picture and texts to detect: ('street.jpg', ['a red bus', 'a dog'])"
    purpose = "to detect"
    texts, encoded = encode_texts(loaded_model, number, example, form=form, purpose=purpose, truncate=truncate)
    logits = answer_to_all(loaded_model, encoded).logits[0].float()
    detection = target if isinstance(target, Detection) else None
    label = target if detection is None else detection.label
    names = list(map(str, texts))
    rows = logits if detection is None else logits[_checked(detection.query, len(logits))][None]
    chosen = int(rows.amax(dim=0).argmax()) if label == "predicted" else text_index(label, names)
    query = int(logits[:, chosen].argmax()) if detection is None else detection.query
    score, probability = sum_of([Term("logits", (query, 0))]), float(logits[query, chosen].sigmoid())
    return [HeadTarget(encoded[chosen], score, names[chosen], probability, query=query)]


def _checked(query: int, count: int) -> int:
    if not 0 <= query < count:
        raise WhyformerError(f"No object query {query}: this model has {count}, 0 to {count - 1}.")
    return query

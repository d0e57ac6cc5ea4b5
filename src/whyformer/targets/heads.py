"""Resolve targets of heads whose outputs depend on the example, and list all targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from whyformer.errors import WhyformerError
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import check_processor, encode
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import labels_of
from whyformer.models.task import Answer
from whyformer.targets.answer_spans import span_target
from whyformer.targets.candidate_targets import all_candidates, candidate_target, choice_target, is_zero_shot
from whyformer.targets.dual_encoders import pair_target
from whyformer.targets.embeddings import similarity_target
from whyformer.targets.head_target import HeadTarget
from whyformer.targets.prompted_masks import prompt_target
from whyformer.targets.resolve import object_probabilities
from whyformer.targets.scores import Detection, PlacedLabel, Target, logits_of, one_each
from whyformer.targets.text_detection import finding_target
from whyformer.targets.token_classification import entity_targets, tag_target
from whyformer.targets.vocabulary import mask_target, mask_targets

LIKELY_LABEL = 0.5  # probability from which a multi-label model is taken to predict a label

Definite = Callable[..., list[HeadTarget]]  # called with a model, an example's index, the example and its target

DEFINITE: Mapping[Answer, Definite] = {
    "similarity": pair_target,
    "tag": tag_target,
    "span": span_target,
    "masked word": mask_target,
    "choice": choice_target,
    "embedding": similarity_target,
    "mask": prompt_target,
}


def needs_example(loaded_model: LoadedModel, examples: Sequence[Any]) -> bool:
    """Whether the target can only be resolved after reading the examples."""
    return any(_definite(loaded_model, one) is not None for one in examples)


def head_targets(
    loaded_model: LoadedModel, examples: Sequence[Any], target: Target, *, truncate: bool
) -> list[HeadTarget]:
    """Resolve the target of each example."""
    check_processor(loaded_model)
    each = one_each(target, len(examples))
    targets = []
    for number, (example, label) in enumerate(zip(examples, each, strict=True)):
        if isinstance(label, Detection) and not loaded_model.task.detects:
            raise WhyformerError("A detection is a target for detectors: give a label, or 'predicted'.")
        if isinstance(label, PlacedLabel) and loaded_model.task.answer not in ("tag", "masked word", "span"):
            raise WhyformerError(f"{loaded_model.name} answers at one place: give {loaded_model.task.targets}.")
        definite = _definite(loaded_model, example)
        if definite is None:
            raise WhyformerError("Examples with and without candidate labels cannot be explained in one batch.")
        targets += definite(loaded_model, number, example, label, truncate=truncate)
    return targets


def _definite(loaded_model: LoadedModel, example: Any) -> Definite | None:
    """The function that resolves a target of this example; None if it needs no resolving."""
    if _finds_texts(loaded_model):
        return finding_target
    return candidate_target if _is_zero_shot(loaded_model, example) else DEFINITE.get(loaded_model.task.answer)


def every_target(loaded_model: LoadedModel, example: Any, *, truncate: bool) -> list[Any]:
    """All targets of an example: entities, likely labels, objects, masks or candidates; otherwise one."""
    check_processor(loaded_model)
    match loaded_model.task.answer:
        case "tag":
            return list(entity_targets(loaded_model, example, truncate=truncate))
        case "masked word":
            return list(mask_targets(loaded_model, example, truncate=truncate))
        case "choice" | "similarity" if _has_several(example):
            return list(all_candidates(example))
        case "detection" if _finds_texts(loaded_model):
            return list(all_candidates(example)) if _has_several(example) else ["predicted"]
        case "label" if _is_zero_shot(loaded_model, example):
            return list(all_candidates(example))
        case "labels" | "detection" | "value":
            return _labels_of_example(loaded_model, example, truncate=truncate)
        case _:
            return ["predicted"]


@torch.no_grad()
def _labels_of_example(loaded_model: LoadedModel, example: Any, *, truncate: bool) -> list[Any]:
    """Labels or objects with a probability above one half; all outputs of a regression head."""
    encoded = encode(loaded_model, [example], truncate=truncate)
    outputs = [loaded_model.model(**model_inputs(loaded_model, [one])) for one in encoded]
    if loaded_model.task.detects:
        shares = object_probabilities(outputs[0].logits[0].float(), labels_of(loaded_model.model))
        return [Detection(query) for query, share in enumerate(shares.amax(dim=1).tolist()) if share >= LIKELY_LABEL]
    logits = torch.stack([logits_of(output)[0].float() for output in outputs]).mean(dim=0)
    if loaded_model.task.answer == "value":
        return list(range(len(logits)))
    return [label for label, share in enumerate(logits.sigmoid().tolist()) if share >= LIKELY_LABEL]


def _finds_texts(loaded_model: LoadedModel) -> bool:
    return loaded_model.task.detects and loaded_model.task.reads_text


def _is_zero_shot(loaded_model: LoadedModel, example: Any) -> bool:
    reads_only = loaded_model.task.reads_text and loaded_model.task.sees is None
    return reads_only and loaded_model.task.answer == "label" and is_zero_shot(example)


def _has_several(example: Any) -> bool:
    return isinstance(example, (tuple, list)) and len(example) == 2 and isinstance(example[1], (list, tuple))

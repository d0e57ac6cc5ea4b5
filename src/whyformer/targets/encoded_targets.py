"""Targets of encoded examples before tracing: words as tokens, one label for all chunks of a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from whyformer.batching import MemoryLimit
from whyformer.errors import WhyformerError
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample
from whyformer.models.loading import LoadedModel
from whyformer.targets.head_target import HeadTarget
from whyformer.targets.scores import Contrast, Detection, Moment, Pixel, PlacedLabel, Region, logits_of, one_each
from whyformer.targets.vocabulary import token_of


def encoded_targets(loaded_model: LoadedModel, encoded: Sequence[EncodedExample], target: Any, batch_size: int) -> Any:
    """The target, or a list of those of each encoded example; a label is predicted from all parts of its example."""
    if isinstance(target, Moment) and loaded_model.feature_extractor is not None:
        return replace(target, rate=loaded_model.feature_extractor.sampling_rate)
    if callable(target) or is_definite(target) or isinstance(target, (Contrast, Detection, Moment, Pixel, Region)):
        return _as_tokens(target, loaded_model) if loaded_model.task.writes else target
    each = one_each(target, len({one.example for one in encoded}))
    if any(isinstance(one, PlacedLabel) for one in each):
        raise WhyformerError(f"{loaded_model.name} answers at one place: give {loaded_model.task.targets}.")
    if loaded_model.task.writes:
        return [token_of(each[one.example], loaded_model) for one in encoded]
    parts = Counter(one.example for one in encoded)
    several = [one for one in encoded if each[one.example] == "predicted" and parts[one.example] > 1]
    logits: dict[int, list[Tensor]] = {}

    @torch.no_grad()
    def logits_of_batch(batch: Sequence[EncodedExample], checkpoint: bool | None) -> list[Tensor]:
        return list(logits_of(loaded_model.model(**model_inputs(loaded_model, batch))))

    rows = MemoryLimit(batch_size).map_batches(several, logits_of_batch, f"{loaded_model.name} alone")
    for one, row in zip(several, rows, strict=True):
        logits.setdefault(one.example, []).append(row)
    for example, parts_of_it in logits.items():
        each[example] = int(torch.stack(parts_of_it).mean(dim=0).argmax())
    return [each[one.example] for one in encoded]


def is_definite(target: Any) -> bool:
    """Whether the target is a list of definite ones, in the order of the encoded examples."""
    return isinstance(target, list) and bool(target) and isinstance(target[0], HeadTarget)


def _as_tokens(target: Any, loaded_model: LoadedModel) -> Any:
    """A contrast of words as one of the tokens they are."""
    if not isinstance(target, Contrast):
        return target
    return Contrast(token_of(target.label, loaded_model), token_of(target.other, loaded_model))

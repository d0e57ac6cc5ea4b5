"""Resolve options of methods that depend on the model's processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whyformer.axes import Inputs
from whyformer.inputs.collate import black_pixel
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.modality import known_modalities
from whyformer.methods.registry import Method
from whyformer.models.loading import LoadedModel


def processed_options(
    method: Method,
    options: Mapping[str, Any],
    loaded_model: LoadedModel,
    inputs: Inputs,
    encoded: Sequence[EncodedExample],
) -> dict[str, Any]:
    """The options of a method for these inputs.

    A black baseline is converted to the model's colours. For methods that remove units, the modalities resolve what
    replaces them, and which tokens make a unit.
    """
    own = dict(options)
    if loaded_model.task.sees_pictures and isinstance(baseline := own.get("baseline"), str) and baseline == "black":
        own["baseline"] = black_pixel(loaded_model.image_processor)
    if not method.reads.subsets:
        return own
    for modality in known_modalities().values():
        if modality.removal is not None and modality.removal.options is not None:
            own |= modality.removal.options(own, loaded_model, inputs, encoded)
    return own

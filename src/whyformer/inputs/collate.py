"""Collate encoded examples into the tensors that a model takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from whyformer.axes import Inputs
from whyformer.errors import misfits_in_one_line
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.modality import known_modalities
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import device_of, dtype_of


def model_inputs(loaded_model: LoadedModel, encoded: Sequence[EncodedExample]) -> Inputs:
    """Collate encoded examples, on the model's device and in its dtype."""
    with misfits_in_one_line(f"The processor of {loaded_model.name}"):
        return on_device(loaded_model, collate(loaded_model, encoded))


def on_device(loaded_model: LoadedModel, inputs: Inputs) -> Inputs:
    """Move tensors to the model's device, and floating-point ones to its dtype."""
    device, dtype = device_of(loaded_model.model), dtype_of(loaded_model.model)
    return {
        name: value.to(device, dtype if value.is_floating_point() else value.dtype) for name, value in inputs.items()
    }


def collate(loaded_model: LoadedModel, encoded: Sequence[EncodedExample]) -> Inputs:
    """Collate encoded examples, modality by modality."""
    inputs: Inputs = {}
    for name, modality in known_modalities().items():
        if parts := [one.parts[name] for one in encoded if name in one.parts]:
            inputs |= modality.collate(loaded_model, parts)
    return inputs


def black_pixel(processor: Any) -> Tensor:
    """The value of a black pixel after the processor's normalisation, per channel."""
    mean, std = torch.tensor(processor.image_mean), torch.tensor(processor.image_std)
    return (-mean / std)[:, None, None] if processor.do_normalize else torch.zeros(len(mean), 1, 1)

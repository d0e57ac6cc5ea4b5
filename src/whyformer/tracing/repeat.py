"""Repeat a batch to run several versions of it at once, and split the output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from torch import Tensor
from transformers.utils import ModelOutput

from whyformer.axes import Inputs
from whyformer.models.input_tensors import PICTURE_INPUTS


def repeat_inputs(inputs: Inputs, times: int, batch: int) -> Inputs:
    """Repeat the inputs that have an entry per example `times` times along the batch."""
    return {name: _repeat(name, value, times, batch) for name, value in inputs.items()}


def _repeat(name: str, value: Any, times: int, batch: int) -> Any:
    if times == 1 or not isinstance(value, Tensor) or value.dim() == 0:
        return value
    if len(value) != batch and name not in PICTURE_INPUTS:  # an example may have several pictures, or none
        return value
    return value.repeat(times, *[1] * (value.dim() - 1))


def split_output(output: Any, batch: int, count: int) -> Iterator[Any]:
    """Split the output along the batch into the outputs of the copies."""
    for number in range(count):
        yield _rows(output, slice(number * batch, (number + 1) * batch), batch * count)


def _rows(output: Any, rows: slice, total: int) -> Any:
    if isinstance(output, Tensor):
        return output[rows] if output.dim() and len(output) == total else output
    if isinstance(output, Mapping):
        cut = {name: _rows(value, rows, total) for name, value in output.items()}
        # A dual encoder scores every image against every text: keep those of the same copy.
        cut |= {name: cut[name][:, rows] for name in ("logits_per_image", "logits_per_text") if name in cut}
        return type(output)(**cut) if isinstance(output, ModelOutput) else cut
    if hasattr(output, "_make"):
        return output._make(_rows(value, rows, total) for value in output)
    if isinstance(output, (tuple, list)):
        return type(output)(_rows(value, rows, total) for value in output)
    if is_dataclass(output) and not isinstance(output, type):
        parts = {field.name: _rows(getattr(output, field.name), rows, total) for field in fields(output)}
        return replace(output, **parts)
    return output

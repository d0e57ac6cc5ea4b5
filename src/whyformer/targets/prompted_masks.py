"""Targets of models that segment the object at a point or in a box (SAM)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample, encode
from whyformer.models.loading import LoadedModel
from whyformer.targets.head_target import HeadTarget
from whyformer.targets.image_segments import area_name, resolve_area
from whyformer.targets.scores import Pixel, Region


def prompt_target(
    loaded_model: LoadedModel, number: int, example: Any, target: Any, *, truncate: bool
) -> list[HeadTarget]:
    """The target for the mask of a prompt, or a pixel or box of it: the mean of its logits there."""
    (encoded,) = encode(loaded_model, [example], truncate=truncate)
    with torch.no_grad():
        output = loaded_model.model(**model_inputs(loaded_model, [encoded]))
    whole, _, _ = resolve_area(_in_square(target, encoded), output, {})

    def score(output: Any, row: int) -> Tensor:
        own = slice(row, row + 1)
        return whole(SimpleNamespace(pred_masks=output.pred_masks[own]))[0]

    expected = float(output.iou_scores[0, 0].max())
    note = f"The model expects its mask to overlap with the truth by {expected:.0%} (IoU)."
    return [HeadTarget(replace(encoded, example=number), score, area_name("mask", target), notes=(note,))]


def _in_square(target: Any, encoded: EncodedExample) -> Any:
    """Convert a place in the picture to one in the square that contains it at the top left."""
    size = encoded.parts["image"].image.size
    across, down = (side / max(size) for side in size)
    if isinstance(target, Pixel):
        return replace(target, x=target.x * across, y=target.y * down)
    if isinstance(target, Region) and target.box is not None:
        left, top, right, bottom = target.box
        return replace(target, box=(left * across, top * down, right * across, bottom * down))
    return target

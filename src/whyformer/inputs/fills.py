"""Fill values for removed parts of an input: pixels, word pieces, regions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from whyformer.axes import Inputs, PixelRemoval, Pixels, Removal, StepPixels
from whyformer.errors import WhyformerError, check_choice
from whyformer.inputs.collate import black_pixel
from whyformer.models.input_tensors import REGION_INPUTS, TEXT_INPUTS

Colour = Literal["black", "mean"]
Fill = Literal["black", "mean", "road"]
Erasure = Literal["pad", "mask", "delete"]


def fill_colour(colour: Colour, processor: Any) -> Tensor:
    """Fill for removed pixels in this processor's output, normalised or not."""
    if colour == "black":
        return black_pixel(processor)
    mean = torch.tensor(processor.image_mean)[:, None, None]
    return torch.zeros_like(mean) if processor.do_normalize else mean


def blank(colour: Colour, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Fill for removed pixels of a normalised image: black before normalisation, or the mean colour (BI on CLIP)."""
    check_choice("colour", colour, Colour)
    centre, width = (torch.tensor(part)[:, None, None] for part in (mean, std))
    return -centre / width if colour == "black" else torch.zeros_like(centre)


def blanked(pixels: Pixels, removal: PixelRemoval, colour: Tensor) -> StepPixels:
    """Fill the removed pixels of the images at every step."""
    return torch.where(removal[:, :, None], colour.to(pixels), pixels)


def erased(inputs: Inputs, removal: Removal, how: Erasure = "pad", *, filler: int) -> Inputs:
    """Remove tokens from a batch of texts at every step, [step batch …] each.

    They become [PAD] and are masked out ("pad", BI), become [MASK] ("mask"), or are deleted, with the rest moving up
    ("delete"). `filler` is the id of [PAD], or of [MASK] for "mask".
    """
    check_choice("how", how, Erasure)
    if how == "delete":
        return deleted(inputs, removal, TEXT_INPUTS, filler=filler)
    ids = inputs["input_ids"]
    mask = inputs.get("attention_mask", torch.ones_like(ids))
    steps = {name: _at_every_step(value, len(removal)) for name, value in inputs.items()}
    steps["input_ids"] = steps["input_ids"].masked_fill(removal, filler)
    if how == "pad":
        steps["attention_mask"] = _at_every_step(mask, len(removal)).masked_fill(removal, 0)
    return steps


def filler_id(tokenizer: Any, how: Erasure = "pad") -> int:
    """The id of the token that replaces erased ones."""
    name = "mask_token" if how == "mask" else "pad_token"
    token_id: int | None = getattr(tokenizer, f"{name}_id", None)
    if token_id is None:
        others = "'pad' or 'delete'" if how == "mask" else "'mask'"
        raise WhyformerError(f"The tokenizer has no {name}: erase tokens by {others} instead of {how!r}.")
    return token_id


def deleted(inputs: Inputs, removal: Removal, names: Iterable[str], *, filler: int = 0) -> Inputs:
    """Delete tokens or regions from the inputs at every step: those kept move up, followed by padding (GA).

    `names` are the inputs with an entry per token or region: TEXT_INPUTS or REGION_INPUTS.
    """
    names = [name for name in names if name in inputs]
    mask_name = "visual_attention_mask" if any(name in REGION_INPUTS for name in names) else "attention_mask"
    mask = inputs.get(mask_name, torch.ones(removal.shape[1:], dtype=torch.long, device=removal.device))
    kept = mask.bool() & ~removal
    order = kept.to(torch.uint8).argsort(dim=2, descending=True, stable=True)
    is_there = kept.gather(2, order)
    steps = {name: _at_every_step(value, len(removal)) for name, value in inputs.items()}
    for name in names:
        value = steps[name]
        shape = (*order.shape, *(1,) * (value.dim() - 3))
        moved = value.take_along_dim(order.view(shape), dim=2)
        steps[name] = moved.where(is_there.view(shape), filler if name == "input_ids" else 0)
    return steps | {mask_name: is_there.to(mask.dtype)}


def _at_every_step(value: Tensor, steps: int) -> Tensor:
    return value.expand(steps, *value.shape)

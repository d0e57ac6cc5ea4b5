"""Perturbation: how the answer changes while the input is taken away, the most or the least relevant first.

An explanation is faithful if the answer falls at once when what it calls relevant goes (positive perturbation), and
stays when the rest goes (negative). The steps of all examples are made as one batch:

steps = blanked(pixels, removed_pixels(scores, size, FRACTIONS), blank("black", mean, std))
by_step = curves(step_logits(forward, steps), labels, explained)
area(by_step.accuracy, FRACTIONS)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from whyformer.axes import (
    Curve,
    ExampleScores,
    Inputs,
    Labels,
    Logits,
    PixelRemoval,
    Pixels,
    Removal,
    StepLogits,
    StepPixels,
)
from whyformer.errors import WhyformerError, check_choice
from whyformer.models.modalities import REGION_INPUTS, TEXT_INPUTS

Explained = Literal["predicted", "target"]
Colour = Literal["black", "mean"]
Erasure = Literal["pad", "mask", "delete"]
Domain = Literal["0-0.9", "0.1-0.9", "0-1", "0-1-zero"]
Steps = TypeVar("Steps", Tensor, dict[str, Any])

_TENTHS = tuple(number / 10 for number in range(11))
# The fractions that each area is taken over: as TA's author does, with the clean point; as TA prints; as BI does on
# CLIP; as BI does elsewhere, where the answer to nothing at all is not measured but set to 0.
DOMAINS: dict[Domain, tuple[float, ...]] = {
    "0-0.9": _TENTHS[:10],
    "0.1-0.9": _TENTHS[1:10],
    "0-1": _TENTHS,
    "0-1-zero": _TENTHS[:10],
}
FRACTIONS = DOMAINS["0-0.9"]
# GA's steps on LXMERT and for VisualBERT's texts.
VQA_FRACTIONS = (0.0, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)


@dataclass(frozen=True)
class Curves:
    """What became of each example's answer, step by step."""

    accuracy: Curve  # 1 where the label is still the most probable
    probability: Curve  # of the explained class
    logit: Curve


def explained_class(logits: Logits, labels: Labels, which: Explained = "predicted") -> Labels:
    """The class whose explanation is tested: the model's own answer, or the true one."""
    check_choice("explained", which, Explained)
    return logits.argmax(dim=1) if which == "predicted" else labels


def blank(colour: Colour, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """What a removed pixel becomes in a normalised image: what black was before, or the mean colour (BI on CLIP)."""
    check_choice("colour", colour, Colour)
    centre, width = (torch.tensor(part)[:, None, None] for part in (mean, std))
    return -centre / width if colour == "black" else torch.zeros_like(centre)


def blanked(pixels: Pixels, removal: PixelRemoval, colour: Tensor) -> StepPixels:
    """The images at every step, without the pixels that are gone."""
    return torch.where(removal[:, :, None], colour.to(pixels), pixels)


def erased(inputs: Inputs, removal: Removal, how: Erasure = "pad", *, filler: int) -> Inputs:
    """A batch of texts at every step, [step batch …] each, without the tokens that are gone.

    They become [PAD] and are masked out ("pad", BI), become [MASK] ("mask"), or are not there, the rest moving up
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
    """The token that takes the place of erased ones."""
    name = "mask_token" if how == "mask" else "pad_token"
    token_id: int | None = getattr(tokenizer, f"{name}_id", None)
    if token_id is None:
        others = "'pad' or 'delete'" if how == "mask" else "'mask'"
        raise WhyformerError(f"The tokenizer has no {name}: erase tokens by {others} instead of {how!r}.")
    return token_id


def deleted(inputs: Inputs, removal: Removal, names: Iterable[str], *, filler: int = 0) -> Inputs:
    """The inputs at every step, without the tokens or regions that are gone: those kept move up, padding follows (GA).

    `names` are the inputs that have a place for each of them: TEXT_INPUTS or REGION_INPUTS.
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


def step_logits(forward: Callable[[Steps], Logits], steps: Steps) -> StepLogits:
    """The model's answer to every example at every step, asked as one batch without a graph."""
    first = steps if isinstance(steps, Tensor) else next(iter(steps.values()))
    with torch.no_grad():
        if isinstance(steps, Tensor):
            logits: Logits = forward(steps.flatten(0, 1))
        else:
            logits = forward({name: value.flatten(0, 1) for name, value in steps.items()})
    answers: StepLogits = logits.unflatten(0, first.shape[:2])
    return answers


def curves(logits: StepLogits, labels: Labels, explained: Labels) -> Curves:
    """Accuracy against the labels, and probability and logit of the explained class."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return Curves(
        accuracy=(wide.argmax(dim=2) == labels).to(wide.dtype).T,
        probability=_of(wide.softmax(dim=2), explained),
        logit=_of(wide, explained),
    )


def soft_accuracy(logits: StepLogits, scores: Logits) -> Curve:
    """The soft accuracy of each answer given, where `scores` holds that of every answer to the question (VQA)."""
    answers = logits.argmax(dim=2)
    return scores.gather(1, answers.T)


def area(values: Curve, fractions: Sequence[float], domain: Domain = "0-0.9") -> ExampleScores:
    """The area under each example's curve, by trapezoids, over the named domain; as published, not divided by it."""
    check_choice("domain", domain, Domain)
    low, high = (0.1 if domain == "0.1-0.9" else 0.0), (0.9 if domain.endswith("0.9") else 1.0)
    ends_at_zero = domain == "0-1-zero"
    barely = 1e-9  # nine times a tenth may be a little more than 0.9
    within = [
        n
        for n, fraction in enumerate(fractions)
        if low - barely <= fraction <= high + barely and not (ends_at_zero and fraction >= 1)
    ]
    places, heights = [fractions[n] for n in within], values[:, within].double()
    if ends_at_zero:
        places, heights = [*places, 1.0], F.pad(heights, (0, 1))
    if not places or abs(places[0] - low) + abs(places[-1] - high) > 2 * barely:
        known = ", ".join(map(str, fractions))
        raise WhyformerError(f"An area over {domain} needs the curve at {low} and {high}; it is known at {known}.")
    return torch.trapezoid(heights, torch.tensor(places, dtype=heights.dtype, device=heights.device), dim=1)


def largest_area(domain: Domain = "0-0.9") -> float:
    """The area under a curve that stays at 1: 0.9, 0.8, 1, or 0.95 where the last point is set to 0."""
    fractions = DOMAINS[domain]
    return round(float(area(torch.ones(1, len(fractions)), fractions, domain)), 9)


def _of(values: StepLogits, classes: Labels) -> Curve:
    return values.gather(2, classes.expand(len(values), -1)[:, :, None])[:, :, 0].T


def _at_every_step(value: Tensor, steps: int) -> Tensor:
    return value.expand(steps, *value.shape)

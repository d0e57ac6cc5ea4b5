"""Perturbation: how the answer changes as the input is removed, most or least relevant first.

An explanation is faithful if the answer drops at once when relevant parts are removed (positive perturbation), and
stays when the others are (negative). The steps of all examples run as one batch:

steps = blanked(pixels, removed_pixels(scores, size, FRACTIONS), blank("black", mean, std))
by_step = curves(step_logits(forward, steps), labels, explained)
area(by_step.accuracy, FRACTIONS)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from whyformer.axes import (
    Curve,
    ExampleScores,
    Labels,
    Logits,
    StepLogits,
)
from whyformer.errors import WhyformerError, check_choice

Explained = Literal["predicted", "target"]
Domain = Literal["0-0.9", "0.1-0.9", "0-1", "0-1-zero"]
Steps = TypeVar("Steps", Tensor, dict[str, Any])

_TENTHS = tuple(number / 10 for number in range(11))
# The range of each area: TA's code, with the clean point; TA's paper; BI on CLIP; BI elsewhere, where the answer to an
# empty input is not measured but set to 0.
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
    """Output of each example at each step."""

    accuracy: Curve  # 1 if the label is still the most probable
    probability: Curve  # of the explained class
    logit: Curve


def explained_class(logits: Logits, labels: Labels, which: Explained = "predicted") -> Labels:
    """The explained class: the model's prediction, or the true one."""
    check_choice("explained", which, Explained)
    return logits.argmax(dim=1) if which == "predicted" else labels


def step_logits(forward: Callable[[Steps], Logits], steps: Steps) -> StepLogits:
    """Run the model on every example at every step, in one batch without a graph."""
    first = steps if isinstance(steps, Tensor) else next(iter(steps.values()))
    with torch.no_grad():
        if isinstance(steps, Tensor):
            logits: Logits = forward(steps.flatten(0, 1))
        else:
            logits = forward({name: value.flatten(0, 1) for name, value in steps.items()})
    answers: StepLogits = logits.unflatten(0, first.shape[:2])
    return answers


def curves(logits: StepLogits, labels: Labels, explained: Labels) -> Curves:
    """Accuracy, and probability and logit of the explained class."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return Curves(
        accuracy=(wide.argmax(dim=2) == labels).to(wide.dtype).T,
        probability=_of(wide.softmax(dim=2), explained),
        logit=_of(wide, explained),
    )


def soft_accuracy(logits: StepLogits, scores: Logits) -> Curve:
    """Soft accuracy of each prediction, given that of every answer to the question in `scores` (VQA)."""
    answers = logits.argmax(dim=2)
    return scores.gather(1, answers.T)


def area(values: Curve, fractions: Sequence[float], domain: Domain = "0-0.9") -> ExampleScores:
    """Area under each example's curve over a domain, by trapezoids; as published, not divided by its length."""
    check_choice("domain", domain, Domain)
    low, high = (0.1 if domain == "0.1-0.9" else 0.0), (0.9 if domain.endswith("0.9") else 1.0)
    ends_at_zero = domain == "0-1-zero"
    barely = 1e-9  # 9 · 0.1 may exceed 0.9
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
        raise WhyformerError(f"An area over {domain} needs the curve at {low} and {high}; it is measured at {known}.")
    return torch.trapezoid(heights, torch.tensor(places, dtype=heights.dtype, device=heights.device), dim=1)


def largest_area(domain: Domain = "0-0.9") -> float:
    """The area under a constant curve of 1: 0.9, 0.8, 1, or 0.95 if the last point is set to 0."""
    fractions = DOMAINS[domain]
    return round(float(area(torch.ones(1, len(fractions)), fractions, domain)), 9)


def _of(values: StepLogits, classes: Labels) -> Curve:
    return values.gather(2, classes.expand(len(values), -1)[:, :, None])[:, :, 0].T

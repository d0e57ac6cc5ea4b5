"""Gradients of scores with respect to recorded maps: all of them in one backward pass, or the last alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from whyformer.axes import AttentionMap, ExampleScores
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.tracing.tags import Tap

Gradient = Callable[[], AttentionMap]  # called, it makes the gradient of a map: one at a time is large enough


class HiddenGradient(WhyformerError):
    """The score has no gradient with respect to an attention map."""

    def __init__(self) -> None:
        super().__init__(
            "The score has no gradient with respect to an attention map: the target does not depend on it, or part "
            "of the model hides its graph (no_grad, torch.utils.checkpoint). Turn gradient checkpointing off."
        )


def gradients(scores: ExampleScores, taps: Sequence[Tap], batch: int) -> list[Gradient]:
    """The gradient of each example's score with respect to each of its maps."""
    found = gradients_or_none(scores, taps, batch)
    if any(gradient is None for gradient in found):
        raise HiddenGradient
    return [gradient for gradient in found if gradient is not None]


def gradients_or_none(
    scores: ExampleScores, taps: Sequence[Tap], batch: int, *, keep: bool = False
) -> list[Gradient | None]:
    """As `gradients`, with None for maps that the scores do not depend on. `keep` keeps the graph for another pass."""
    found = zip(taps, _backward(scores, taps, retain_graph=keep), strict=True)
    return [None if gradient is None else tap.gradient(gradient, batch) for tap, gradient in found]


def last_gradient(
    scores: ExampleScores, taps: Sequence[Tap], batch: int, *, keep: bool = False
) -> list[Gradient | None]:
    """The gradient of the last map that the scores depend on, and None for those before it."""
    for count in range(len(taps), 0, -1):
        (found,) = _backward(scores, taps[count - 1 : count], retain_graph=keep or count > 1)
        if found is not None:
            return [None] * (count - 1) + [taps[count - 1].gradient(found, batch)]
    raise HiddenGradient


def _backward(scores: ExampleScores, taps: Sequence[Tap], *, retain_graph: bool = False) -> list[Tensor | None]:
    if not scores.requires_grad:
        raise HiddenGradient
    asked = [tap.asked for tap in taps if tap.asked is not None]
    try:
        return list(torch.autograd.grad(scores.sum(), asked, retain_graph=retain_graph, allow_unused=True))
    except CheckpointError as error:
        raise HiddenGradient from error
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        raise UnsupportedModel("The model changes a tensor in place that its own gradient needs.") from error

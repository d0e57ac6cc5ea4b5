"""Gradients of scores with respect to recorded maps: all of them in one backward pass, or the last alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from whyformer.axes import ExampleScores
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.propagation.mode import Backward
from whyformer.propagation.rules import MAP_SHARES
from whyformer.tracing.record import GradientSource, gradient_source
from whyformer.tracing.tags import Tap


class HiddenGradient(WhyformerError):
    """The score has no gradient with respect to an attention map."""

    def __init__(self) -> None:
        super().__init__(
            "The score has no gradient with respect to an attention map: the target does not depend on it, or part "
            "of the model hides its graph (no_grad, torch.utils.checkpoint). Turn gradient checkpointing off; "
            "raw_attention and rollout need no gradient."
        )


def gradients(scores: ExampleScores, taps: Sequence[Tap], batch: int, backward: Backward) -> list[GradientSource]:
    """The gradient of each example's score with respect to each of its maps."""
    by_map = gradients_or_none(scores, taps, batch, backward)
    if any(gradient is None for gradient in by_map):
        raise HiddenGradient
    return [gradient for gradient in by_map if gradient is not None]


def gradients_or_none(
    scores: ExampleScores, taps: Sequence[Tap], batch: int, backward: Backward, *, keep: bool = False
) -> list[GradientSource | None]:
    """As `gradients`, with None for maps that the scores do not depend on. `keep` keeps the graph for another pass."""
    of_probes = _backward(scores, taps, retain_graph=keep)
    share = MAP_SHARES[backward]
    pairs = zip(taps, of_probes, strict=True)
    return [None if x is None else gradient_source(tap.map, x, batch, share) for tap, x in pairs]


def last_gradient(
    scores: ExampleScores, taps: Sequence[Tap], batch: int, backward: Backward, *, keep: bool = False
) -> list[GradientSource | None]:
    """The gradient of the last map that the scores depend on, and None for those before it."""
    for count in range(len(taps), 0, -1):
        (of_probe,) = _backward(scores, taps[count - 1 : count], retain_graph=keep or count > 1)
        if of_probe is not None:
            return [None] * (count - 1) + [gradient_source(taps[count - 1].map, of_probe, batch, MAP_SHARES[backward])]
    raise HiddenGradient


def _backward(scores: ExampleScores, taps: Sequence[Tap], *, retain_graph: bool = False) -> list[Tensor | None]:
    if not scores.requires_grad:
        raise HiddenGradient
    probes = [tap.probe for tap in taps if tap.probe is not None]
    try:
        return list(torch.autograd.grad(scores.sum(), probes, retain_graph=retain_graph, allow_unused=True))
    except CheckpointError as error:
        raise HiddenGradient from error
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        raise UnsupportedModel("The model changes a tensor in place that its own gradient needs.") from error

"""Backward passes to recorded maps: gradients of scores, and relevance by rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils.checkpoint import CheckpointError

from whyformer.axes import ExampleScores, by_head
from whyformer.backward.rules import BACKWARD_RULES, MAP_SHARES, Backward, Rule, map_quotient
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.watching.mixing import KeptMap, MixedGradient, Mixing, map_gradient
from whyformer.watching.tap import Tap, state_times_gradient

# Fragments of PyTorch's messages for a gradient that cannot be vectorised; it has no exception class for it.
VECTORISING = ("Batching rule not implemented", "vmap")


class HiddenGradient(WhyformerError):
    """The score has no gradient with respect to an attention map."""

    def __init__(self) -> None:
        super().__init__(
            "The score has no gradient with respect to an attention map: the target does not depend on it, or part "
            "of the model hides its graph (no_grad, torch.utils.checkpoint). Turn gradient checkpointing off; "
            "raw_attention and rollout need no gradient."
        )


def gradients(scores: ExampleScores, taps: Sequence[Tap], batch: int, backward: Backward) -> list[Mixing]:
    """The gradient of each example's score with respect to each of its maps."""
    by_map = gradients_or_none(scores, taps, batch, backward)
    if any(gradient is None for gradient in by_map):
        raise HiddenGradient
    return [gradient for gradient in by_map if gradient is not None]


def gradients_or_none(
    scores: ExampleScores,
    taps: Sequence[Tap],
    batch: int,
    backward: Backward,
    *,
    states: Sequence[Tap] = (),
    keep: bool = False,
) -> list[Mixing | None]:
    """Like `gradients`, with None for maps that the scores do not depend on. `keep` retains the graph.

    The same backward pass computes state × gradient of the residual states of `states`.
    """
    edges = [tap.outcome.state_edge for tap in states if tap.outcome.state_edge is not None]
    parts = _backward(scores, taps, batch, edges, retain_graph=keep)
    for tap, gradient in zip(states, parts[len(taps) :], strict=True):
        state = tap.outcome.state_before
        assert state is not None
        each = () if gradient is None else gradient.split(len(state))  # of the scores that share the pass
        tap.state_products = [state_times_gradient(state, part) for part in each]
    share, pairs = MAP_SHARES[backward], zip(taps, parts[: len(taps)], strict=True)
    return [None if x is None else map_gradient(tap.map, x, len(scores), share) for tap, x in pairs]


def last_gradient(
    scores: ExampleScores, taps: Sequence[Tap], batch: int, backward: Backward, *, keep: bool = False
) -> list[Mixing | None]:
    """The gradient of the last map that the scores depend on; None for those before it."""
    for count in range(len(taps), 0, -1):
        (of_probe,) = _backward(scores, taps[count - 1 : count], batch, retain_graph=keep or count > 1)
        if of_probe is not None:
            source = map_gradient(taps[count - 1].map, of_probe, len(scores), MAP_SHARES[backward])
            return [None] * (count - 1) + [source]
    raise HiddenGradient


def grad_of_each(
    scores: ExampleScores, inputs: Sequence[Tensor] | Sequence[GradientEdge], batch: int, *, retain_graph: bool
) -> list[Tensor | None]:
    """The gradient of each example's score; several scores of one example share a graph, and become examples.

    They share one backward pass too, unless an operation of the model has no vectorised gradient.
    """
    if len(scores) == batch:
        return list(torch.autograd.grad(scores.sum(), inputs, retain_graph=retain_graph, allow_unused=True))
    each = torch.eye(len(scores), dtype=scores.dtype, device=scores.device)
    try:
        parts = torch.autograd.grad(
            scores, inputs, each, is_grads_batched=True, retain_graph=retain_graph, allow_unused=True
        )
    except RuntimeError as error:
        if not any(words in str(error) for words in VECTORISING):
            raise
        each_score = (torch.autograd.grad(score, inputs, retain_graph=True, allow_unused=True) for score in scores)
        return [_joined(own) for own in zip(*each_score, strict=True)]
    return [None if part is None else part.flatten(0, 1) for part in parts]


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The gradients of one tensor as examples, 0 for scores that do not depend on it."""
    known = next((part for part in parts if part is not None), None)
    return None if known is None else torch.cat([torch.zeros_like(known) if part is None else part for part in parts])


def _backward(
    scores: ExampleScores,
    taps: Sequence[Tap],
    batch: int,
    states: Sequence[GradientEdge] = (),
    *,
    retain_graph: bool = False,
) -> list[Tensor | None]:
    if not scores.requires_grad:
        raise HiddenGradient
    probes = [get_gradient_edge(tap.probe) for tap in taps if tap.probe is not None]
    try:
        return grad_of_each(scores, [*probes, *states], batch, retain_graph=retain_graph)
    except CheckpointError as error:
        raise HiddenGradient from error
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        raise UnsupportedModel("The model changes a tensor in place that its own gradient needs.") from error


@dataclass(frozen=True)
class BackwardPass:
    """A backward pass by rules, or by gradient without any."""

    rules: Mapping[str, Rule] | None = None
    precise: bool = False
    strict: bool = False
    map_share: float = 1.0  # of the gradient of the mixed values
    is_gradient: bool = False  # by rules: relevance is gradient × value

    @property
    def can_fold(self) -> bool:
        """Whether attention can be a single operation: by gradient, or by a rule for it as a whole."""
        return self.rules is None or "attention" in self.rules

    def relevance(self, part: Tensor, value: Tensor) -> Tensor:
        """The relevance of a value, given the result of the pass there."""
        return part * value if self.is_gradient else part

    def worth(self, part: Tensor, mixed: Tensor) -> Tensor:
        """The relevance per unit of the mixed values, given the result of the pass there."""
        assert self.rules is not None
        return part if self.is_gradient else map_quotient(self.rules)(part, mixed)


def backward_pass(backward: Backward, *, precise: bool = False) -> BackwardPass:
    """Plain gradients, or those of LibraGrad's or AttnLRP's rules."""
    return BackwardPass(BACKWARD_RULES.get(backward), precise, map_share=MAP_SHARES[backward])


def map_relevance(tap: Tap, passes: Sequence[tuple[BackwardPass, Tensor | None]], batch: int) -> Mixing | None:
    """The relevance of a map; None if the pass does not reach it.

    Of two passes, the first is of the positive part of the score and the second of the negative part.
    """
    assert tap.probe is not None
    value = tap.probe.detach()
    parts = [(one, part) for one, part in passes if part is not None]
    if len(parts) < len(passes):
        return None
    if isinstance(tap.map, Tensor):
        return KeptMap(by_head(difference([one.relevance(part, value) for one, part in parts]), batch))
    return MixedGradient(tap.map, difference([one.worth(part, value) for one, part in parts]), map_share=0.5)


def difference(parts: Sequence[Tensor]) -> Tensor:
    """The positive part minus the negative part, if there are two."""
    return parts[0] if len(parts) == 1 else parts[0] - parts[1]

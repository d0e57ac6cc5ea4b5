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

# What PyTorch says of an operation whose gradient it cannot vectorise; it has no class for it.
VECTORISING = ("Batching rule not implemented", "vmap")


class HiddenGradient(WhyformerError):
    """The score has no gradient with respect to an attention map."""

    def __init__(self) -> None:
        super().__init__(
            "The score has no gradient with respect to an attention map: the target does not depend on it, or part "
            "of the model hides its graph (no_grad, torch.utils.checkpoint). Turn gradient checkpointing off; "
            "raw_attention and rollout need no gradient."
        )


class NotVectorised(UnsupportedModel):
    """Several scores cannot go back together: an operation has no vectorised gradient."""


def gradients(scores: ExampleScores, taps: Sequence[Tap], batch: int, backward: Backward) -> list[Mixing]:
    """The gradient of each example's score with respect to each of its maps."""
    by_map = gradients_or_none(scores, taps, batch, backward)
    if any(gradient is None for gradient in by_map):
        raise HiddenGradient
    return [gradient for gradient in by_map if gradient is not None]


def gradients_or_none(
    scores: ExampleScores, taps: Sequence[Tap], batch: int, backward: Backward, *, keep: bool = False
) -> list[Mixing | None]:
    """As `gradients`, with None for maps that the scores do not depend on. `keep` keeps the graph for another pass."""
    return gradients_with_states(scores, taps, (), batch, backward, keep=keep)


def gradients_with_states(
    scores: ExampleScores,
    taps: Sequence[Tap],
    states: Sequence[Tap],
    batch: int,
    backward: Backward,
    *,
    keep: bool = False,
) -> list[Mixing | None]:
    """The gradients of the maps; by the same backward pass residual states get their products with their gradients."""
    edges = [tap.outcome.state_edge for tap in states if tap.outcome.state_edge is not None]
    parts = _backward(scores, taps, batch, edges, retain_graph=keep)
    for tap, gradient in zip(states, parts[len(taps) :], strict=True):
        assert tap.outcome.state_before is not None
        tap.state_product = state_times_gradient(tap.outcome.state_before, gradient)
    share, pairs = MAP_SHARES[backward], zip(taps, parts[: len(taps)], strict=True)
    return [None if x is None else map_gradient(tap.map, x, len(scores), share) for tap, x in pairs]


def last_gradient(
    scores: ExampleScores, taps: Sequence[Tap], batch: int, backward: Backward, *, keep: bool = False
) -> list[Mixing | None]:
    """The gradient of the last map that the scores depend on, and None for those before it."""
    for count in range(len(taps), 0, -1):
        (of_probe,) = _backward(scores, taps[count - 1 : count], batch, retain_graph=keep or count > 1)
        if of_probe is not None:
            source = map_gradient(taps[count - 1].map, of_probe, len(scores), MAP_SHARES[backward])
            return [None] * (count - 1) + [source]
    raise HiddenGradient


def grad_of_each(
    scores: ExampleScores, inputs: Sequence[Tensor] | Sequence[GradientEdge], batch: int, *, retain_graph: bool
) -> list[Tensor | None]:
    """The gradient of each example's score; several scores of one example go back together, and become examples."""
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
        raise NotVectorised(f"Several scores cannot go back together here: {error}") from error
    return [None if part is None else part.flatten(0, 1) for part in parts]


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
    """How something goes back: by rules, or as a gradient where there are none."""

    rules: Mapping[str, Rule] | None = None
    precise: bool = False
    strict: bool = False
    map_share: float = 1.0  # of the gradient of what a map has mixed
    is_gradient: bool = False  # by rules: relevance is that times the value there

    @property
    def can_fold(self) -> bool:
        """Whether attention can be one operation on the way: as a gradient, or by a rule for it as a whole."""
        return self.rules is None or "attention" in self.rules

    def relevance(self, part: Tensor, value: Tensor) -> Tensor:
        """The relevance of a value, of what has come back to it."""
        return part * value if self.is_gradient else part

    def worth(self, part: Tensor, mixed: Tensor) -> Tensor:
        """What each unit of the values that a map mixed is worth, of what has come back to them."""
        assert self.rules is not None
        return part if self.is_gradient else map_quotient(self.rules)(part, mixed)


def backward_pass(backward: Backward, *, precise: bool = False) -> BackwardPass:
    """Gradients as they are, or by LibraGrad's or AttnLRP's rules."""
    return BackwardPass(BACKWARD_RULES.get(backward), precise, map_share=MAP_SHARES[backward])


def map_relevance(tap: Tap, passes: Sequence[tuple[BackwardPass, Tensor | None]], batch: int) -> Mixing | None:
    """The relevance of a map; None where none has come back.

    Of two passes the first is of what speaks for the score, the second of what speaks against it.
    """
    assert tap.probe is not None
    value = tap.probe.detach()
    parts = [(way, part) for way, part in passes if part is not None]
    if len(parts) < len(passes):
        return None
    if isinstance(tap.map, Tensor):
        return KeptMap(by_head(difference([way.relevance(part, value) for way, part in parts]), batch))
    return MixedGradient(tap.map, difference([way.worth(part, value) for way, part in parts]), map_share=0.5)


def difference(parts: Sequence[Tensor]) -> Tensor:
    """What speaks for something, less what speaks against it where that is told apart."""
    return parts[0] if len(parts) == 1 else parts[0] - parts[1]

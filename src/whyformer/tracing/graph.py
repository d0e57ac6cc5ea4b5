"""The graph of one forward pass, kept so that relevance or gradients can be taken back through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from whyformer.axes import AttentionMap, ExampleScores, StreamScores, by_head
from whyformer.propagation.mode import Backward, PropagationMode, using_backward
from whyformer.propagation.rules import GRADIENT_FORMS, RULES, Rule, Rules, balanced_sum
from whyformer.targets.scores import Score
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.blocks import BlockPass, WayBack
from whyformer.tracing.gradients import HiddenGradient, grad_of_each
from whyformer.tracing.positions import PositionLeaf
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.scaling import Leaf
from whyformer.tracing.tap import Tap

SCORED = ("attn_lrp", "cp_lrp")  # whose relevance is that of the score, not of 1


@dataclass(frozen=True, eq=False)
class End:
    """A tensor of the model's output that the score is read from: the gradient of the score there, and its part of it.

    The embeddings of a dual encoder are multiplied with each other: `embeddings` says how many share the score.
    """

    value: Tensor
    gradient: Tensor
    embeddings: int = 0

    @property
    def shared_gradient(self) -> Tensor:
        """The gradient of the score; of a product of embeddings, each one's share of it."""
        return self.gradient / self.embeddings if self.embeddings else self.gradient

    def start(self, rules: Rules, score: ExampleScores) -> Tensor:
        """The relevance that starts here: its part of the score for the ε-rules, else 1 where a logit is read."""
        part = self.shared_gradient * self.value.detach()
        if rules in SCORED:
            return part
        return part / score.detach().abs()[:, None] if self.embeddings else self.gradient


def ends_of(score: Score, output: Any) -> list[End]:
    """Where relevance starts: what the score itself does is taken back by its gradient, not by rules."""
    leaves, shape = tree_flatten(output)
    places = [n for n, x in enumerate(leaves) if isinstance(x, Tensor) and x.requires_grad]
    cut = {n: leaves[n].detach().requires_grad_() for n in places}
    with torch.enable_grad():
        scores = score(tree_unflatten([cut.get(n, x) for n, x in enumerate(leaves)], shape))
    if not scores.requires_grad:
        raise HiddenGradient
    gradients = torch.autograd.grad(scores.sum(), list(cut.values()), allow_unused=True) if cut else ()
    ends = [(leaves[n], gradient) for n, gradient in zip(places, gradients, strict=True) if gradient is not None]
    if not ends:  # an output that cannot be taken apart
        return [End(scores, torch.ones_like(scores))]
    embeddings = [getattr(output, name, None) for name in ("image_embeds", "text_embeds")]
    count = sum(any(value is x for x in embeddings) for value, _ in ends)
    return [End(value, g, count if any(value is x for x in embeddings) else 0) for value, g in ends]


@dataclass(frozen=True)
class MapRelevances:
    """The relevance of maps, by the number of their operation, and what a reader must know of how it came about."""

    by_operation: Mapping[int, AttentionMap]
    remarks: tuple[str, ...] = ()

    def __getitem__(self, record: AttentionRecord) -> AttentionMap:
        return self.by_operation[record.operation]


@dataclass(frozen=True, eq=False)
class Graph:
    """The score of each example, where it is read, and what of: the maps by operation, the inputs by stream.

    Pixels are a stream of their own; of word pieces and regions the inputs are their embeddings.
    """

    score: ExampleScores
    ends: Sequence[End]
    taps: Mapping[int, Tap]
    leaves: Mapping[str, Leaf]
    batch: int
    mode: PropagationMode | None = None
    blocks: BlockPass | None = None  # where the way back goes block by block
    positions: Sequence[PositionLeaf] = ()

    def map_relevances(self, rules: Rules, *, strict: bool = True) -> MapRelevances:
        """The relevance of each map that the score depends on; the graph is used up."""
        maps = [tap.probe for tap in self.taps.values() if tap.probe is not None]
        parts = zip(self.taps, self._relevance(maps, rules, strict=strict), strict=True)
        by_operation = {operation: by_head(part, self.batch) for operation, part in parts if part is not None}
        return MapRelevances(by_operation, self._remarks(rules))

    def input_relevances(self, rules: Rules, *, strict: bool = True) -> Attribution:
        """The relevance of each input, pixels or embeddings, summed over channels; the graph is used up.

        That of a position is added to the token that stands there, where positions are inputs.
        """
        inputs = [leaf.value for leaf in self.leaves.values()]
        parts = self._relevance([*inputs, *(value for _, value in self.positions)], rules, strict=strict)
        scores = self._by_stream(parts[: len(inputs)])
        for (stream, _), part in zip(self.positions, parts[len(inputs) :], strict=True):
            if part is not None:  # where words are scored with their positions, these have no path of their own
                scores[stream] = scores[stream] + part.detach().sum(dim=-1)
        # The reference's "lrp" doubles what it hands on; with pixels, positions and class tokens have their share.
        adds_up = rules != "lrp" and not self._has_pixels
        completeness = incompleteness(scores, *self._starts(rules)) if adds_up else None
        return Attribution(scores, completeness, self._remarks(rules))

    def inputs_times_gradients(self, backward: Backward) -> Attribution:
        """Each input times its gradient, summed over channels; by rules they add up to the score, but for biases."""
        leaves = [leaf.value for leaf in self.leaves.values()]
        with using_backward(self.mode, backward):
            gradients = (
                grad_of_each(self.score, leaves, self.batch, retain_graph=False)
                if self.blocks is None
                else self.blocks.before(leaves)
            )
        parts = [None if part is None else part * x for part, x in zip(gradients, leaves, strict=True)]
        scores = self._by_stream(parts)
        adds_up = backward != "gradient" and not self._has_pixels
        return Attribution(scores, incompleteness(scores, self.score.detach()) if adds_up else None)

    def _nothing(self, leaf: Leaf) -> Tensor:
        """Zeros for an input that the scores do not depend on."""
        return torch.zeros_like(leaf.value).repeat(len(self.score) // self.batch, *[1] * (leaf.value.dim() - 1))

    @property
    def _has_pixels(self) -> bool:
        return any(stream == "pixels" or leaf.by_patch is not None for stream, leaf in self.leaves.items())

    def _starts(self, rules: Rules) -> list[Tensor]:
        """The relevance that each end starts with."""
        return [end.start(rules, self.score) for end in self.ends]

    def _remarks(self, rules: Rules) -> tuple[str, ...]:
        assert self.mode is not None
        without_rule = f"Passed as a gradient, for want of a rule: {', '.join(sorted(self.mode.without_rule))}."
        wide = f"The model is in {self.mode.half}; relevance was computed in float32."
        coarse = f"By the rules of {rules}, half precision and TF32 were seen to change the ranking: see precision."
        applies = {
            without_rule: bool(self.mode.without_rule),
            wide: self.mode.precise and self.mode.half is not None,
            coarse: self.mode.is_coarse and rules not in GRADIENT_FORMS,
        }
        return tuple(remark for remark, is_true in applies.items() if is_true)

    def _relevance(self, wanted: list[Tensor], rules: Rules, *, strict: bool) -> list[Tensor | None]:
        assert self.mode is not None
        if not self.mode.precise and rules in GRADIENT_FORMS:
            starts = [end.shared_gradient for end in self.ends]
            gradients = self._backward(wanted, starts, GRADIENT_FORMS[rules], strict=strict, keep=False)
            return _reached([None if g is None else g * x.detach() for g, x in zip(gradients, wanted, strict=True)])
        starts, is_balanced = self._starts(rules), RULES[rules]["add"] is balanced_sum
        if is_balanced and self.mode.has_ambiguous_axis:
            for example in (0, self.batch - 1):  # one alone may stand where its token's number is
                with self.mode.using_gradient_of(example):
                    torch.autograd.grad(self.score[example], wanted, retain_graph=True, allow_unused=True)
        against = [-part.clamp(max=0) for part in starts]
        if not is_balanced or any(end.embeddings for end in self.ends) or not any(bool(x.any()) for x in against):
            relevances = self._backward(wanted, starts, RULES[rules], strict=strict, keep=False)
        else:  # balanced sums make nothing of relevance that adds up to nothing, as that of a contrast
            favour = self._backward(wanted, [x.clamp(min=0) for x in starts], RULES[rules], strict=strict, keep=True)
            rest = self._backward(wanted, against, RULES[rules], strict=strict, keep=False)
            relevances = [None if x is None or y is None else x - y for x, y in zip(favour, rest, strict=True)]
        return _reached(relevances)

    def _backward(
        self, wanted: list[Tensor], starts: list[Tensor], rules: Mapping[str, Rule], *, strict: bool, keep: bool
    ) -> list[Tensor | None]:
        assert self.mode is not None
        ends = [end.value for end in self.ends]
        if self.blocks is not None:
            self.blocks.begin(ends, starts, self.mode, WayBack(rules, self.mode.precise, strict))
            with self.mode.using(rules, strict=strict):
                relevances = self.blocks.before(wanted)
            self.mode.without_rule |= self.blocks.without_rule
            return list(relevances)
        with self.mode.using(rules, strict=strict, keep=keep):
            return list(torch.autograd.grad(ends, wanted, starts, retain_graph=keep, allow_unused=True))

    def _by_stream(self, parts: Sequence[Tensor | None]) -> StreamScores:
        return {
            stream: leaf.scores(stream, self._nothing(leaf) if part is None else part)
            for (stream, leaf), part in zip(self.leaves.items(), parts, strict=True)
        }


def _reached(relevances: list[Tensor | None]) -> list[Tensor | None]:
    """The relevances, some of which must be there."""
    if all(part is None for part in relevances):
        raise HiddenGradient
    return relevances


def incompleteness(scores: StreamScores, *starts: Tensor) -> ExampleScores:
    """How far the scores are from adding up to what was there to share out, as a share of it, whatever its signs."""
    batch = len(next(iter(scores.values())))
    added = torch.stack([values.sum(dim=1) for values in scores.values()]).sum(dim=0)
    whole = torch.cat([start.reshape(batch, -1) for start in starts], dim=1)
    return (added - whole.sum(dim=1)).abs() / whole.abs().sum(dim=1)

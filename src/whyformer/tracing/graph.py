"""The graph of a forward pass, kept for relevance or gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from whyformer.axes import AttentionMap, ExampleScores, StreamScores
from whyformer.backward.blocks import BlockPass
from whyformer.backward.passes import BackwardPass, HiddenGradient, difference, grad_of_each, map_relevance
from whyformer.backward.rule_graph import RuleGraph, using_rules
from whyformer.backward.rules import GRADIENT_FORMS, RULES, Backward, Rules, balanced_sum
from whyformer.targets.scores import Score
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.leaves import Leaf
from whyformer.tracing.positions import PositionLeaf
from whyformer.tracing.record import AttentionRecord
from whyformer.watching.mixing import Lazy, Mixing
from whyformer.watching.tap import Tap

SCORED = ("attn_lrp", "cp_lrp")  # rule sets that start from the score, not from 1


@dataclass(frozen=True, eq=False)
class End:
    """A tensor of the model's output that the score depends on, with the gradient of the score there.

    The score of a dual encoder is a product of embeddings: `embeddings` is the number of those that share it.
    """

    value: Tensor
    gradient: Tensor
    embeddings: int = 0

    @property
    def shared_gradient(self) -> Tensor:
        """The gradient of the score; for a product of embeddings, this one's share of it."""
        return self.gradient / self.embeddings if self.embeddings else self.gradient

    def start(self, rules: Rules, score: ExampleScores) -> Tensor:
        """The initial relevance: this tensor's part of the score for the ε-rules, otherwise 1 at the logit."""
        part = self.shared_gradient * self.value.detach()
        if rules in SCORED:
            return part
        return part / score.detach().abs()[:, None] if self.embeddings else self.gradient


def ends_of(score: Score, output: Any) -> list[End]:
    """The tensors where relevance starts; the score function itself is backpropagated by gradient, not by rules."""
    leaves, shape = tree_flatten(output)
    places = [n for n, x in enumerate(leaves) if isinstance(x, Tensor) and x.requires_grad]
    cut = {n: leaves[n].detach().requires_grad_() for n in places}
    with torch.enable_grad():
        scores = score(tree_unflatten([cut.get(n, x) for n, x in enumerate(leaves)], shape))
    if not scores.requires_grad:
        raise HiddenGradient
    gradients = torch.autograd.grad(scores.sum(), list(cut.values()), allow_unused=True) if cut else ()
    ends = [(leaves[n], gradient) for n, gradient in zip(places, gradients, strict=True) if gradient is not None]
    if not ends:  # an output that cannot be flattened
        return [End(scores, torch.ones_like(scores))]
    embeddings = [getattr(output, name, None) for name in ("image_embeds", "text_embeds")]
    count = sum(any(value is x for x in embeddings) for value, _ in ends)
    return [End(value, g, count if any(value is x for x in embeddings) else 0) for value, g in ends]


@dataclass(frozen=True)
class MapRelevances:
    """The relevance of maps, by operation."""

    by_operation: Mapping[int, Mixing]
    read_remarks: Callable[[], tuple[str, ...]] = tuple

    def on(self, record: AttentionRecord) -> AttentionRecord:
        """Add its relevance to a record, None if the score does not depend on it."""
        return replace(record, relevance_source=self.by_operation.get(record.operation))

    def __getitem__(self, record: AttentionRecord) -> AttentionMap:
        return self.on(record).relevance

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on how the relevance was computed, complete once it has been read."""
        return self.read_remarks()


@dataclass(frozen=True, eq=False)
class Graph:
    """The score of each example, the ends it is read from, the maps by operation, and the inputs by stream.

    Pixels are a separate stream; the inputs of word pieces and regions are their embeddings.
    """

    score: ExampleScores
    ends: Sequence[End]
    taps: Mapping[int, Tap]
    leaves: Mapping[str, Leaf]
    batch: int
    rule_graph: RuleGraph | None = None
    blocks: BlockPass | None = None  # if the backward pass runs block by block
    positions: Sequence[PositionLeaf] = ()
    keep: bool = False  # for another score

    def map_relevances(self, rules: Rules, *, strict: bool = True) -> MapRelevances:
        """The relevance of each map that the score depends on. Frees the graph, unless it is kept."""
        remarks = partial(self._remarks, rules)
        if self.blocks is not None:
            assert self.rule_graph is not None
            self.blocks.begin_relevance([end.value for end in self.ends], self._passes(rules, strict), self.rule_graph)
            relevance, device = self.blocks.relevance, self.score.device
            later = {
                n: Lazy(partial(relevance, n), tap.map.shape, tap.map.dtype, device) for n, tap in self.taps.items()
            }
            return MapRelevances(later, remarks)
        probes = [tap.probe for tap in self.taps.values() if tap.probe is not None]
        passes, parts = self._backpropagate(probes, rules, strict=strict)
        sources = {
            operation: map_relevance(tap, list(zip(passes, of_probe, strict=True)), self.batch)
            for (operation, tap), of_probe in zip(self.taps.items(), parts, strict=True)
        }
        reached = {operation: source for operation, source in sources.items() if source is not None}
        if not reached:
            raise HiddenGradient
        return MapRelevances(reached, remarks)

    def input_relevances(self, rules: Rules, *, strict: bool = True) -> Attribution:
        """The relevance of each input, pixels or embeddings, summed over channels. Frees the graph.

        If positions are inputs, their relevance is added to the tokens at these positions.
        """
        inputs = [leaf.value for leaf in self.leaves.values()]
        parts = self._relevance([*inputs, *(value for _, value in self.positions)], rules, strict=strict)
        scores = self._by_stream(parts[: len(inputs)])
        for (stream, _), part in zip(self.positions, parts[len(inputs) :], strict=True):
            if part is not None:  # None where word embeddings already include positions
                scores[stream] = scores[stream] + part.detach().sum(dim=-1)
        # The reference's "lrp" doubles relevance; with pixels, positions and class tokens have a share.
        adds_up = rules != "lrp" and not self._has_pixels
        completeness = incompleteness(scores, *self._starts(rules)) if adds_up else None
        return Attribution(scores, completeness, self._remarks(rules))

    def inputs_times_gradients(self, backward: Backward) -> Attribution:
        """Each input × gradient, summed over channels; by rules they add up to the score, except for biases."""
        leaves = [leaf.value for leaf in self.leaves.values()]
        with using_rules(self.rule_graph, backward):
            gradients = (
                grad_of_each(self.score, leaves, self.batch, retain_graph=self.keep)
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
        """The initial relevance of each end."""
        return [end.start(rules, self.score) for end in self.ends]

    def _remarks(self, rules: Rules) -> tuple[str, ...]:
        assert self.rule_graph is not None
        missing = self.rule_graph.without_rule | (set() if self.blocks is None else self.blocks.without_rule)
        without_rule = f"Backpropagated by gradient, without a rule: {', '.join(sorted(missing))}."
        wide = f"The model is in {self.rule_graph.half}; relevance was computed in float32."
        coarse = f"With rules={rules!r}, half precision and TF32 can change the ranking: see precision."
        applies = {
            without_rule: bool(missing),
            wide: self.rule_graph.precise and self.rule_graph.half is not None,
            coarse: self.rule_graph.is_coarse and rules not in GRADIENT_FORMS,
        }
        return tuple(remark for remark, is_true in applies.items() if is_true)

    def _relevance(self, leaves: list[Tensor], rules: Rules, *, strict: bool) -> list[Tensor | None]:
        """The relevance of each tensor; raise if none has any."""
        passes, parts = self._backpropagate(leaves, rules, strict=strict)
        relevances: list[Tensor | None] = []
        for value, of_value in zip(leaves, parts, strict=True):
            known = [
                one_pass.relevance(x, value.detach())
                for one_pass, x in zip(passes, of_value, strict=True)
                if x is not None
            ]
            relevances.append(difference(known) if len(known) == len(passes) else None)
        if all(relevance is None for relevance in relevances):
            raise HiddenGradient
        return relevances

    def _backpropagate(
        self, leaves: list[Tensor], rules: Rules, *, strict: bool
    ) -> tuple[list[BackwardPass], list[tuple[Tensor | None, ...]]]:
        """The passes of a relevance, and the result of each at every tensor."""
        assert self.rule_graph is not None
        if RULES[rules]["add"] is balanced_sum and self.rule_graph.has_ambiguous_axis:
            for example in (0, self.batch - 1):  # an example may coincide with its token's index, but not both
                with self.rule_graph.using_gradient_of(example):
                    torch.autograd.grad(self.score[example], leaves, retain_graph=True, allow_unused=True)
        passes = self._passes(rules, strict)
        parts = [
            self._backward(leaves, starts, one_pass, keep=self.keep or n < len(passes))
            for n, (one_pass, starts) in enumerate(passes, 1)
        ]
        return [one_pass for one_pass, _ in passes], list(zip(*parts, strict=True))

    def _passes(self, rules: Rules, strict: bool) -> list[tuple[BackwardPass, list[Tensor]]]:
        """The passes of relevance with their start at each end: one, or one each for positive and negative parts."""
        assert self.rule_graph is not None
        precise = self.rule_graph.precise
        if not precise and rules in GRADIENT_FORMS:
            one_pass = BackwardPass(GRADIENT_FORMS[rules], precise, strict, is_gradient=True)
            return [(one_pass, [end.shared_gradient for end in self.ends])]
        one_pass, starts = BackwardPass(RULES[rules], precise, strict), self._starts(rules)
        negative = [-part.clamp(max=0) for part in starts]
        is_one_sided = any(end.embeddings for end in self.ends) or not any(bool(x.any()) for x in negative)
        if RULES[rules]["add"] is not balanced_sum or is_one_sided:
            return [(one_pass, starts)]
        # Balanced sums turn relevance that sums to 0, such as a contrast's, into 0.
        return [(one_pass, [part.clamp(min=0) for part in starts]), (one_pass, negative)]

    def _backward(
        self, leaves: list[Tensor], starts: list[Tensor], one_pass: BackwardPass, *, keep: bool
    ) -> Sequence[Tensor | None]:
        assert self.rule_graph is not None
        assert one_pass.rules is not None
        ends = [end.value for end in self.ends]
        if self.blocks is not None:
            self.blocks.begin(ends, starts, self.rule_graph, one_pass)
            with self.rule_graph.using(one_pass.rules, strict=one_pass.strict):
                return self.blocks.before(leaves)
        with self.rule_graph.using(one_pass.rules, strict=one_pass.strict, keep=keep):
            return torch.autograd.grad(ends, leaves, starts, retain_graph=keep, allow_unused=True)

    def _by_stream(self, parts: Sequence[Tensor | None]) -> StreamScores:
        return {
            stream: leaf.scores(stream, self._nothing(leaf) if part is None else part)
            for (stream, leaf), part in zip(self.leaves.items(), parts, strict=True)
        }


def incompleteness(scores: StreamScores, *starts: Tensor) -> ExampleScores:
    """The difference between the sum of the scores and the initial relevance, relative to its absolute sum."""
    batch = len(next(iter(scores.values())))
    added = torch.stack([values.sum(dim=1) for values in scores.values()]).sum(dim=0)
    whole = torch.cat([start.reshape(batch, -1) for start in starts], dim=1)
    return (added - whole.sum(dim=1)).abs() / whole.abs().sum(dim=1)

"""The graph of one forward pass, kept so that relevance or gradients can be taken back through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from whyformer.axes import AttentionMap, ExampleScores, StreamScores, by_head
from whyformer.propagation.mode import Backward, PropagationMode, following
from whyformer.propagation.rules import RULES, Rules, balanced
from whyformer.targets.scores import Score
from whyformer.tracing.gradients import HiddenGradient
from whyformer.tracing.path import Leaf, by_token
from whyformer.tracing.tags import Tap

SCORED = ("attn_lrp", "cp_lrp")  # whose relevance is that of the score, not of 1


@dataclass(frozen=True, eq=False)
class End:
    """A tensor of the model's output that the score is read from: the gradient of the score there, and its part of it.

    The embeddings of a dual encoder are multiplied with each other: `embeddings` says how many share the score.
    """

    value: Tensor
    gradient: Tensor
    embeddings: int = 0

    def start(self, rules: Rules, score: ExampleScores) -> Tensor:
        """The relevance that starts here: its part of the score for the ε-rules, else 1 where a logit is read."""
        part = self.gradient * self.value.detach()
        if self.embeddings:
            part = part / self.embeddings
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
    ruled: PropagationMode | None = None

    def relevances(self, rules: Rules, *, strict: bool = True) -> dict[int, AttentionMap]:
        """The relevance of each map that the score depends on; the graph is used up."""
        maps = [tap.asked for tap in self.taps.values() if tap.asked is not None]
        found = self._relevance(maps, rules, strict=strict)
        return {
            operation: by_head(part, self.batch)
            for operation, part in zip(self.taps, found, strict=True)
            if part is not None
        }

    def input_relevances(self, rules: Rules, *, strict: bool = True) -> StreamScores:
        """The relevance of each input, its channels summed; the graph is used up."""
        found = self._relevance([leaf.value for leaf in self.leaves.values()], rules, strict=strict)
        return self._by_token(found)

    def inputs_times_gradients(self, backward: Backward) -> StreamScores:
        """Each input times its gradient, summed over its channels."""
        leaves = [leaf.value for leaf in self.leaves.values()]
        with following(self.ruled, backward):
            found = torch.autograd.grad(self.score.sum(), leaves, allow_unused=True)
        return self._by_token([None if part is None else part * x for part, x in zip(found, leaves, strict=True)])

    def starts(self, rules: Rules) -> list[Tensor]:
        """The relevance that each end starts with."""
        return [end.start(rules, self.score) for end in self.ends]

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader of relevance must know of how it came about."""
        assert self.ruled is not None
        passed = f"Passed as a gradient, for want of a rule: {', '.join(sorted(self.ruled.passed))}."
        wide = f"The model is in {self.ruled.half}; relevance was computed in float32."
        return (passed,) * bool(self.ruled.passed) + (wide,) * bool(self.ruled.half)

    def _relevance(self, wanted: list[Tensor], rules: Rules, *, strict: bool) -> list[Tensor | None]:
        assert self.ruled is not None
        starts, is_balanced = self.starts(rules), RULES[rules]["add"] is balanced
        if is_balanced and self.ruled.is_unclear:
            for example in (0, self.batch - 1):  # one alone may stand where its token's number is
                with self.ruled.settling(example):
                    torch.autograd.grad(self.score[example], wanted, retain_graph=True, allow_unused=True)
        against = [-part.clamp(max=0) for part in starts]
        if not is_balanced or any(end.embeddings for end in self.ends) or not any(bool(x.any()) for x in against):
            found = self._back(wanted, starts, rules, strict=strict, keep=False)
        else:  # balanced sums make nothing of relevance that adds up to nothing, as that of a contrast
            favour = self._back(wanted, [x.clamp(min=0) for x in starts], rules, strict=strict, keep=True)
            rest = self._back(wanted, against, rules, strict=strict, keep=False)
            found = [None if x is None or y is None else x - y for x, y in zip(favour, rest, strict=True)]
        if all(part is None for part in found):
            raise HiddenGradient
        return found

    def _back(
        self, wanted: list[Tensor], starts: list[Tensor], rules: Rules, *, strict: bool, keep: bool
    ) -> list[Tensor | None]:
        assert self.ruled is not None
        ends = [end.value for end in self.ends]
        with self.ruled.following(RULES[rules], strict=strict, keep=keep):
            return list(torch.autograd.grad(ends, wanted, starts, retain_graph=keep, allow_unused=True))

    def _by_token(self, found: list[Tensor | None]) -> StreamScores:
        parts = zip(self.leaves.items(), found, strict=True)
        return {
            stream: by_token(stream, torch.zeros_like(leaf.value) if part is None else part)
            for (stream, leaf), part in parts
        }

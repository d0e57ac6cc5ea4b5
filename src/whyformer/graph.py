"""The graph of one forward pass, kept so that relevance or gradients can be taken back through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from whyformer.axes import AttentionMap, ExampleScores, StreamScores, by_head
from whyformer.backward import HiddenGradient
from whyformer.path import Leaf, by_token
from whyformer.provenance import Tap
from whyformer.ruled import Backward, Ruled, following
from whyformer.rules import RULES, Rules


@dataclass(frozen=True, eq=False)
class Graph:
    """The score of each example, and what of: the maps by their operation, the inputs by their stream.

    Pixels are a stream of their own; of word pieces and regions the inputs are their embeddings.
    """

    score: ExampleScores
    taps: Mapping[int, Tap]
    leaves: Mapping[str, Leaf]
    batch: int
    ruled: Ruled | None = None

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

    def start(self, rules: Rules) -> ExampleScores:
        """What relevance starts as: the score itself where the ε-rules are followed, else 1."""
        return self.score.detach() if rules in ("attn_lrp", "cp_lrp") else torch.ones_like(self.score)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader of relevance must know of how it came about."""
        assert self.ruled is not None
        passed = f"Passed as a gradient, for want of a rule: {', '.join(sorted(self.ruled.passed))}."
        wide = f"The model is in {self.ruled.half}; relevance was computed in float32."
        return (passed,) * bool(self.ruled.passed) + (wide,) * bool(self.ruled.half)

    def _relevance(self, wanted: list[Tensor], rules: Rules, *, strict: bool) -> list[Tensor | None]:
        assert self.ruled is not None
        with self.ruled.following(RULES[rules], strict=strict, keep=False):
            found = torch.autograd.grad(self.score, wanted, self.start(rules), allow_unused=True)
        if all(part is None for part in found):
            raise HiddenGradient
        return list(found)

    def _by_token(self, found: list[Tensor | None]) -> StreamScores:
        parts = zip(self.leaves.items(), found, strict=True)
        return {
            stream: by_token(stream, torch.zeros_like(leaf.value) if part is None else part)
            for (stream, leaf), part in parts
        }

"""The graph of one forward pass, kept so that relevance or gradients can be taken back through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from whyformer.axes import AttentionMap, ExampleScores, StreamScores, TokenScores, by_head
from whyformer.backward import HiddenGradient
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
    leaves: Mapping[str, Tensor]
    batch: int
    ruled: Ruled | None = None

    def relevances(self, rules: Rules, *, strict: bool = True) -> dict[int, AttentionMap]:
        """The relevance of each map that the score depends on."""
        found = self._relevance([tap.map for tap in self.taps.values()], rules, strict=strict)
        return {
            operation: by_head(part, self.batch)
            for operation, part in zip(self.taps, found, strict=True)
            if part is not None
        }

    def input_relevances(self, rules: Rules, *, strict: bool = True) -> StreamScores:
        """The relevance of each input, its channels summed."""
        found = self._relevance(list(self.leaves.values()), rules, strict=strict)
        return self._by_token(found)

    def inputs_times_gradients(self, backward: Backward) -> StreamScores:
        """Each input times its gradient, summed over its channels."""
        leaves = list(self.leaves.values())
        with following(self.ruled, backward):
            found = torch.autograd.grad(self.score.sum(), leaves, retain_graph=True, allow_unused=True)
        return self._by_token([None if part is None else part * x for part, x in zip(found, leaves, strict=True)])

    def _relevance(self, wanted: list[Tensor], rules: Rules, *, strict: bool) -> list[Tensor | None]:
        assert self.ruled is not None
        start = self.score.detach() if starts_at_score(rules) else torch.ones_like(self.score)
        with self.ruled.following(RULES[rules], strict=strict):
            found = torch.autograd.grad(self.score, wanted, start, retain_graph=True, allow_unused=True)
        if all(part is None for part in found):
            raise HiddenGradient
        return list(found)

    def _by_token(self, found: list[Tensor | None]) -> StreamScores:
        parts = zip(self.leaves.items(), found, strict=True)
        return {
            stream: by_token(stream, torch.zeros_like(leaf) if part is None else part)
            for (stream, leaf), part in parts
        }


def starts_at_score(rules: Rules) -> bool:
    """Whether relevance starts as the score itself, as the ε-rules have it, or as 1."""
    return rules in ("attn_lrp", "cp_lrp")


def by_token(stream: str, x: Tensor) -> TokenScores:
    """Channels summed: the second axis of pixels, the last of embeddings."""
    return x.detach().sum(dim=1).flatten(1) if stream == "pixels" else x.detach().sum(dim=-1)

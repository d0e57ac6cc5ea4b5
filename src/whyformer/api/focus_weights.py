"""Weights of a row's tokens by what the sources add to their log-probability, from the pass that explains the row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from whyformer.axes import ExampleScores
from whyformer.inputs.teacher_forcing import ResponseRow
from whyformer.targets.scores import Score
from whyformer.targets.span_scores import log_probabilities_of, token_logits

LEAST_GAIN = 0.5  # nats that the sources must add to a span in all to say which of its tokens matter
MOST_GAIN = 3.0  # nats: a token that is 20 times likelier is decided, and not the more so if it is a million times


@dataclass(eq=False)
class GainScore:
    """A score of rows, weighted by the first output that it scores: that of the whole prompt.

    Other outputs, such as those along a path of inputs, are scored with the same weights.

    Attributes:
        rows: The rows, with their weights once an output was scored.
        make_score: Makes the score of rows with weights.
        first: Position of the first logit in the stream.
        are_of_one: Whether all rows are scores of one example.
    """

    rows: Sequence[ResponseRow]
    make_score: Callable[[Sequence[ResponseRow]], Score]
    first: int
    are_of_one: bool = False
    _score: Score | None = field(default=None, init=False)

    def __call__(self, output: Any) -> ExampleScores:
        if self._score is None:
            logits = token_logits(output)
            examples = [0 if self.are_of_one else number for number in range(len(self.rows))]
            self.rows = [
                weigh_at(row, logits[example], self.first) for row, example in zip(self.rows, examples, strict=True)
            ]
            self._score = self.make_score(self.rows)
        return self._score(output)


def weigh_at(row: ResponseRow, logits: Tensor, first: int) -> ResponseRow:
    """The row with the weights that the logits [place, token] of its pass give; `first` is the position of the first.

    A row that needs no weights is returned unchanged.
    """
    if row.without is None:
        return row
    places = [position - first for position in row.positions]
    return weigh(row, log_probabilities_of(logits[places], [row.exchange.response[token] for token in row.tokens]))


def weigh(row: ResponseRow, with_sources: np.ndarray) -> ResponseRow:
    """The row with weights by its tokens' log-probabilities with and without the sources; tokens of weight 0 go."""
    if row.without is None:
        return row
    weights = gain_weights(with_sources - np.array(row.without))
    tokens, positive = zip(*[one for one in zip(row.tokens, weights, strict=True) if one[1] > 0], strict=True)
    return replace(row, tokens=tokens, weights=positive, without=None)


def gain_weights(gains: np.ndarray) -> list[float]:
    """The weights of a span's tokens, of sum 1: in proportion to their positive gains, or equal if these are small."""
    bounded = gains.clip(min=0, max=MOST_GAIN)
    shares = bounded if bounded.sum() >= LEAST_GAIN else np.ones_like(gains)
    weights: list[float] = (shares / shares.sum()).tolist()
    return weights

"""Scores of spans of a response: the log-probability of their tokens under teacher forcing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whyformer.axes import ExampleScores, at_least_float32
from whyformer.errors import UnsupportedModel
from whyformer.targets.scores import Score, all_logits

ALTERNATIVES = 3  # likeliest other tokens that are kept for each token of a response


@dataclass(frozen=True)
class NextTokenLogits:
    """A predicted token: the index of its score, its example, its position in the logits, its id, and its weight.

    Each example has one score, or a single example has all scores.
    """

    score: int
    example: int
    place: int
    token: int
    weight: float = 1.0


def log_probability(predictions: Sequence[NextTokenLogits], count: int) -> Score:
    """`count` scores, each the weighted sum of its predictions' log-probabilities."""
    return _sum_of(predictions, count, is_log=True)


def logit_sum(predictions: Sequence[NextTokenLogits], count: int) -> Score:
    """`count` scores, each the weighted sum of its predictions' logits."""
    return _sum_of(predictions, count, is_log=False)


def _sum_of(predictions: Sequence[NextTokenLogits], count: int, *, is_log: bool) -> Score:
    names = ("score", "example", "place", "token", "weight")
    fields = [torch.tensor([getattr(one, name) for one in predictions]) for name in names]

    def score(output: Any) -> ExampleScores:
        logits = token_logits(output)
        number, example, place, token, weight = (x.to(logits.device) for x in fields)
        rows = logits[example, place]
        values = at_least_float32(rows).log_softmax(dim=-1) if is_log else rows
        chosen = values.gather(1, token[:, None])[:, 0] * weight.to(values)
        return chosen.new_zeros(count).index_add(0, number, chosen)

    return score


def token_logits(output: Any) -> Tensor:
    """The logits [example, place, token] of a language model's output."""
    logits = all_logits(output)
    if logits is None or logits.dim() != 3:
        raise UnsupportedModel("The model returns no logits per token: its responses cannot be scored.")
    return logits


@dataclass(frozen=True)
class TokenStatistics:
    """Statistics of a token's prediction: log-probability and entropy in nats, and its rank, 1 for the most likely.

    `alternatives` are the likeliest other tokens: their ids and probabilities.
    """

    log_probability: float
    entropy: float
    rank: int
    alternatives: tuple[tuple[int, float], ...] = ()


def log_probabilities_of(logits: Tensor, tokens: Sequence[int]) -> np.ndarray:
    """log p = −log(1 + Σ e^(z_k − z)) of tokens from logits [..., place, token], with digits even if p is nearly 1."""
    wide = at_least_float32(logits.detach())
    chosen = torch.tensor(tokens, device=logits.device).expand(wide.shape[:-1])[..., None]
    others = wide.scatter(-1, chosen, -torch.inf).logsumexp(dim=-1)
    log_odds = wide.gather(-1, chosen)[..., 0] - others
    values: np.ndarray = -F.softplus(-log_odds.double().cpu()).numpy()
    return values


def token_statistics(logits: Tensor, tokens: Sequence[int]) -> list[TokenStatistics]:
    """Statistics of each token from the logits [place, token] that predicted it."""
    exact = at_least_float32(logits.detach())
    shares = exact.softmax(dim=-1)
    chosen = torch.tensor(tokens, device=exact.device)[:, None]
    ranks = (exact > exact.gather(1, chosen)).sum(dim=1) + 1
    likeliest = shares.topk(min(ALTERNATIVES + 1, shares.shape[1]), dim=1)
    ranked = zip(tokens, likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
    figures = zip(
        exact.log_softmax(dim=-1).gather(1, chosen)[:, 0].tolist(),
        torch.special.entr(shares).sum(dim=1).tolist(),
        ranks.tolist(),
        [_others(token, zip(*row, strict=True)) for token, *row in ranked],
        strict=True,
    )
    return [TokenStatistics(*each) for each in figures]


def _others(token: int, ranked: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """The first ranked tokens that are not this one."""
    return tuple(one for one in ranked if one[0] != token)[:ALTERNATIVES]

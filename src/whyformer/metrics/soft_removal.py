"""Soft comprehensiveness and sufficiency: tokens are kept at random, with probabilities given by their scores.

The mean share π of tokens that are kept is fixed, so that methods are compared at equal information (π-Soft-NC and
π-Soft-NS, Grad-ELLM 2026, after Zhao & Aletras 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from whyformer.axes import Curve, ExampleScores, Logits, Removal, StepLogits, TokenMask, TokenScores

SHARES = (0.2, 0.5, 0.8)  # π
DRAWS = 8
LEAST_EMPTY_CHANGE = 0.1  # below it the empty text is answered much as the whole one: there is little to divide by


def keep_probabilities(scores: TokenScores, removable: TokenMask, share: float) -> TokenScores:
    """Probability of keeping each token: the normalised score, with a mean of `share` over the removable tokens.

    Scores are scaled to [0, 1]. If their mean m exceeds the share, probabilities are scaled by share / m, otherwise one
    minus the probability by (1 − share) / (1 − m): both keep the order and need no clipping. Equal scores all give
    `share`. Other tokens are always kept.
    """
    unit = _normalised(scores.double(), removable)
    mean = (unit * removable).sum(dim=1, keepdim=True) / removable.sum(dim=1, keepdim=True).clamp(min=1)
    lower = unit * share / mean.clamp(min=share)
    higher = 1 - (1 - unit) * (1 - share) / (1 - mean).clamp(min=1 - share)
    return torch.where(mean > share, lower, higher).masked_fill(~removable, 1.0)


def soft_sufficiency_removal(
    scores: TokenScores, removable: TokenMask, uniform: Tensor, shares: Sequence[float] = SHARES
) -> Removal:
    """Remove tokens at random, relevant ones least often: all draws of the first share, then those of the next.

    `uniform` are numbers in [0, 1), [draw batch place], the same for every method.
    """
    kept = [keep_probabilities(scores, removable, share) for share in shares]
    return torch.cat([uniform >= probabilities for probabilities in kept])


def soft_comprehensiveness_removal(
    scores: TokenScores, removable: TokenMask, uniform: Tensor, shares: Sequence[float] = SHARES
) -> Removal:
    """Remove tokens at random, relevant ones most often: each is kept with one minus its normalised score."""
    return soft_sufficiency_removal(-scores, removable, uniform, shares)


def hellinger(clean: Logits, steps: StepLogits) -> Curve:
    """Hellinger distance of the output distributions at every step from those of the whole inputs, in [0, 1]."""
    before, after = (logits.double().softmax(dim=-1).sqrt() for logits in (clean, steps))
    distances: Curve = torch.linalg.vector_norm(after - before, dim=2).T / 2**0.5
    return distances


def mean_changes(clean: Logits, steps: StepLogits, shares: int) -> Curve:
    """Mean change of the output distribution over the draws of each share."""
    by_draw = hellinger(clean, steps)
    return by_draw.view(len(by_draw), shares, -1).mean(dim=2)


def soft_comprehensiveness(changes: Curve, empty: ExampleScores) -> Curve:
    """π-Soft-NC: the change over that of the empty text; NaN if that hardly changes anything (`LEAST_EMPTY_CHANGE`)."""
    return changes / _divisor(empty)


def soft_sufficiency(changes: Curve, empty: ExampleScores) -> Curve:
    """π-Soft-NS: the share of the empty text's change that the kept tokens prevent, not clamped at 0; NaN likewise."""
    return 1 - changes / _divisor(empty)


def _divisor(empty: ExampleScores) -> Tensor:
    return empty.masked_fill(empty < LEAST_EMPTY_CHANGE, torch.nan)[:, None]


def _normalised(scores: TokenScores, removable: TokenMask) -> TokenScores:
    """Scores scaled so that those of removable tokens span [0, 1]; 0 if they are equal."""
    low = scores.masked_fill(~removable, torch.inf).amin(dim=1, keepdim=True)
    high = scores.masked_fill(~removable, -torch.inf).amax(dim=1, keepdim=True)
    span = high - low
    return torch.where(removable & (span > 0), (scores - low) / span, 0.0)

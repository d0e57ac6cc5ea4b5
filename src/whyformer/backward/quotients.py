"""R / z, the relevance R per unit of an output z, by which a rule distributes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Quotient = Callable[[Tensor, Tensor], Tensor]

STABILISER = 1e-9  # of the reference code, added regardless of sign
EPSILON = 1e-6  # of the ε-rule, added away from zero


def ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where b is 0."""
    return (a / (b + STABILISER)).masked_fill_(b == 0, 0.0)


def away_from_zero(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The quotient of the ε-rule: the denominator is moved away from zero."""
    return numerator / (denominator + torch.where(denominator < 0, -EPSILON, EPSILON))


def balance(whole: Tensor, totals: Sequence[Tensor]) -> list[Tensor]:
    """Factors that rescale the two shares of a sum by their totals (TA Sec. 3.2)."""
    size = totals[0].abs() + totals[1].abs()
    return [ratio(ratio(total.abs(), size) * whole, total) for total in totals]

"""R / z: what each unit of an output z is worth, by which a rule shares out the relevance R that arrived there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Quotient = Callable[[Tensor, Tensor], Tensor]

STABILISER = 1e-9  # the reference code's, added whatever the sign
EPSILON = 1e-6  # of the ε-rule, away from zero


def ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where b is 0."""
    return (a / (b + STABILISER)).masked_fill_(b == 0, 0.0)


def away_from_zero(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The quotient of the ε-rule: the denominator is kept off zero on either side."""
    return numerator / (denominator + torch.where(denominator < 0, -EPSILON, EPSILON))


def balance(whole: Tensor, totals: Sequence[Tensor]) -> list[Tensor]:
    """What rescales the two shares of a sum, by their totals, so that each has its part of the whole (TA Sec. 3.2)."""
    size = totals[0].abs() + totals[1].abs()
    return [ratio(ratio(total.abs(), size) * whole, total) for total in totals]

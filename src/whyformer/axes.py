"""The axes every tensor of the package is spoken of by: the only place shapes are defined."""

from __future__ import annotations

from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

HEAD, QUERY, KEY = 1, 2, 3

AttentionMap = Float[Tensor, "batch head query key"]
Values = Float[Tensor, "batch head key feature"]
State = Float[Tensor, "batch token channel"]
Mixing = Float[Tensor, "batch query key"]
Rows = Float[Tensor, "batch row token"]
Positions = Int[Tensor, "batch row"]
RowWeights = Float[Tensor, "batch row"]
TokenScores = Float[Tensor, "batch token"]
TokenMask = Bool[Tensor, "batch token"]
Logits = Float[Tensor, "batch label"]
ExampleScores = Float[Tensor, "batch"]

StreamScores = dict[str, TokenScores]
Inputs = dict[str, Any]


def by_head(x: Tensor, batch: int) -> AttentionMap:
    """A map with its own head axis, where the model had folded it into the batch."""
    return x if x.dim() == 4 else x.reshape(batch, -1, *x.shape[-2:])

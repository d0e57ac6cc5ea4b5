"""Tensor types by axis name: the only place where shapes are defined."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

HEAD, QUERY, KEY = 1, 2, 3

AttentionMap = Float[Tensor, "batch head query key"]
Values = Float[Tensor, "batch head key feature"]
State = Float[Tensor, "batch token channel"]
MixingMatrix = Float[Tensor, "batch query key"]
Rows = Float[Tensor, "batch row token"]
Positions = Int[Tensor, "batch row"]
RowWeights = Float[Tensor, "batch row"]
TokenScores = Float[Tensor, "batch token"]
TokenMask = Bool[Tensor, "batch token"]
Logits = Float[Tensor, "batch label"]
ExampleScores = Float[Tensor, "batch"]
Labels = Int[Tensor, "batch"]

Pixels = Float[Tensor, "batch channel height width"]
PatchScores = Float[Tensor, "batch row column"]
PixelScores = Float[Tensor, "batch height width"]
RowScores = Float[Tensor, "batch height"]
PixelMask = Bool[Tensor, "batch height width"]
PixelTruth = Int[Tensor, "batch height width"]

# A protocol reruns every example at several steps, removing more and more of it, or one group at a time.
Removal = Bool[Tensor, "step batch place"]
PixelRemoval = Bool[Tensor, "step batch height width"]
RegionBoxes = Float[Tensor, "region 4"]  # left, top, right, bottom
RegionScores = Float[Tensor, "region"]
StepPixels = Float[Tensor, "step batch channel height width"]
StepLogits = Float[Tensor, "step batch label"]
Curve = Float[Tensor, "batch step"]
GroupValues = Float[Tensor, "batch group"]
BlockErrors = Float[Tensor, "batch block"]
Channels = Float[Tensor, "channel channel"]
Counts = Int[Tensor, "batch count"]

# Of one example at a time, or of a whole data set.
WordScores = Float[np.ndarray, "word"]
WordTruth = Bool[np.ndarray, "word"]
WordPlaces = Int[np.ndarray, "picked"]
WordCounts = Int[np.ndarray, "*any 3"]  # hits, words picked, words marked
WordFigures = Float[np.ndarray, "*any 3"]  # precision, recall, F1
SpanScores = Float[np.ndarray, "row token"]  # of a response's spans, on the tokens of its prompt or its own
SpanFigures = Float[np.ndarray, "row"]
SourceScores = Float[np.ndarray, "row source"]
SourceMasks = Bool[np.ndarray, "subset source"]  # True where a source is kept
SubsetScores = Float[np.ndarray, "subset row"]
SourceValues = Float[np.ndarray, "source"]
SourceTruth = Bool[np.ndarray, "source"]
PlaceUnits = Int[np.ndarray, "place"]  # the unit that each pixel, token or region is of; -1 if it is never removed
UnitPairs = Int[np.ndarray, "pair 2"]
UnitMasks = Shaped[np.ndarray, "subset unit"]  # 1 or True where a unit is kept, 0 where it is not, or a share of it
UnitScores = Float[np.ndarray, "unit"]
SubsetValues = Float[np.ndarray, "subset"]
ExampleValues = Float[np.ndarray, "example"]
PlaceShares = Shaped[np.ndarray, "place"]  # how much is kept of each
LabelValues = Float[np.ndarray, "example label"]
SubsetExampleScores = Float[np.ndarray, "subset example"]
ImageCounts = Float[np.ndarray, "*draw image"]  # how often each was drawn
DrawnFigures = Float[np.ndarray, "*draw"]
ExampleRows = Shaped[np.ndarray, "example *any"]
MaskArray = Bool[np.ndarray, "height width"]

StreamScores = dict[str, TokenScores]
Inputs = dict[str, Any]


def by_head(x: Tensor, batch: int) -> AttentionMap:
    """Split the head axis off a map whose heads were folded into the batch; further windows count as maps."""
    if x.dim() == 5:
        return x.transpose(1, 2).flatten(0, 1)
    return x if x.dim() == 4 else x.reshape(batch, -1, *x.shape[-2:])


def at_least_float32(x: Tensor) -> Tensor:
    """Cast to float32 unless the dtype is already wider: sums in half precision lose too much."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def head_mean(x: AttentionMap) -> MixingMatrix:
    """Average a map over its heads, in float32 or wider.

    Args:
        x: A tensor [example, head, query, key].

    Returns:
        A tensor [example, query, key].

    Example:
        >>> import torch
        >>> whyformer.extend.head_mean(torch.ones(1, 4, 2, 2)).shape
        torch.Size([1, 2, 2])
    """
    return x.mean(HEAD, dtype=torch.promote_types(x.dtype, torch.float32))

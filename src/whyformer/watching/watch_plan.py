"""The decisions about what a watcher records of a forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# "whole" keeps every map, however large; "none" records nothing, and only makes parameters constants.
MapStorage = Literal["kept", "whole", "folded", "shapes only", "none"]


@dataclass(frozen=True)
class WatchPlan:
    """The decisions about what a watcher records.

    Attributes:
        maps: Whether attention maps are kept unless too large, folded into queries, keys and values wherever they can
            be recomputed, or recorded by shape only. The last does not change how operations run.
        first_operation: The first attention operation that is recorded; those before it run on the model's fused
            kernels without a graph.
        merges_heads: Whether only the mean over heads of a map is kept.
        states: Whether residual states and the weights W_v and W_o are recorded.
        edges: Whether the states after each attention are kept too.
        graph: Whether every map is part of a graph, also in a frozen model. Parameters never are.
    """

    maps: MapStorage = "kept"
    first_operation: int = 0
    merges_heads: bool = False
    states: bool = False
    edges: bool = False
    graph: bool = False

"""What is known of one attention operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from whyformer.axes import AttentionMap, State, Values
from whyformer.made import MadeWhenRead
from whyformer.tracing.kernels import Attention


@dataclass(frozen=True)
class AttentionRecord:
    """One attention operation: which tokens read which, how strongly, and what was read."""

    path: str
    block: int
    query_stream: str
    key_stream: str
    map: MadeWhenRead[AttentionMap] = MadeWhenRead()
    gradient: MadeWhenRead[AttentionMap | None] = MadeWhenRead(None)
    value: Values | None = None
    value_weight: Tensor | None = None
    output_weight: Tensor | None = None
    key_state: State | None = None
    operation: int = 0  # its number among all that ran

    @property
    def source(self) -> AttentionMap | Attention:
        """The map if it was kept, or else what makes it, which has its shape, dtype and device as well."""
        source: AttentionMap | Attention = vars(self)["map"]
        return source

    def having(self, **fields: Any) -> AttentionRecord:
        """The same record with these fields; `dataclasses.replace` would make the map and keep it."""
        return AttentionRecord(**vars(self) | fields)

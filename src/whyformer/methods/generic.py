"""Generic Attention Explainability (GA, ICCV 2021)."""

from __future__ import annotations

from typing import Literal

from whyformer.axes import Mixing, StreamScores
from whyformer.flow import flow
from whyformer.methods import method
from whyformer.record import AttentionRecord
from whyformer.trace import Trace, head_mean


@method("generic_attention", reads="gradients")
def generic_attention(
    trace: Trace, *, first_block: int = 0, clamp: Literal["before", "after"] = "before"
) -> StreamScores:
    """Attention weighted by its gradient, composed through the blocks (GA Eq. 5-6).

    `clamp` says whether negative products are dropped before the head mean, as published, or after it.
    """

    def weighted(record: AttentionRecord) -> Mixing:
        assert record.gradient is not None
        product = record.gradient * record.map
        return head_mean(product.clamp(min=0)) if clamp == "before" else head_mean(product).clamp(min=0)

    start = {trace.readout.stream: trace.readout.weights[:, None, :]}
    rows = flow(trace.steps_from(first_block), weighted, start)
    return {stream: row[:, 0] for stream, row in rows.items()}

"""Attention from the response, its heads weighted by what they say of removal: learned once per model."""

from __future__ import annotations

import torch
from torch import Tensor

from whyformer.axes import StreamScores
from whyformer.errors import WhyformerError
from whyformer.methods.registry import method
from whyformer.models.head_weights import head_weights
from whyformer.models.readout import ReadOut
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.steps import summed
from whyformer.tracing.trace import Trace

BY_HEAD = Reads(maps="all", edges=True)


@method("at2", reads=BY_HEAD, kinds=("response",))
def at2(trace: Trace, *, heads: str | None = None) -> StreamScores:
    """Attention from the response, by heads with learned weights (AT2, Cohen-Wang et al. 2025).

    s_j = Σ_{l,h} θ_{l,h} Σ_t A_{l,h}[t, j] / T over the T tokens of the row. `whyformer learn MODEL` learns θ, and
    `heads` names its file if it is elsewhere.
    """
    theta = head_weights(trace.question.model, heads).theta
    rows = head_rows(trace)
    if len(theta) != sum(row.shape[1] for _, row in rows):
        raise WhyformerError(f"{len(theta)} weights were learned for {sum(row.shape[1] for _, row in rows)} heads.")
    parts = theta.to(rows[0][1]).split([row.shape[1] for _, row in rows])
    return summed(
        (stream, torch.einsum("h,bhk->bk", part, row)) for part, (stream, row) in zip(parts, rows, strict=True)
    )


def head_rows(trace: Trace) -> list[tuple[str, Tensor]]:
    """Σ_t w_t A_h[t, j] of every attention of the read-out's stream to itself, with its stream."""
    readout = trace.readout
    own = [record for record in trace.records if record.query_stream == record.key_stream == readout.stream]
    return [(record.key_stream, _head_row(record, readout)) for record in own]


def _head_row(record: AttentionRecord, readout: ReadOut) -> Tensor:
    """The rows of the read-out, weighted and summed: [example, head, key]."""
    positions, weights = readout.rows
    tiles = record.pick(positions).tiles()
    parts = [torch.einsum("bq,bhqk->bhk", weights[:, rows], tile.map.to(weights)) for rows, tile in tiles]
    return torch.stack(parts).sum(dim=0)

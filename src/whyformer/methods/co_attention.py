"""GA's adaptation of the baselines to several streams: each composed separately, joined by their last attention."""

from __future__ import annotations

import torch

from whyformer.axes import MixingMatrix, Rows
from whyformer.tracing.flow import Mix, Step, dense, flow, fold, records_of, select_records
from whyformer.tracing.formulas import readout_rows
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.trace import Trace


def joined_by_the_last(
    steps: list[Step], mixing: Mix, trace: Trace, *, normalise_rows: bool = False, alone: bool = False
) -> dict[str, Rows]:
    """R_ss within the read-out's stream s, and R_sq = R_ssᵀ · M_sq · R_qq for the others (GA Eq. 12).

    M_sq is the last attention from s to q; R_ss and R_qq are composed of the steps before it; `alone` omits both.
    """
    by_stream = flow(_within(steps), mixing, readout_rows(trace), normalise_rows=normalise_rows)
    last = {(record.query_stream, record.key_stream): record for record in records_of(steps)}
    for readout, record in ((readout, record) for readout in trace.readouts for record in last.values()):
        if record.query_stream != readout.stream or record.key_stream == readout.stream:
            continue
        row = readout.weights[:, None, :]
        if alone:
            row = fold(row, record, mixing)
        else:
            before = _until(record, steps)
            own, other = (
                composed(before, mixing, stream, trace, normalise_rows=normalise_rows)
                for stream in (readout.stream, record.key_stream)
            )
            row = fold(row @ own.mT, record, mixing) @ other
        by_stream[record.key_stream] = by_stream.get(record.key_stream, 0.0) + row
    return by_stream


def composed(
    steps: list[Step], mixing: Mix, stream: str, trace: Trace, *, normalise_rows: bool = False
) -> MixingMatrix:
    """The matrix (M_L + I)…(M_1 + I) of one stream's self-attention, rows optionally normalised."""
    mask, dtype = trace.masks[stream], trace.readout.weights.dtype
    product = torch.eye(mask.shape[1], dtype=dtype, device=mask.device).expand(len(mask), -1, -1)
    own = (record for record in records_of(steps) if record.query_stream == record.key_stream == stream)
    for record in own:
        block = dense(record, mixing) + torch.eye(mask.shape[1], dtype=dtype, device=mask.device)
        product = (block / block.sum(dim=-1, keepdim=True) if normalise_rows else block) @ product
    return product


def _until(record: AttentionRecord, steps: list[Step]) -> list[Step]:
    """The steps before a record."""
    return list(select_records(steps, lambda other: other.operation < record.operation))


def _within(steps: list[Step]) -> list[Step]:
    """The self-attention steps."""
    return list(select_records(steps, lambda record: record.query_stream == record.key_stream))

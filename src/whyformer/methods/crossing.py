"""GA's own adaptation of the baselines to several streams: each composed by itself, joined by their last attention."""

from __future__ import annotations

import torch

from whyformer.axes import Mixing, Rows
from whyformer.tracing.flow import Mix, Step, flow
from whyformer.tracing.trace import Trace


def joined_by_the_last(
    steps: list[Step], mixing: Mix, trace: Trace, *, normalise_rows: bool = False, alone: bool = False
) -> dict[str, Rows]:
    """R_ss as it flows within the read-out's stream s; R_sq = R_ssᵀ · M_sq · R_qq (GA Eq. 12).

    M_sq is the last attention from s to q, R_ss and R_qq are composed of what ran before it; `alone` leaves these out.
    """
    by_stream = flow(_within(steps), mixing, trace.start(), normalise_rows=normalise_rows)
    last = {(record.query_stream, record.key_stream): record for step in steps for record in step}
    for readout, record in ((readout, record) for readout in trace.readouts for record in last.values()):
        if record.query_stream != readout.stream or record.key_stream == readout.stream:
            continue
        row = readout.weights[:, None, :]
        if alone:
            row = row @ mixing(record)
        else:
            before = [step for step in steps if step[0].operation < record.operation]
            own, other = (
                composed(before, mixing, stream, trace, normalise_rows=normalise_rows)
                for stream in (readout.stream, record.key_stream)
            )
            row = row @ own.mT @ mixing(record) @ other
        by_stream[record.key_stream] = by_stream.get(record.key_stream, 0.0) + row
    return by_stream


def composed(steps: list[Step], mixing: Mix, stream: str, trace: Trace, *, normalise_rows: bool = False) -> Mixing:
    """The whole matrix (M_L + I)…(M_1 + I) of one stream's own attention, rows divided by their sum if asked."""
    mask, dtype = trace.masks[stream], trace.readout.weights.dtype
    product = torch.eye(mask.shape[1], dtype=dtype, device=mask.device).expand(len(mask), -1, -1)
    for record in (record for step in steps for record in step if record.query_stream == record.key_stream == stream):
        block = mixing(record) + torch.eye(mask.shape[1], dtype=dtype, device=mask.device)
        product = (block / block.sum(dim=-1, keepdim=True) if normalise_rows else block) @ product
    return product


def _within(steps: list[Step]) -> list[Step]:
    """The attention of streams to themselves."""
    kept = (tuple(record for record in step if record.query_stream == record.key_stream) for step in steps)
    return [step for step in kept if step]

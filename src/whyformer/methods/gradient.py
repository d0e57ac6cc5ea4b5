"""Methods that weigh the last map by its gradient."""

from __future__ import annotations

import torch

from whyformer.axes import HEAD, KEY, QUERY, StreamScores
from whyformer.methods import method
from whyformer.streams import summed
from whyformer.trace import Trace


@method("grad_cam", reads="last gradient")
def grad_cam(trace: Trace) -> StreamScores:
    """GradCAM on the last map: (mean_h w_h A_h)⁺, w_h the mean gradient of the read-out's row (TA Sec. 4).

    The mean is over the keys that are real tokens and not the query itself, so that padding changes nothing.
    """
    found = []
    for readout, record in trace.last_rows:
        positions, weights = readout.rows
        rows = positions[:, None, :, None]
        attention, gradient = record.map, record.gradient
        assert gradient is not None
        attention, gradient = (x.take_along_dim(rows, dim=QUERY).to(weights.dtype) for x in (attention, gradient))
        content = trace.masks[record.key_stream][:, None, None, :].expand(-1, -1, rows.shape[2], -1)
        if record.key_stream == readout.stream:
            content = content & (torch.arange(attention.shape[KEY], device=positions.device) != rows)
        by_head = (gradient * content).sum(KEY, keepdim=True) / content.sum(KEY, keepdim=True).clamp(min=1)
        heat = (by_head * attention).mean(HEAD)
        found.append((record.key_stream, torch.einsum("brk,br->bk", heat, weights).clamp(min=0)))
    return summed(found)

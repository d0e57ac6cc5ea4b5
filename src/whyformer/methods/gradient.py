"""Methods that read gradients: of the last map, of all maps, of the input."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from whyformer.axes import HEAD, KEY, Mixing, StreamScores
from whyformer.methods.registry import method
from whyformer.models.joined import Transfer
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.flow import fold
from whyformer.tracing.path import Quadrature
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.scaling import Baseline
from whyformer.tracing.streams import summed
from whyformer.tracing.trace import Trace


@method("grad_cam", reads=Reads(maps="last", gradients="last"))
def grad_cam(trace: Trace) -> StreamScores:
    """GradCAM on the last map: (mean_h w_h A_h)⁺, w_h the mean gradient of the read-out's row (TA Sec. 4).

    The mean is over the keys that are real tokens and not the query itself, so that padding changes nothing.
    """
    rows_of_streams = []
    for readout, record in trace.last_rows:
        positions, weights = readout.rows
        rows = positions[:, None, :, None]
        read = record.pick(positions)
        attention, gradient = read.map.to(weights.dtype), read.gradient.to(weights.dtype)
        content = trace.masks[record.key_stream][:, None, None, :].expand(-1, -1, rows.shape[2], -1)
        if record.key_stream == readout.stream:
            content = content & (torch.arange(attention.shape[KEY], device=positions.device) != rows)
        by_head = (gradient * content).sum(KEY, keepdim=True) / content.sum(KEY, keepdim=True).clamp(min=1)
        heat = (by_head * attention).mean(HEAD)
        rows_of_streams.append((record.key_stream, torch.einsum("brk,br->bk", heat, weights).clamp(min=0)))
    return summed(rows_of_streams)


@method("attention_gradient", reads=Reads(maps="all", gradients="all"))
def attention_gradient(trace: Trace, *, rows: Literal["readout", "mean"] = "readout") -> StreamScores:
    """Mean over blocks and heads of the maps' positive gradient, (∇A)⁺, after LeGrad (ICCV 2025).

    Read at the read-out's row, or as the mean over all tokens' `rows`. LeGrad itself takes the score from each block's
    own tokens; here it is the model's.
    """
    weights = trace.start()
    if rows == "mean":
        weights = {stream: (mask / mask.sum(dim=1, keepdim=True))[:, None] for stream, mask in trace.masks.items()}
    by_stream: dict[str, list[Tensor]] = {}

    def positive(tile: AttentionRecord) -> Mixing:
        is_read = tile.map > 0  # not padding, nor a token still to come
        return (tile.gradient.clamp(min=0) * is_read).mean(HEAD).to(trace.readout.weights.dtype)

    for step in reversed(trace.steps_from(0)):  # gradients come from the end
        if isinstance(step, Transfer):
            weights = step.carry(weights) if rows == "readout" else weights
            continue
        dtype, records = trace.readout.weights.dtype, [record for record in step if record.query_stream in weights]
        rows_of = [(r.key_stream, fold(weights[r.query_stream].to(dtype), r, positive)[:, 0]) for r in records]
        for stream, scores in trace.on_inputs(summed(rows_of)).items():
            by_stream.setdefault(stream, []).append(scores)
    return {stream: torch.stack(parts).mean(dim=0) for stream, parts in by_stream.items()}


@method("input_x_gradient", reads=Reads(inputs="gradients"))
def input_x_gradient(trace: Trace) -> Attribution:
    """Input times gradient, at the pixels or the embeddings, summed over channels."""
    return trace.inputs_times_gradients()


@method("integrated_gradients", reads=Reads(inputs="gradients", path=True))
def integrated_gradients(
    trace: Trace,
    *,
    steps: int | None = None,
    quadrature: Quadrature = "midpoint",
    baseline: Baseline | Tensor | None = None,
) -> Attribution:
    """Input less baseline times the gradient integrated between them, (x − x₀) ⊙ ∫∇s (Sundararajan et al. 2017).

    The scores add up to the score less that of the baseline; the explanation says how nearly these do. The baseline
    is grey for pixels, padding for text and zero for regions, the steps are 20 and 50, unless given.
    """
    return trace.integrated_inputs(quadrature, steps, baseline)

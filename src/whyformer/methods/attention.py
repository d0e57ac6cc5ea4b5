"""Methods that read attention maps alone, and the control that reads nothing."""

from __future__ import annotations

import zlib

import numpy as np
import torch

from whyformer.axes import StreamScores
from whyformer.errors import WhyformerError
from whyformer.families import main_input
from whyformer.flow import flow
from whyformer.methods import method
from whyformer.trace import Trace, head_mean


@method("raw_attention", reads="last map")
def raw_attention(trace: Trace) -> StreamScores:
    """The read-out's row of the last block's attention, head mean."""
    row = trace.readout.weights[:, None, :] @ head_mean(trace.last.map)
    return {trace.last.key_stream: row[:, 0]}


@method("rollout", reads="maps")
def rollout(trace: Trace, *, first_block: int = 0, normalise_rows: bool = False) -> StreamScores:
    """Attention composed through the residual blocks (Abnar & Zuidema 2020; TA Eq. 15-16)."""
    start = {trace.readout.stream: trace.readout.weights[:, None, :]}
    steps = trace.steps_from(first_block)
    rows = flow(steps, lambda record: head_mean(record.map), start, normalise_rows=normalise_rows)
    return {stream: row[:, 0] for stream, row in rows.items()}


@method("random", reads="last map")
def random(trace: Trace, *, seed: int = 0) -> StreamScores:
    """A control: noise that knows nothing of the model, drawn for each example by its own bytes and the seed."""
    if seed < 0:
        raise WhyformerError(f"random: seed={seed}. A seed is 0 or more.")
    _, examples = main_input(trace.question.inputs)
    scores = torch.zeros_like(trace.readout.weights)
    for example, real, row in zip(examples, trace.mask, scores, strict=True):
        content = example[real] if example.shape[:1] == real.shape else example
        drawn = np.random.default_rng((seed, zlib.crc32(content.double().cpu().numpy().tobytes())))
        row[real] = torch.from_numpy(drawn.random(int(real.sum()))).to(row)
    return {trace.readout.stream: scores}

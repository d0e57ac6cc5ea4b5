"""Methods that read attention maps alone, and the control that reads nothing."""

from __future__ import annotations

import zlib
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from whyformer.axes import Inputs, Mixing, StreamScores
from whyformer.errors import WhyformerError
from whyformer.families import main_input
from whyformer.flow import flow
from whyformer.methods import method
from whyformer.methods.crossing import joined_by_the_last
from whyformer.record import AttentionRecord
from whyformer.streams import summed
from whyformer.trace import Trace, head_mean


@method("raw_attention", reads="last map")
def raw_attention(trace: Trace) -> StreamScores:
    """The read-out's row of the last block's attention, head mean."""
    rows = ((r.key_stream, readout.weights[:, None, :] @ head_mean(r.map)) for readout, r in trace.last_rows)
    return summed((stream, row[:, 0]) for stream, row in rows)


@method("rollout", reads="maps")
def rollout(
    trace: Trace, *, first_block: int = 0, normalise_rows: bool = False, cross: Literal["flow", "last"] = "flow"
) -> StreamScores:
    """Attention composed through the residual blocks (Abnar & Zuidema 2020; TA Eq. 15-16).

    Between streams it flows on as within one; `cross` "last" is GA's adaptation, which composes each stream by itself
    and joins two by their last attention alone (GA Eq. 12).
    """
    steps = trace.steps_from(first_block)
    rows = {
        "flow": lambda: flow(steps, _head_mean, trace.start(), normalise_rows=normalise_rows),
        "last": lambda: joined_by_the_last(steps, _head_mean, trace, normalise_rows=normalise_rows),
    }[cross]()
    return {stream: row[:, 0] for stream, row in rows.items()}


def _head_mean(record: AttentionRecord) -> Mixing:
    return head_mean(record.map)


@method("random", reads="last map")
def random(trace: Trace, *, seed: int = 0) -> StreamScores:
    """A control: noise that knows nothing of the model, drawn for each example by its own bytes and the seed."""
    if seed < 0:
        raise WhyformerError(f"random: seed={seed}. A seed is 0 or more.")
    found = {stream: torch.zeros(mask.shape, device=mask.device) for stream, mask in trace.masks.items()}
    for number, (stream, scores) in enumerate(found.items()):
        for content, real, row in zip(_contents(trace.question.inputs), trace.masks[stream], scores, strict=True):
            drawn = np.random.default_rng((seed + number, zlib.crc32(content.double().cpu().numpy().tobytes())))
            row[real] = torch.from_numpy(drawn.random(int(real.sum()))).to(row)
    return found


def _contents(inputs: Inputs) -> list[Tensor]:
    """Each example without its padding, so that the company it is in changes nothing."""
    name, examples = main_input(inputs)
    mask = inputs.get("attention_mask")
    if name not in ("input_ids", "inputs_embeds") or not isinstance(mask, Tensor) or mask.shape != examples.shape[:2]:
        return list(examples)
    return [example[real] for example, real in zip(examples, mask.bool(), strict=True)]

"""Methods that read attention maps only, and the random control."""

from __future__ import annotations

import zlib
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from whyformer.axes import StreamScores
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.methods.co_attention import joined_by_the_last
from whyformer.methods.perception import remarks_on_decoders
from whyformer.methods.registry import method
from whyformer.models.input_tensors import INPUT_TENSORS
from whyformer.models.structure import main_input
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.flow import HeadMean, flow, fold, records_of
from whyformer.tracing.formulas import readout_rows, steps_between
from whyformer.tracing.question import Question
from whyformer.tracing.reads import Reads
from whyformer.tracing.steps import summed
from whyformer.tracing.trace import Trace, last_rows, zero_scores


@method("raw_attention", reads=Reads(maps="last"))
def raw_attention(trace: Trace) -> StreamScores:
    """The read-out's row of the last block's attention, head mean."""
    start = readout_rows(trace)
    rows = ((r.key_stream, fold(start[readout.stream], r, HeadMean())) for readout, r in last_rows(trace))
    return summed((stream, row[:, 0]) for stream, row in rows)


@method("rollout", reads=Reads(maps="all"))
def rollout(
    trace: Trace, *, first_block: int = 0, normalise_rows: bool = False, cross: Literal["flow", "last"] = "flow"
) -> Attribution:
    """Attention composed through the residual blocks (Abnar & Zuidema 2020; TA Eq. 15-16).

    Scores flow between streams as within one; `cross` "last" is GA's adaptation, which composes each stream separately
    and joins two by their last attention only (GA Eq. 12).
    """
    steps = steps_between(trace, first_block)
    kernel = next((record for record in records_of(steps) if record.kernel is not None), None)
    if normalise_rows and kernel is not None:
        raise UnsupportedModel(
            "rollout: normalise_rows divides each row of a map by its sum, but rows of a state space or a linear "
            f"attention ({kernel.path or 'path unknown'}) have signs and do not sum to 1: leave it out."
        )
    rows = {
        "flow": lambda: flow(steps, HeadMean(), readout_rows(trace), normalise_rows=normalise_rows),
        "last": lambda: joined_by_the_last(steps, HeadMean(), trace, normalise_rows=normalise_rows),
    }[cross]()
    scores = {stream: row[:, 0] for stream, row in rows.items()}
    return Attribution(scores, remarks=remarks_on_decoders(trace, "rollout"))


@method("random", reads=Reads(maps="last"))
def random(trace: Trace, *, seed: int = 0) -> StreamScores:
    """A control: noise, drawn for each example from its bytes and the seed."""
    if seed < 0:
        raise WhyformerError(f"random: seed={seed}. A seed is 0 or more.")
    by_stream = zero_scores(trace)
    checksums = _checksums(trace.question)
    for stream, scores in by_stream.items():
        name = zlib.crc32(stream.encode())
        for checksum, real, row in zip(checksums, trace.masks[stream], scores, strict=True):
            generator = np.random.default_rng((seed, name, checksum))
            row[real] = torch.from_numpy(generator.random(int(real.sum()))).to(row)
    return by_stream


def _checksums(question: Question) -> list[int]:
    """A checksum of each example's inputs without padding, so that it does not depend on the batch."""
    inputs, bridge = question.inputs, question.bridge
    main, _ = main_input(inputs)
    masks = {main: None} | {name: modality.mask for name, modality in INPUT_TENSORS.items()}
    checksums = [0] * question.batch
    for name, mask in masks.items():
        is_pictures = bridge is not None and name == "pixel_values"
        numbers = bridge.pixel_examples(inputs).tolist() if bridge and is_pictures else range(question.batch)
        for number, example in zip(numbers, inputs.get(name, ()), strict=False):
            if is_pictures and example.dim() == 4:
                example = example[example.flatten(1).any(dim=1)]  # all-zero pictures are padding
            kept = _without_padding(example, inputs[mask][number].bool() if mask in inputs else None)
            checksums[number] = zlib.crc32(kept.double().cpu().numpy().tobytes(), checksums[number])
    return checksums


def _without_padding(example: Tensor, real: Tensor | None) -> Tensor:
    """Select real entries; a text's mask is over tokens, a picture's over pixels, after the channels."""
    if real is not None and real.shape == example.shape[:1]:
        return example[real]
    return example[:, real] if real is not None and real.shape == example.shape[1:] else example

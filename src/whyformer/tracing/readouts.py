"""Where the answer of a forward pass is read, and which tokens of its streams are real."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor

from whyformer.axes import KEY, TokenMask, TokenScores
from whyformer.models.readout import ReadOut, read_out_reached, read_out_weights
from whyformer.models.structure import prefix_length
from whyformer.tracing.flow import Step
from whyformer.tracing.gradients import HiddenGradient
from whyformer.tracing.path import gradients_at
from whyformer.tracing.question import Question
from whyformer.tracing.record import AttentionRecord


def find_readouts(
    question: Question, steps: tuple[Step, ...], chosen: str | int | Tensor | None
) -> tuple[tuple[Step, ...], tuple[ReadOut, ...], dict[str, TokenMask]]:
    """The steps that reach the answer, the read-out of each stream it is read from, and each stream's real tokens.

    `chosen` is the caller's own read-out, for the first stream that is read; else the family's row tells, or, where
    that does not, the gradient of the last map.
    """
    if not steps:
        return _without_records(question, chosen)
    reached: dict[str, TokenMask] = {}
    kinds: dict[str, str | int | Tensor] = {}
    for number, stream in enumerate(stream for stream in question.family.streams if stream.is_read):
        kind = stream.readout if chosen is None or number else chosen
        kind = kind(question.model) if callable(kind) else kind
        if kind is not None:
            kinds[stream.name] = kind
            continue
        own = [r for step in steps for r in step if r.query_stream == stream.name]
        operation, reached[stream.name] = _last_reached(question, own)
        if not question.family.attention:
            steps = tuple(step for step in steps if step[0].operation <= operation)
    masks = _masks(question, steps)
    dtype = torch.promote_types(steps[-1][-1].source.dtype, torch.float32)
    weights = {name: read_out_reached(queries) for name, queries in reached.items()}
    weights |= {name: _weights(kind, question, masks[name]) for name, kind in kinds.items()}
    return steps, tuple(ReadOut(name, values.to(dtype)) for name, values in weights.items()), masks


def _without_records(
    question: Question, chosen: str | int | Tensor | None
) -> tuple[tuple[Step, ...], tuple[ReadOut, ...], dict[str, TokenMask]]:
    """The same for a text whose model has no map to tell: read at every real token, unless the caller knows better."""
    stream, ids = question.family.streams[0], question.inputs["input_ids"]
    mask = question.inputs.get(stream.mask or "")
    real = mask.bool() if isinstance(mask, Tensor) and mask.shape == ids.shape else torch.ones_like(ids).bool()
    weights = read_out_weights("mean" if chosen is None else chosen, real, 0)
    return (), (ReadOut(stream.name, weights),), {stream.name: real}


def _last_reached(question: Question, records: list[AttentionRecord]) -> tuple[int, TokenMask]:
    """The last operation that the answer depends on, and the queries of it that it depends on.

    Where the trace has no gradients, a pass of its own finds it.
    """
    for record in reversed(records):
        if record.gradient_source is not None:
            return record.operation, record.gradient_source.reached
        with suppress(HiddenGradient):
            (gradient,) = gradients_at(question, [record.operation])
            return record.operation, gradient.reached
    raise HiddenGradient


def _masks(question: Question, steps: tuple[Step, ...]) -> dict[str, TokenMask]:
    """Which tokens of each stream are real: the mask's word, or else those that any query attends to."""
    records = [record for step in steps for record in step]
    reading, read = ({getattr(r, end): r for r in records} for end in ("query_stream", "key_stream"))
    streams = dict.fromkeys(stream for r in records for stream in (r.query_stream, r.key_stream))
    return {name: _real(question, read[name]) if name in read else _all(reading[name]) for name in streams}


def _real(question: Question, record: AttentionRecord) -> TokenMask:
    names = {stream.name: stream.mask for stream in question.family.streams}
    mask = question.inputs.get(names.get(record.key_stream) or "")
    if not isinstance(mask, Tensor):
        return record.is_attended
    mask = mask.squeeze(1) if mask.dim() == 3 else mask  # the one choice that a multiple-choice head is given
    is_of_keys = mask.shape == (record.source.shape[0], record.source.shape[KEY])
    return mask.bool() if is_of_keys else record.is_attended


def _all(record: AttentionRecord) -> TokenMask:
    batch, _, queries, _ = record.source.shape
    return torch.ones(batch, queries, dtype=torch.bool, device=record.source.device)


def _weights(kind: str | int | Tensor, question: Question, mask: TokenMask) -> TokenScores:
    is_mean = isinstance(kind, str) and "mean" in kind
    prefix = prefix_length(question.model, question.inputs, mask.shape[1]) if is_mean else 0
    return read_out_weights(kind, mask, prefix)

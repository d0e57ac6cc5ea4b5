"""The read-outs of a forward pass, and the real tokens of its streams."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from whyformer.axes import TokenMask, TokenScores
from whyformer.backward.passes import HiddenGradient
from whyformer.errors import UnsupportedModel
from whyformer.models.joined import Transfer
from whyformer.models.readout import ReadOut, read_out_reached, read_out_weights
from whyformer.models.structure import can_write, prefix_length
from whyformer.models.weights import has_gradient
from whyformer.tracing.flow import Step, records_of, select_records
from whyformer.tracing.path import gradients_at
from whyformer.tracing.question import LAST, Question
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.steps import latest


def find_readouts(
    question: Question, steps: tuple[Step, ...], chosen: str | int | Tensor | None
) -> tuple[tuple[Step, ...], tuple[ReadOut, ...], dict[str, TokenMask]]:
    """Find the steps that reach the answer, the read-out of each stream it is read from, and each stream's real tokens.

    `chosen` is the caller's read-out for the first stream that is read. By default the family's row defines it, or
    else the gradient of the last map; a generative model without gradients is read at its last token.
    """
    if not steps:
        return _without_records(question, chosen)
    reached: dict[str, TokenMask] = {}
    kinds: dict[str, str | int | Tensor] = {}
    streams = [stream for stream in question.family.streams if stream.is_read]
    for number, stream in enumerate(streams):
        name = latest(stream.name, steps)
        kind = stream.readout if chosen is None or number else chosen
        kind = kind(question.model) if callable(kind) else kind
        if kind is None and not has_gradient(question.model):
            kind = _without_gradient(question)
        if kind is not None:
            kinds[name] = kind
            continue
        records = [record for record in records_of(steps) if record.query_stream == name]
        if len(streams) == 1 and _reads_last(question, records):
            kinds[name] = "last"
            continue
        last, reached[name] = _last_reached(question, records)
        if not question.family.attention and len(streams) == 1:
            steps = _up_to(last, steps)
    masks = _masks(question, steps)
    *_, record = records_of(steps)
    dtype = torch.promote_types(record.source.dtype, torch.float32)
    weights = {name: read_out_reached(queries) for name, queries in reached.items()}
    weights |= {name: _weights(kind, question, masks[name]) for name, kind in kinds.items()}
    return steps, tuple(ReadOut(name, values.to(dtype)) for name, values in weights.items()), masks


def _without_records(
    question: Question, chosen: str | int | Tensor | None
) -> tuple[tuple[Step, ...], tuple[ReadOut, ...], dict[str, TokenMask]]:
    """The same for a model without maps: read at every real token, unless the caller says otherwise."""
    masks: dict[str, TokenMask] = {}
    for stream in question.family.streams:
        ids, mask = question.word_pieces(stream.name), question.inputs.get(stream.mask or "")
        if ids is not None:
            real = mask if isinstance(mask, Tensor) and mask.shape == ids.shape else torch.ones_like(ids)
            masks[stream.name] = real.bool()
    read = question.family.stream
    if read not in masks:  # the tokens of other inputs are not known
        return (), (), masks
    weights = read_out_weights("mean" if chosen is None else chosen, masks[read], 0)
    return (), (ReadOut(read, weights),), masks


def _reads_last(question: Question, records: list[AttentionRecord]) -> bool:
    """Whether the answer reads the last token, as it must if the model returns its logits alone."""
    is_unknown = all(record.gradient_source is None for record in records)
    return is_unknown and LAST.items() <= question.inputs.items() and question.family.is_one_stack


def _without_gradient(question: Question) -> str:
    if not can_write(question.model):
        raise UnsupportedModel(
            f"{type(question.model).__name__} has layers without a gradient, so its read-out cannot be found: give it "
            "as readout='first', 'mean' or 'last'."
        )
    return "last"


def _up_to(operation: int, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    return select_records(steps, lambda record: record.operation <= operation)


def _last_reached(question: Question, records: list[AttentionRecord]) -> tuple[int, TokenMask]:
    """The last operation that the answer depends on, and which of its queries.

    Without gradients in the trace, this takes a separate pass.
    """
    for record in reversed(records):
        with suppress(HiddenGradient):
            if record.gradient_source is None:
                record = replace(record, gradient_source=gradients_at(question, [record.operation])[0])
            return record.operation, record.reached
    raise HiddenGradient


def _masks(question: Question, steps: tuple[Step, ...]) -> dict[str, TokenMask]:
    """Which tokens of each stream are real: by the mask, or else those that any query attends to."""
    records = list(records_of(steps))
    reading = {record.query_stream: record for record in records}
    read: dict[str, list[AttentionRecord]] = {}
    for together in (step for step in steps if not isinstance(step, Transfer)):  # packed sequences have several records
        read |= {record.key_stream: [r for r in together if r.key_stream == record.key_stream] for record in together}
    streams = dict.fromkeys(stream for r in records for stream in (r.query_stream, r.key_stream))
    masks = {name: _real(question, read[name]) if name in read else _all(reading[name]) for name in streams}
    for step in steps:
        if isinstance(step, Transfer) and step.earlier not in masks:  # that no attention reads
            masks[step.earlier] = torch.ones(step.batch, step.lengths[1], dtype=torch.bool, device=step.shares.device)
    return masks


def _real(question: Question, records: list[AttentionRecord]) -> TokenMask:
    names, record = {stream.name: stream.mask for stream in question.family.streams}, records[0]
    mask = question.inputs.get(names.get(record.key_stream) or "")
    if isinstance(mask, Tensor):
        mask = mask.squeeze(1) if mask.dim() == 3 else mask  # a multiple-choice head has an axis of one choice
        if mask.shape == (record.batch, record.lengths[1]):
            return mask.bool()
    return torch.stack([record.is_attended for record in records]).any(dim=0)


def _all(record: AttentionRecord) -> TokenMask:
    return torch.ones(record.batch, record.lengths[0], dtype=torch.bool, device=record.source.device)


def _weights(kind: str | int | Tensor, question: Question, mask: TokenMask) -> TokenScores:
    is_mean = isinstance(kind, str) and "mean" in kind
    prefix = prefix_length(question.model, question.inputs, mask.shape[1]) if is_mean else 0
    return read_out_weights(kind, mask, prefix)

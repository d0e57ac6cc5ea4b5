"""The scores of a row by the parts of its exchange: words and other parts of the prompt, and the response so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from whyformer.api.assemble import picture_parts
from whyformer.inputs.modality import ForwardBatch, known_modalities
from whyformer.inputs.teacher_forcing import ResponseRow, row_weights, stream_mask
from whyformer.models.readout import ReadOut
from whyformer.results.part import Part
from whyformer.targets.resolve import ResolvedTarget
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.trace import Trace, real_tokens


@dataclass(frozen=True, eq=False)
class ExchangeRowScores:
    """Scores of a row, with its weights: of the prompt's tokens, the decoder's start and the response's own tokens."""

    row: ResponseRow
    prompt: np.ndarray
    beginning: np.ndarray
    response: np.ndarray
    completeness: float | None = None
    remarks: tuple[str, ...] = ()
    parts: Mapping[str, Part] = field(default_factory=dict)  # of the prompt that are not texts


def row_target(trace: Trace, rows: Sequence[ResponseRow]) -> ResolvedTarget:
    """The target of these rows: the log-probability of each row's token."""
    return replace(trace.target, indices=tuple(row.token for row in rows))


def read_at(trace: Trace, rows: Sequence[ResponseRow]) -> Trace:
    """The trace with these rows as read-outs, and later tokens masked as padding."""
    readout, inputs = trace.readout, trace.question.inputs
    weights = row_weights(rows, readout.weights.shape[1]).to(readout.weights)
    lengths = torch.tensor([row.length for row in rows], device=weights.device)
    real = torch.arange(weights.shape[1], device=weights.device) < lengths[:, None]
    name = stream_mask(inputs)
    return replace(
        trace,
        target=row_target(trace, rows),
        question=replace(trace.question, inputs={**inputs, name: inputs[name] * real}),
        readouts=(ReadOut(readout.stream, weights),),
        masks={**trace.masks, readout.stream: trace.mask & real},
    )


def row_scores(rows: Sequence[ResponseRow], attribution: Attribution, trace: Trace) -> Iterator[ExchangeRowScores]:
    """The scores of each row by part, with zeros for streams that are not scored."""
    own = trace.readout.stream
    other = next((stream.name for stream in trace.question.family.streams if stream.name != own), own)
    for number, row in enumerate(rows):
        exchange = row.exchange
        written = np.zeros(len(exchange.written), dtype=np.float32)
        if own in attribution:
            written[: row.length] = attribution[own][number, : row.length].float().cpu().numpy()
        before, response = np.split(written, [exchange.first])
        prompt = before
        if exchange.beginning is not None:
            prompt = np.zeros(len(exchange.prompt), dtype=np.float32)
            if other in attribution:
                prompt = attribution[other][number, : len(prompt)].float().cpu().numpy()
        yield ExchangeRowScores(
            row=row,
            prompt=prompt,
            beginning=before if exchange.beginning is not None else before[:0],
            response=response,
            completeness=None if attribution.completeness is None else float(attribution.completeness[number]),
            remarks=attribution.remarks_on(number),
            parts=dict([*_pictures(number, row, attribution, trace), *_encoder_parts(number, row, attribution, trace)]),
        )


def _pictures(number: int, row: ResponseRow, attribution: Attribution, trace: Trace) -> Iterator[tuple[str, Part]]:
    """The pictures of a row's prompt with the scores of their patches."""
    bridge, pictured = trace.question.bridge, row.exchange.image_prompt
    if bridge is not None and pictured is not None:
        example = number if bridge.batch == trace.question.batch else 0  # several rows may share a pass
        scores = np.zeros(bridge.image_length, dtype=np.float32)
        if "image" in attribution:
            scores = attribution["image"][number].float().cpu().numpy()
        yield from picture_parts(pictured, example, bridge, scores)


def _encoder_parts(number: int, row: ResponseRow, attribution: Attribution, trace: Trace) -> Iterator[tuple[str, Part]]:
    """The input of the encoder with its scores, if that is not a text."""
    if row.exchange.encoder_part is None:
        return
    (name, part), question, own = row.exchange.encoder_part, trace.question, trace.readout.stream
    lengths = {stream: scores.shape[1] for stream, scores in attribution.items() if stream != own}  # or of its input
    lengths = lengths or {stream: mask.shape[1] for stream, mask in real_tokens(trace).items() if stream != own}
    modality = known_modalities()[name]
    place = None if modality.place is None else modality.place(question.model, question.inputs, lengths)
    if place is not None and modality.lay_out is not None:
        none = torch.zeros(lengths[place.stream])
        scores = attribution[place.stream][number].float().cpu() if place.stream in attribution else none
        example = number if question.batch > 1 else 0  # several rows may share a pass
        laid_out = modality.lay_out(part, example, ForwardBatch(question.model, question.inputs), place, scores)
        yield laid_out.name, Part(laid_out.layout, laid_out.scores.numpy())

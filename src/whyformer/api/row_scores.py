"""The scores of a row by the parts of its exchange: words of the prompt, pictures, a sound, and the response so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from whyformer.api.assemble import picture_parts
from whyformer.inputs.audio_encoding import audio_layout
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
    parts: Mapping[str, Part] = field(default_factory=dict)  # pictures among the prompt's words, or a sound


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
            parts=dict([*_pictures(number, row, attribution, trace), *_sounds(number, row, attribution, trace)]),
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


def _sounds(number: int, row: ResponseRow, attribution: Attribution, trace: Trace) -> Iterator[tuple[str, Part]]:
    """The sound of a row with the scores of its frames."""
    hearing, question = row.exchange.audio, trace.question
    if hearing is not None:
        own = trace.readout.stream
        if stream := next((name for name in attribution if name != own), None):  # of the encoder, or of its input
            scores = attribution[stream][number].float().cpu().numpy()
        else:
            (frames,) = (mask for name, mask in real_tokens(trace).items() if name != own)
            scores = np.zeros(frames.shape[1], dtype=np.float32)
        layout, positions = audio_layout(question.model, question.inputs, hearing, len(scores))
        yield "audio", Part(layout, scores[positions.numpy()])

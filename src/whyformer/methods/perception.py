"""Parts of a trace shared by BI's methods: the last attention that reads each stream, and its feedback."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from whyformer.axes import Rows, TokenScores, head_mean
from whyformer.errors import UnsupportedModel
from whyformer.models.joined import Transfer
from whyformer.models.readout import ReadOut
from whyformer.tracing.checks import is_causal
from whyformer.tracing.flow import Mix, Step, carry, flow, records_of
from whyformer.tracing.formulas import readout_rows
from whyformer.tracing.leaves import Baseline
from whyformer.tracing.path import Quadrature, integrated_map_gradients, nodes_and_weights
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.steps import connected, joined
from whyformer.tracing.trace import Trace, copies_at_once

# Measured by benchmarks/decoder_sinks.py; docs/results/real.md has the figures.
ON_DECODERS = (
    "Attention composed through the blocks of a causal language model ends at the first tokens, whatever the answer: "
    "on SmolLM2 {method} finds the sources of an answer about as often as noise (docs/results/real.md, Sinks). Use "
    "generic_attention: for a response with focus='sources', its default, otherwise with backward='attn_lrp'."
)


def remarks_on_decoders(trace: Trace, method: str) -> tuple[str, ...]:
    """A remark on what composed attention is worth where every token is a word that attends to earlier ones only."""
    question = trace.question
    if question.family.is_one_stack and question.is_words_alone and is_causal(trace.mask, trace.last):
        return (ON_DECODERS.format(method=method),)
    return ()


@dataclass(frozen=True)
class Reading:
    """A stream, the last attention that reads it, and the weights of its queries in the answer.

    Streams that are merged, moved or computed from each other count as one. The transfers between them are among the
    steps `before`.
    """

    stream: str
    record: AttentionRecord
    queries: ReadOut
    before: tuple[Step, ...] = ()


def perceive(trace: Trace, steps: list[Step], mixing: Mix) -> list[tuple[Reading, dict[str, Rows]]]:
    """For each stream, the last attention that reads it and the rows of P, one per query with a weight.

    P starts at the queries of that attention, whose weights are the flow from the answer to them. If the stream is
    computed from others, the rows are over their tokens.
    """
    for streams in connected(steps):
        read = [readout.stream for readout in trace.readouts if readout.stream in streams]
        if len(read) > 1:
            raise UnsupportedModel(
                f"The answer is read in {' and '.join(read)}, which attend to each other: no attention is the last "
                "of both. rollout and generic_attention work on it."
            )
    same_tokens = {stream: group for group in joined(steps) for stream in group}
    last = {
        same_tokens[record.key_stream]: (number, record)
        for number, step in enumerate(steps)
        for record in records_of([step])
    }
    readings = []
    for streams, (number, record) in last.items():
        queries = ReadOut(record.query_stream, _weight_of_queries(trace, record, steps[number + 1 :], mixing))
        positions, _ = queries.rows
        start, before = {queries.stream: queries.one_hot(positions)}, tuple(steps[:number])
        rows, kept = flow([*before, (record,)], mixing, start), carry(start, before)
        own = {stream: rows[stream] + kept.get(stream, 0.0) for stream in rows if stream in streams}
        readings.append((Reading(record.key_stream, record, queries, before), own))
    return readings


def _weight_of_queries(trace: Trace, record: AttentionRecord, later: list[Step], mixing: Mix) -> TokenScores:
    """The flow from the answer, through the steps after a record, to its queries."""
    start = readout_rows(trace)
    moved = flow(later, mixing, start)[record.query_stream]
    return (moved + carry(start, later).get(record.query_stream, 0.0))[:, 0]


def integrated_feedback(
    trace: Trace, readings: list[Reading], quadrature: Quadrature, steps: int, baseline: Baseline | Tensor
) -> dict[str, Rows]:
    """F of each stream at the queries with a weight (BI Eq. 17).

    It is the integrated gradient of the last map that reads the stream, clamped per head, head mean. Streams that
    attend to each other are scaled together, towers separately. A token that was merged into another has the feedback
    of that one.
    """
    nodes, weights = nodes_and_weights(quadrature, steps)
    by_stream: dict[str, Rows] = {}
    for streams in connected(trace.steps):
        inside = [reading for reading in readings if reading.stream in streams]
        if not inside:  # first_block left a tower without any
            continue
        rows = [(reading.record, reading.queries.rows[0]) for reading in inside]
        sums = integrated_map_gradients(
            trace.question, rows, list(streams), nodes, weights, baseline, copies_at_once(trace)
        )
        for reading in inside:
            feedback = head_mean(sums[reading.record.operation].clamp(min=0))
            by_stream |= _at_parts({reading.stream: feedback}, reading.before)
    return by_stream


def gradient_feedback(readings: list[Reading]) -> dict[str, Rows]:
    """The same from the gradient at the input only, which the trace already has."""
    by_stream: dict[str, Rows] = {}
    for reading in readings:
        gradient = reading.record.pick(reading.queries.rows[0]).gradient
        by_stream |= _at_parts({reading.stream: head_mean(gradient.clamp(min=0))}, reading.before)
    return by_stream


def _at_parts(feedback: dict[str, Rows], before: tuple[Step, ...]) -> dict[str, Rows]:
    """Carry feedback to the tokens that others were computed from: the mean over all that each is part of."""
    if not any(isinstance(step, Transfer) for step in before):
        return feedback
    sums = carry(feedback, before)
    counts = carry({stream: torch.ones_like(rows) for stream, rows in feedback.items()}, before)
    return {stream: rows / counts[stream].where(counts[stream] > 0, 1.0) for stream, rows in sums.items()}

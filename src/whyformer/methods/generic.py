"""Generic Attention Explainability (GA, ICCV 2021)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import reduce
from typing import Literal

import torch

from whyformer.axes import MixingMatrix, Rows, StreamScores, head_mean
from whyformer.methods.registry import method
from whyformer.models.joined import Transfer
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.flow import HeadMean, Mix, Step, dense, each_record, flow, records_of
from whyformer.tracing.formulas import map_relevances, readout_rows, steps_between
from whyformer.tracing.graph import MapRelevances
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.steps import summed
from whyformer.tracing.trace import Trace

WITH_RELEVANCES = Reads(maps="all", gradients="all", relevances="all")
Relevance = dict[tuple[str, str], MixingMatrix]  # R_sq: the relevance of each token of q to each token of s


@method(
    "generic_attention", reads=Reads(maps="all", gradients="all"), reads_if={("maps", "relevance"): WITH_RELEVANCES}
)
def generic_attention(
    trace: Trace,
    *,
    first_block: int = 0,
    clamp: Literal["before", "after"] = "before",
    normalise: bool = True,
    aggregate: bool = True,
    self_factors: bool = True,
    maps: Literal["attention", "relevance"] = "attention",
) -> Attribution:
    """Attention weighted by its gradient, composed through the blocks (GA Eq. 5-11).

    `clamp` sets whether negative products are dropped before the head mean, as published, or after it. The next three
    options are GA's ablations, which affect several streams: no normalisation (Eq. 8-9), updates that replace instead
    of adding, and cross-attention (Eq. 10) without self-attention factors. `maps` "relevance" replaces each map by its
    relevance under TA's rules, as in the authors' code.
    """
    relevances = map_relevances(trace, "dtd", strict=True) if maps == "relevance" else None

    def product(record: AttentionRecord) -> MixingMatrix:
        weighted = record.gradient * (record.map if relevances is None else record.relevance)
        return head_mean(weighted.clamp(min=0)) if clamp == "before" else head_mean(weighted).clamp(min=0)

    weighted: Mix = HeadMean(times_gradient=True) if clamp == "before" and relevances is None else product
    steps = steps_between(trace, first_block)
    if relevances is not None:
        steps = list(each_record(steps, relevances.on))
    # The rules between streams apply to two streams of tokens that attend to each other. Tokens made of others, and
    # streams read through a third, use flow.
    is_joined = any(isinstance(step, Transfer) for step in steps)
    if not trace.question.family.attention or is_joined or _is_chain(trace):
        rows = flow(steps, weighted, readout_rows(trace))
        return _attribution({stream: row[:, 0] for stream, row in rows.items()}, relevances)
    encoders = _encoders(steps, trace) if aggregate else {}
    relevance = start = _unrelated(trace, encoders)
    for step in steps:
        assert not isinstance(step, Transfer)
        own = tuple(record for record in step if record.query_stream not in encoders)
        added = _added(own, weighted, relevance, normalise=normalise, self_factors=self_factors)
        relevance = relevance | {pair: relevance[pair] + part if aggregate else part for pair, part in added.items()}
    if aggregate:  # the identity marks the read-out, not relevance
        relevance = {pair: matrix - start[pair] for pair, matrix in relevance.items()}
    by_stream = {readout.stream: readout.weights[:, None, :] for readout in trace.readouts}
    read = ((query, key) for query, key in relevance if query in by_stream)
    reached = [(key, by_stream[query] @ relevance[query, key]) for query, key in read]
    if self_factors:
        reached = [(key, _encoded(row, encoders.get(key, ()), weighted, normalise=normalise)) for key, row in reached]
    scores = summed((key, row[:, 0]) for key, row in reached)
    return _attribution(scores, relevances)


def _attribution(scores: StreamScores, relevances: MapRelevances | None) -> Attribution:
    return Attribution(scores, remarks=() if relevances is None else relevances.remarks)


def _is_chain(trace: Trace) -> bool:
    """Whether the answer reads some stream only through another one."""
    read = {readout.stream for readout in trace.readouts}
    beside = read | {record.key_stream for record in trace.records if record.query_stream in read}
    return any(record.key_stream not in beside for record in trace.records)


def _encoders(steps: Sequence[Step], trace: Trace) -> dict[str, list[AttentionRecord]]:
    """The records of each stream that attends only to itself, before others attend to it.

    Its R_ss is the same for all that attend to it, and only a row of it is read. So two chains of matrix-vector
    products suffice, where R_ss would take products of matrices.
    """
    joined = {readout.stream for readout in trace.readouts}
    read: set[str] = set()  # by others so far
    own: dict[str, list[AttentionRecord]] = {}
    for record in records_of(steps):
        query, key = record.query_stream, record.key_stream
        if query != key:
            joined.add(query)
            read.add(key)
        elif query in read or record.tokens is not None:
            joined.add(query)
        else:
            own.setdefault(query, []).append(record)
    return {stream: records for stream, records in own.items() if stream not in joined}


def _encoded(row: Rows, records: Sequence[AttentionRecord], weighted: Mix, *, normalise: bool) -> Rows:
    """A row times R_ss of an encoder, normalised by Eq. 8-9."""
    matrices = [dense(record, weighted) for record in records]
    start = row
    if normalise and matrices:
        ones = row.new_ones(len(row), matrices[0].shape[-1], 1)
        total = torch.zeros_like(ones)  # of each row of R − I, added up without the 1 that would swallow it
        for matrix in matrices:
            total = total + matrix @ (ones + total)
        start = row / total.where(total != 0, 1.0).mT
    moved = torch.zeros_like(row)
    for matrix in reversed(matrices):
        moved = moved + (start + moved) @ matrix
    return row + moved


def _unrelated(trace: Trace, encoders: Collection[str]) -> Relevance:
    """R before any attention: the identity within streams, 0 between streams that attend to each other.

    Encoders have no R.
    """
    dtype = trace.readout.weights.dtype
    relevance = {}
    for record in trace.records:
        for pair in ((record.query_stream,) * 2, (record.key_stream,) * 2, (record.query_stream, record.key_stream)):
            if pair[0] == pair[1] and pair[0] in encoders:
                continue
            first, second = (trace.masks[stream] for stream in pair)
            relevance[pair] = torch.zeros(*first.shape, second.shape[1], dtype=dtype, device=first.device)
            if pair[0] == pair[1]:
                relevance[pair].diagonal(dim1=1, dim2=2).fill_(1.0)
    return relevance


def _added(
    step: tuple[AttentionRecord, ...],
    weighted: Callable[[AttentionRecord], MixingMatrix],
    relevance: Relevance,
    *,
    normalise: bool,
    self_factors: bool,
) -> Relevance:
    """The update of R by one step, computed from R before the step."""
    added: Relevance = {}
    for record in step:
        query, key, mixed = record.query_stream, record.key_stream, dense(record, weighted)
        if query == key:  # Eq. 6-7
            parts = {(query, other): mixed @ matrix for (own, other), matrix in relevance.items() if own == query}
        else:  # Eq. 10-11
            parts = {(query, key): mixed}
            if self_factors:
                factors = {s: relevance[s, s] for s in (query, key) if (s, s) in relevance}
                own, *others = ((normalised(r) if normalise else r) for r in factors.values())
                parts[query, key] = reduce(torch.matmul, others, own.mT @ mixed)
            if (key, query) in relevance:
                parts[query, query] = mixed @ relevance[key, query]
        added |= {pair: added[pair] + part if pair in added else part for pair, part in parts.items()}
    return added


def normalised(relevance: MixingMatrix) -> MixingMatrix:
    """Divide R − I by its row sums and add I again (GA Eq. 8-9); rows of zeros stay zero."""
    identity = torch.eye(relevance.shape[-1], dtype=relevance.dtype, device=relevance.device)
    gained = relevance - identity
    total = gained.sum(dim=-1, keepdim=True)
    return gained / total.where(total != 0, 1.0) + identity

"""Information flow routes: the proximity of each attention edge to the state it is added to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from whyformer.axes import State, StreamScores, TokenMask, TokenScores, at_least_float32
from whyformer.errors import WhyformerError
from whyformer.methods.registry import method
from whyformer.models.joined import Transfer
from whyformer.models.readout import ReadOut
from whyformer.tracing.checks import STATE, unseen_parts
from whyformer.tracing.formulas import steps_between
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.steps import summed
from whyformer.tracing.trace import Trace
from whyformer.watching.mixing import TILE, TILE_ON_CPU


@method("flow_routes", reads=Reads(maps="all", edges=True))
def flow_routes(trace: Trace, *, hops: int = 0, span: Tensor | None = None) -> StreamScores:
    """Share of each key's edges in the state they are added to, summed over blocks (Ferrando & Voita 2024; FlashTrace).

    All positions of the read-out form one sink: their states and edges are summed first. `hops` is the number of rounds
    that pass on the scores of `span`, a mask of reasoning positions. These become the sink weights of the next round,
    whose scores are weighted by the share passed on.
    """
    span = _span_mask(trace, hops, span)
    stream, sinks, handed_on = trace.readout.stream, trace.readouts, torch.ones_like(trace.readout.weights[:, :1])
    parts: list[tuple[str, TokenScores]] = []
    for hop in range(hops + 1):
        shares = summed(part for sink in sinks for part in _edge_shares(trace, sink))
        scores = {name: values * handed_on for name, values in shares.items()}
        if hop < hops:
            scores.setdefault(
                stream, torch.zeros_like(span, dtype=handed_on.dtype)
            )  # a pooled stream has no scores of its own
            on_span = scores[stream] * span
            total = torch.cat([*scores.values()], dim=1).sum(dim=1, keepdim=True)
            handed_on = handed_on * _divided(on_span.sum(dim=1, keepdim=True), total)
            sinks = (ReadOut(stream, _divided(on_span, on_span.sum(dim=1, keepdim=True))),)
            scores[stream] = scores[stream] - on_span
        parts += scores.items()
    return summed(parts)


def _edge_shares(trace: Trace, sink: ReadOut) -> list[tuple[str, TokenScores]]:
    """e_j of every block at a weighted sink, or at the tokens it is made of, by the keys' stream."""
    sinks = {sink.stream: sink.weights[:, None]}
    shares: list[tuple[str, TokenScores]] = []
    for step in reversed(steps_between(trace, 0)):
        if isinstance(step, Transfer):
            sinks = {stream: rows for stream, rows in step.carry(sinks).items() if bool(rows.any())}
            continue
        reading = [record for record in step if record.query_stream in sinks]
        for branches in [reading] if any(record.kernel is not None for record in reading) else [[x] for x in reading]:
            stream = branches[0].query_stream
            own = edge_shares(branches, ReadOut(stream, sinks[stream][:, 0]))
            shares += zip((record.key_stream for record in branches), own, strict=True)
    return shares[::-1]


def edge_shares(branches: Sequence[AttentionRecord], sink: ReadOut) -> list[TokenScores]:
    """e_j = Σ_h p(f_jh, x') / (Σ_jh p(f_jh, x') + p(x, x')), x and x' the sink's state before and after attention.

    f_jh = Σ_i r_i (A_h[i, j] v_jh ⊙ g_ih) W_oh is the vector of the edge from key j by head h. g is what the mixed
    values are multiplied by, and p is the proximity. The edges of parallel branches share one denominator.
    """
    for record in branches:
        parts = {STATE: record.query_states[0], "W_v": record.linear_value, "W_o": record.output_weight}
        missing = [name for name, part in parts.items() if part is None]
        if record.query_states[1] is None or missing:
            raise unseen_parts("flow_routes", missing, record, instead="rollout")
    before, after = (_sink_state(state, sink) for state in branches[0].query_states if state is not None)
    edges = [_edge_proximities(record, sink, after) for record in branches]
    total = torch.cat(edges, dim=1).sum(dim=1, keepdim=True) + proximity(before, after).clamp(min=0)[:, None]
    return [_divided(part, total) for part in edges]


def _edge_proximities(record: AttentionRecord, sink: ReadOut, after: Tensor) -> TokenScores:
    """Σ_h p(f_jh, x'), for some heads and keys at a time, without materialising all edge vectors."""
    assert record.linear_value is not None
    assert record.output_weight is not None
    attention, values = _sink_attention(record, sink), record.linear_value()
    if record.tokens is not None:
        values = record.tokens.values_at_keys(values)
    heads, _, width = values.shape[1:]
    outputs = record.output_weight.unflatten(-1, (heads, width)).permute(1, 2, 0).to(after)  # [head, feature, channel]
    near = torch.zeros_like(attention[:, 0, :, 0])
    reached = attention.ne(0).any(dim=3).any(dim=1).any(dim=0).nonzero()[:, 0]  # a convolution reaches few keys
    vectors = max(1, (TILE_ON_CPU if after.device.type == "cpu" else TILE) // after.numel())
    together = max(1, vectors // max(1, len(reached)))
    for some in (slice(start, start + together) for start in range(0, heads, together)):
        for part in reached.split(vectors):
            edge = attention[:, some, part] * at_least_float32(values[:, some, part]).to(after)
            near[:, part] += proximity(edge @ outputs[some], after[:, None, None]).clamp(min=0).sum(dim=1)
    return near


def _sink_state(state: State, sink: ReadOut) -> Tensor:
    """Σ_i r_i x_i over the positions of the sink."""
    positions, weights = sink.rows
    return torch.einsum("bq,bqc->bc", weights, state.take_along_dim(positions[..., None], dim=1).to(weights))


def _sink_attention(record: AttentionRecord, sink: ReadOut) -> Tensor:
    """Σ_i r_i A_h[i, j] g_ih, a weight per head, key and feature, from the rows of the sink alone."""
    positions, weights = sink.rows
    picked = record.pick(positions)
    if picked.output_scale is not None:  # of a norm between W_o and the residual stream
        weights = weights * picked.output_scale.to(weights)
    weights = weights[:, None, :, None]
    if picked.gate is not None:
        weights = weights * picked.gate.to(weights)
    weights = weights.expand(-1, picked.source.shape[1], -1, -1)
    parts = [
        torch.einsum("bhqf,bhqk->bhkf", weights[:, :, rows], tile.map.to(weights)) for rows, tile in picked.tiles()
    ]
    return torch.stack(parts).sum(dim=0)


def proximity(part: Tensor, whole: Tensor) -> Tensor:
    """‖x‖₁ − ‖a − x‖₁ over the last axis.

    Per channel, |x| − |a − x| is min(g, 2|x| − g) with g = a sign(x), which avoids cancellation for a small part.
    """
    along = torch.where(whole < 0, -part, part)
    return torch.minimum(along, 2 * whole.abs() - along).sum(dim=-1)


def _divided(part: Tensor, total: Tensor) -> Tensor:
    """part / total, or 0 if the total is 0."""
    return part / total.where(total > 0, 1.0)


def _span_mask(trace: Trace, hops: int, span: Tensor | None) -> TokenMask:
    length = trace.mask.shape[1]
    if hops < 0:
        raise WhyformerError(f"flow_routes: hops={hops}. It must be 0 or more.")
    if span is None:
        if hops:
            raise WhyformerError(
                f"flow_routes: hops={hops} needs span=…, a mask of the {length} positions to hop through."
            )
        return torch.zeros_like(trace.mask)
    if span.shape[-1] != length:
        raise WhyformerError(f"flow_routes: span has {span.shape[-1]} positions, the stream {length} tokens.")
    return span.to(trace.mask.device).bool().expand(trace.mask.shape)

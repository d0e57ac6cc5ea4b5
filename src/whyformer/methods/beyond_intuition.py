"""Beyond Intuition (BI, TMLR 2023): attention perception times reasoning feedback."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from whyformer.axes import KEY, QUERY, MixingMatrix, Rows, StreamScores, TokenScores, head_mean
from whyformer.errors import UnsupportedModel
from whyformer.methods.perception import Reading, integrated_feedback, perceive, remarks_on_decoders
from whyformer.methods.registry import method
from whyformer.models.joined import MapTokens
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.checks import STATE, unseen_parts
from whyformer.tracing.flow import HeadMean, carry, records_of
from whyformer.tracing.formulas import steps_between
from whyformer.tracing.leaves import Baseline
from whyformer.tracing.path import Quadrature
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.trace import Trace

Feedback = Literal["integrated", "gradient", "none"]


@method("bi_head", reads=Reads(maps="all", gradients="all", path=True))
def bi_head(
    trace: Trace,
    *,
    first_block: int = 0,
    perception: Literal["head", "mean", "last", "none"] = "head",
    importance: Literal["inner", "matrix"] = "inner",
    feedback: Feedback = "integrated",
    quadrature: Quadrature = "gauss",
    steps: int = 8,
    baseline: Baseline | Tensor = "zero",
) -> Attribution:
    """Attention heads weighted by their importance to the answer, times feedback (BI Eq. 15-18)."""
    remarks = () if perception == "none" else remarks_on_decoders(trace, "bi_head")
    steps_followed = steps_between(trace, first_block)
    records = records_of(reversed(steps_followed))  # gradients arrive from the end
    thetas = {record.operation: head_theta(record, importance) for record in records if perception == "head"}

    def by_importance(tile: AttentionRecord) -> MixingMatrix:
        theta = thetas[tile.operation]
        if tile.tokens is None:
            return torch.einsum("bhqk,bh->bqk", tile.map.to(theta.dtype), theta)
        return torch.einsum("mhqk,mqh->mqk", tile.map.to(theta.dtype), theta[tile.tokens.examples()])

    mixing = by_importance if perception == "head" else HeadMean()
    rows = perceive(trace, steps_followed, mixing)
    if perception in ("last", "none"):
        rows = [(reading, _last_rows(reading, own, perception)) for reading, own in rows]
    return Attribution(_times_feedback(trace, rows, feedback, quadrature, steps, baseline), remarks=remarks)


@method("bi_token", reads=Reads(maps="all", states=True, path=True))
def bi_token(
    trace: Trace,
    *,
    first_block: int = 0,
    alpha: Literal["paper", "values"] = "paper",
    feedback: Feedback = "integrated",
    quadrature: Quadrature = "gauss",
    steps: int = 8,
    baseline: Baseline | Tensor = "zero",
) -> Attribution:
    """Attention weighted by how far each key token's state is carried on, times feedback (BI Eq. 13-14, 16-18)."""
    rows = token_perception(trace, first_block, alpha)
    scores = _times_feedback(trace, rows, feedback, quadrature, steps, baseline)
    return Attribution(scores, remarks=remarks_on_decoders(trace, "bi_token"))


def token_perception(trace: Trace, first_block: int, alpha: str) -> list[tuple[Reading, dict[str, Rows]]]:
    """P of each stream by token weights α (BI Eq. 13-14, 16)."""
    steps = steps_between(trace, first_block)
    alphas = {record.operation: token_alpha(record, alpha) for record in records_of(steps)}
    return perceive(trace, steps, HeadMean(key_scales=alphas))


def head_theta(record: AttentionRecord, importance: str) -> Tensor:
    """θ_h = I_h / Σ I_h with I_h = |Σ A_h ⊙ G_h| (Michel et al. 2019), or the authors' mean |A_hᵀ G_h|.

    If no head has any importance, all count equally.
    """
    dtype = torch.promote_types(record.source.dtype, torch.float32)
    if record.tokens is not None:
        weight = _of_examples(record, record.tokens, importance, dtype)
    elif importance == "inner":
        parts = [(tile.map * tile.gradient).sum(dim=(QUERY, KEY), dtype=dtype) for _, tile in record.tiles()]
        weight = torch.stack(parts).sum(dim=0).abs()
    else:
        weight = (record.map.transpose(QUERY, KEY) @ record.gradient).abs().mean(dim=(QUERY, KEY), dtype=dtype)
    total = weight.sum(dim=1, keepdim=True)
    return torch.where(total > 0, weight / total.where(total > 0, 1.0), 1.0 / weight.shape[1])


def _of_examples(record: AttentionRecord, tokens: MapTokens, importance: str, dtype: torch.dtype) -> Tensor:
    """The importance of heads whose maps cover windows or tiles, summed over those of an example."""
    if importance == "inner":
        parts = [(tile.map * tile.gradient).sum(dim=KEY, dtype=dtype) for _, tile in record.tiles()]
        return tokens.to_queries(torch.cat(parts, dim=QUERY)).sum(dim=-1).abs()
    product = (record.map.transpose(QUERY, KEY) @ record.gradient).abs().sum(dim=KEY, dtype=dtype)
    return tokens.to_keys(product).sum(dim=-1)


def token_alpha(record: AttentionRecord, alpha: str) -> TokenScores:
    """α_j = ‖(Z W_v W_o)_j‖ / ‖Z_j‖ over key tokens (BI Eq. 14).

    The authors' code has the numerator ‖v_j W_o‖ instead ("values"), which includes LayerNorm and bias. Kernels use it
    too, because a convolution separates their values from W_v.
    """
    alpha = alpha if record.kernel is None else "values"
    source = {"W_v": record.value_weight} if alpha == "paper" else {"the values": record.value}
    parts = {STATE: record.key_state, "W_o": record.output_weight} | source
    missing = [name for name, part in parts.items() if part is None]
    if missing:
        raise unseen_parts("bi_token", missing, record, instead="bi_head")
    state, output_weight, origin = (_wide(part) for part in parts.values() if part is not None)
    if alpha == "paper" and state.shape[-1] != origin.shape[-1]:
        raise UnsupportedModel(
            f"bi_token: W_v of block {record.block} reads no residual state of {state.shape[-1]} channels."
        )
    if alpha == "values" and origin.shape[1] * origin.shape[3] < output_weight.shape[-1]:  # one for several query heads
        origin = origin.repeat_interleave(output_weight.shape[-1] // (origin.shape[1] * origin.shape[3]), dim=1)
    moved = state @ origin.T if alpha == "paper" else origin.transpose(1, 2).flatten(2)
    dtype = torch.promote_types(record.source.dtype, torch.float32)
    before, after = (torch.linalg.vector_norm(x, dim=-1, dtype=dtype) for x in (state, moved @ output_weight.T))
    ratio: Tensor = after / before.where(before > 0, 1.0)
    return ratio.where(before > 0, 0.0)


def _wide(part: Tensor) -> Tensor:
    """Widen float16, in which products of states before their LayerNorm overflow."""
    return part.float() if part.dtype == torch.float16 else part


def _last_rows(reading: Reading, rows: dict[str, Rows], perception: str) -> dict[str, Rows]:
    if perception == "none":
        return {stream: torch.ones_like(part) for stream, part in rows.items()}
    last = head_mean(reading.record.pick(reading.queries.rows[0]).map)
    return carry({reading.stream: last}, reading.before)


def _times_feedback(
    trace: Trace,
    perception: list[tuple[Reading, dict[str, Rows]]],
    feedback: Feedback,
    quadrature: Quadrature,
    steps: int,
    baseline: Baseline | Tensor,
) -> StreamScores:
    """P ⊙ F, row by row, before the rows are summed, F from the chosen path."""
    if feedback == "gradient":
        quadrature, steps = "uniform", 1
    readings = [reading for reading, _ in perception]
    factors = {} if feedback == "none" else integrated_feedback(trace, readings, quadrature, steps, baseline)
    return product_of(perception, factors)


def product_of(perception: list[tuple[Reading, dict[str, Rows]]], feedback: dict[str, Rows]) -> StreamScores:
    """Σ_rows w (P ⊙ F), w the weight of each row; F is 1 if absent."""
    return {
        stream: torch.einsum("brk,br->bk", rows * feedback.get(stream, 1.0), reading.queries.rows[1])
        for reading, by_stream in perception
        for stream, rows in by_stream.items()
    }

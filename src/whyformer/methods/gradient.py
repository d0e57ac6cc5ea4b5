"""Methods that read gradients: of the last map, of all maps, of the input."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from whyformer.axes import (
    HEAD,
    KEY,
    AttentionMap,
    MixingMatrix,
    StreamScores,
    TokenMask,
    TokenScores,
    Values,
    at_least_float32,
)
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.methods.legrad import own_map_gradients
from whyformer.methods.registry import method
from whyformer.models.joined import Transfer
from whyformer.models.readout import ReadOut
from whyformer.models.structure import config_of, prefix_length, turns_by_position
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.checks import unseen_parts
from whyformer.tracing.flow import fold
from whyformer.tracing.formulas import inputs_times_gradients, readout_rows, steps_between
from whyformer.tracing.graph import incompleteness
from whyformer.tracing.leaves import Baseline
from whyformer.tracing.path import Quadrature, integrated_inputs, nodes_and_weights
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.steps import summed
from whyformer.tracing.trace import Trace, copies_at_once, last_rows, on_inputs
from whyformer.watching.kernels import Attention

# Steps along the path unless given: between embeddings it is rougher.
PIXEL_STEPS, EMBEDDING_STEPS = 20, 50


@method("grad_cam", reads=Reads(maps="last", gradients="last"))
def grad_cam(trace: Trace) -> StreamScores:
    """GradCAM on the last map: (mean_h w_h A_h)⁺, w_h the mean gradient of the read-out's row (TA Sec. 4).

    The mean is over real keys other than the query itself, so padding has no effect.
    """
    rows_of_streams = []
    for readout, record in last_rows(trace):
        positions, weights = readout.rows
        rows = positions[:, None, :, None]
        read = record.pick(positions)
        attention, gradient = read.map.to(weights.dtype), read.gradient.to(weights.dtype)
        content = trace.masks[record.key_stream][:, None, None, :].expand(-1, -1, rows.shape[2], -1)
        if record.key_stream == readout.stream:
            content = content & (torch.arange(attention.shape[KEY], device=positions.device) != rows)
        by_head = (gradient * content).sum(KEY, keepdim=True) / content.sum(KEY, keepdim=True).clamp(min=1)
        heat = (by_head * attention).mean(HEAD)
        rows_of_streams.append((record.key_stream, torch.einsum("brk,br->bk", heat, weights).clamp(min=0)))
    return summed(rows_of_streams)


@method(
    "attention_gradient",
    reads=Reads(maps="all", gradients="all"),
    reads_if={("scores", "each"): Reads(maps="last", gradients="last")},
)
def attention_gradient(
    trace: Trace, *, rows: Literal["readout", "mean"] | None = None, scores: Literal["final", "each"] = "final"
) -> StreamScores:
    """Mean over blocks and heads of the maps' positive gradient, (∇A)⁺, after LeGrad (ICCV 2025).

    The score is the model's, and `rows` selects the read-out's row of a map, the default, or the mean of all rows. With
    `scores` "each" it is LeGrad's score, computed from the mean token of each block, and the default is the mean of all
    rows.
    """
    if scores == "each":
        return _own_gradients(trace, rows or "mean")
    weights = readout_rows(trace)
    if rows == "mean":
        weights = {stream: (mask / mask.sum(dim=1, keepdim=True))[:, None] for stream, mask in trace.masks.items()}
    by_stream: dict[str, list[Tensor]] = {}

    def positive(tile: AttentionRecord) -> MixingMatrix:
        is_read = tile.map > 0  # neither padding nor a future token
        return (tile.gradient.clamp(min=0) * is_read).mean(HEAD).to(trace.readout.weights.dtype)

    for step in reversed(steps_between(trace, 0)):  # gradients come from the end
        if isinstance(step, Transfer):
            weights = weights if rows == "mean" else step.carry(weights)
            continue
        dtype, records = trace.readout.weights.dtype, [record for record in step if record.query_stream in weights]
        rows_of = [(r.key_stream, fold(weights[r.query_stream].to(dtype), r, positive)[:, 0]) for r in records]
        for stream, part in on_inputs(trace, summed(rows_of)).items():
            by_stream.setdefault(stream, []).append(part)
    return {stream: torch.stack(parts).mean(dim=0) for stream, parts in by_stream.items()}


def _own_gradients(trace: Trace, rows: Literal["readout", "mean"]) -> StreamScores:
    """Mean of G⁺ over each stream's blocks and heads at real keys, in the read-out's row or the mean of all."""
    readouts = {readout.stream: readout.weights for readout in trace.readouts}
    by_stream: dict[str, list[TokenScores]] = {}
    for stream, gradient in own_map_gradients(trace):
        heads, mask = at_least_float32(gradient).clamp(min=0).mean(HEAD), trace.masks[stream]
        real = mask.to(heads)
        weights = real / real.sum(dim=1, keepdim=True) if rows == "mean" else readouts[stream].to(heads)
        by_stream.setdefault(stream, []).append(torch.einsum("bqk,bq->bk", heads, weights) * real)
    return {stream: torch.stack(parts).mean(dim=0) for stream, parts in by_stream.items()}


@method(
    "grad_eclip",
    reads=Reads(maps="last", gradients="last", edges=True),
    reads_if={("blocks", "all"): Reads(maps="all", gradients="all", edges=True)},
)
def grad_eclip(trace: Trace, *, blocks: Literal["last", "all"] = "last") -> StreamScores:
    """Grad-ECLIP (ICML 2024): (Σ_hc g_hc v_hjc w_hj)⁺ at the last attention.

    g is the gradient of the read-out token's attention output before W_o, and v_j the values of token j. w_hj is the
    cosine of the read-out's query and key j, each through W_o, scaled from 0 for the smallest among patches or words to
    1. The authors' code recomputes attention with a single head over all channels; here each head has its part of W_o,
    which is the same for one head. Queries and keys with rotary or concatenated positions are compared without it,
    since W_o does not fit them. The authors use the last block for a picture and the sum over several for a text.
    With `blocks` "all" it is the sum over all, which also has scores if every word is against the answer at the last
    block.
    """
    by_stream = {readout.stream: readout for readout in trace.readouts}
    each = [(by_stream[one.query_stream], one) for one in trace.records if one.query_stream in by_stream]
    rows_of_streams = []
    for readout, record in last_rows(trace) if blocks == "last" else each:
        positions, weights = readout.rows
        own, gradient, rows = *_call_behind(trace, record), positions[:, None, :, None]
        query, key, value, pulled = (at_least_float32(x) for x in (own.query, own.key, own.value, gradient))
        query, pulled = query.take_along_dim(rows, dim=2), pulled.take_along_dim(rows, dim=2)
        near = _from_0_to_1(_cosine(trace, query, key, record), _content(trace, readout, record)[:, None, None])
        heat = torch.einsum("bhrc,bhkc,bhrk->brk", pulled, value, near).to(weights)
        rows_of_streams.append((record.key_stream, torch.einsum("brk,br->bk", heat, weights).clamp(min=0)))
    return summed(rows_of_streams)


def _call_behind(trace: Trace, record: AttentionRecord) -> tuple[Attention, Values]:
    """The attention call with keys and values per head, and the gradient of its output."""
    call, gradient = record.call, record.mixed_gradient
    if call is None or gradient is None or record.tokens is not None:
        raise _no_queries(trace, record)
    return call.with_own_keys(), gradient.of_mixed


def _cosine(trace: Trace, query: Tensor, key: Tensor, record: AttentionRecord) -> AttentionMap:
    """cos(W_oh q_h, W_oh k_hj) by M_h = W_ohᵀ W_oh, without widening keys to the residual stream."""
    if record.output_weight is None:
        raise unseen_parts("grad_eclip", ["W_o"], record, instead="grad_cam")
    heads, width = key.shape[1], key.shape[-1]
    if turns_by_position(trace.question.model) or record.output_weight.shape[-1] != heads * width:
        gram = torch.eye(width, dtype=key.dtype, device=key.device)
    else:
        outputs = record.output_weight.unflatten(-1, (heads, width)).to(key)
        gram = torch.einsum("ohc,ohd->hcd", outputs, outputs)
    products = query @ gram @ key.mT
    of_query, of_key = (((x @ gram) * x).sum(dim=-1).clamp(min=0).sqrt() for x in (query, key))
    return products / (of_query[..., :, None] * of_key[..., None, :]).clamp(min=torch.finfo(products.dtype).tiny)


def _content(trace: Trace, readout: ReadOut, record: AttentionRecord) -> TokenMask:
    """The keys that are patches or words: real tokens, except leading ones and a single read-out token."""
    content = trace.masks[record.key_stream].clone()
    if record.key_stream == "image":
        content[:, : prefix_length(trace.question.model, trace.question.inputs, content.shape[1])] = False
    positions, _ = readout.rows
    if record.key_stream == readout.stream and positions.shape[1] == 1:
        content.scatter_(1, positions, value=False)
    return content


def _no_queries(trace: Trace, record: AttentionRecord) -> UnsupportedModel:
    """The error for attention whose queries and keys grad_eclip cannot read, with a way out."""
    if record.tokens is not None:
        return UnsupportedModel(
            "grad_eclip reads queries and keys of all tokens, and the last attention of this model covers only a "
            "part of them at a time: use grad_cam."
        )
    has_sdpa, config = getattr(trace.question.model, "_supports_sdpa", False), config_of(trace.question.model)
    can_load = has_sdpa and getattr(config, "_attn_implementation", None) != "sdpa"
    way_out = "load it with attn_implementation='sdpa', or use grad_cam" if can_load else "use grad_cam"
    return UnsupportedModel(
        "grad_eclip reads queries and keys of the last attention, which this model does not run by "
        f"scaled_dot_product_attention: {way_out}."
    )


def _from_0_to_1(x: Tensor, counted: TokenMask) -> Tensor:
    """Rescale x to [0, 1] over the counted tokens; 0 for the others."""
    low = x.masked_fill(~counted, torch.inf).amin(dim=-1, keepdim=True)
    span = x.masked_fill(~counted, -torch.inf).amax(dim=-1, keepdim=True) - low
    return ((x - low) / span.where(span > 0, 1.0)).masked_fill(~counted, 0.0)


@method("input_x_gradient", reads=Reads(inputs="gradients"))
def input_x_gradient(trace: Trace) -> Attribution:
    """Input times gradient, at the pixels or the embeddings, summed over channels."""
    return inputs_times_gradients(trace)


@method("gradient_shap", reads=Reads(inputs="gradients", path=True))
def gradient_shap(
    trace: Trace, *, samples: int = 20, seed: int = 0, baseline: Baseline | Tensor | None = None
) -> Attribution:
    """Expected gradients (Erion et al. 2021): (x − x₀) ⊙ ∇s at random points between input and baseline, their mean.

    The points are distributed over several baselines, such as other examples, if given as a tensor. Averaged over many
    points, the scores sum to the score minus the mean score of the baselines; the explanation reports the difference.
    """
    baselines = baseline.split(1) if isinstance(baseline, Tensor) else [baseline or _default_baseline(trace)]
    if samples < len(baselines):
        raise WhyformerError(f"samples={samples}: at least one for each of {len(baselines)} baselines.")
    if seed < 0:
        raise WhyformerError(f"seed={seed}: a seed is 0 or more.")
    nodes = torch.rand(samples, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    parts = []
    for number, start in enumerate(baselines):
        own = nodes[number :: len(baselines)]
        weights = torch.full_like(own, 1 / len(own))
        parts.append(integrated_inputs(trace.question, own, weights, start, copies_at_once(trace)))
    scores = {name: torch.stack([part[name] for part, _ in parts]).mean(dim=0) for name in parts[0][0]}
    return Attribution(scores, incompleteness(scores, torch.stack([total for _, total in parts]).mean(dim=0)))


@method("integrated_gradients", reads=Reads(inputs="gradients", path=True))
def integrated_gradients(
    trace: Trace,
    *,
    steps: int | None = None,
    quadrature: Quadrature = "midpoint",
    baseline: Baseline | Tensor | None = None,
) -> Attribution:
    """Input minus baseline, times the integrated gradient between them, (x − x₀) ⊙ ∫∇s (Sundararajan et al. 2017).

    The scores sum to the score minus that of the baseline; the explanation reports the difference. By default the
    baseline is grey for pixels, padding for text and zero for regions, with 20 and 50 steps.
    """
    steps = (PIXEL_STEPS if _has_pixels(trace) else EMBEDDING_STEPS) if steps is None else steps
    nodes, weights = nodes_and_weights(quadrature, steps)
    start = _default_baseline(trace) if baseline is None else baseline
    scores, total = integrated_inputs(trace.question, nodes, weights, start, copies_at_once(trace))
    return Attribution(scores, incompleteness(scores, total))


def _has_pixels(trace: Trace) -> bool:
    return any(stream.scaled is None for stream in trace.question.family.streams)


def _default_baseline(trace: Trace) -> Baseline:
    """Grey for pixels, padding for text: at embeddings of zero a normalisation jumps, and no number of steps adds up.

    Regions embedded with a text start at features of zero.
    """
    pads = not _has_pixels(trace) and getattr(config_of(trace.question.model), "pad_token_id", None) is not None
    return "padding" if pads else "zero"

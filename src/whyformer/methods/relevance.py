"""Methods that read relevance: LRP, partial LRP, Transformer Attribution (TA, CVPR 2021)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch

from whyformer.axes import HEAD, MixingMatrix, head_mean
from whyformer.backward.rules import MapRules, Rules
from whyformer.methods.co_attention import joined_by_the_last
from whyformer.methods.registry import method
from whyformer.models.structure import dtype_of
from whyformer.tracing.attribution import Attribution, instability
from whyformer.tracing.flow import each_record, flow
from whyformer.tracing.formulas import input_relevances, map_relevances, readout_rows, steps_between
from whyformer.tracing.question import Noise
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.steps import summed
from whyformer.tracing.trace import Trace, last_rows, trace_again

# Rules that divide by sums of one sign: relevance, and with it rounding errors, can grow by orders of magnitude.
ILL_CONDITIONED = ("z_plus", "dtd", "lrp")
ROUNDING = Noise(torch.finfo(torch.float32).eps)
Precision = Literal["strict", "fast"]  # float32 without TF32, or the model's own dtype
PositionHandling = Literal["drop", "keep"]  # whether the relevance of position embeddings is dropped


@method(
    "lrp",
    reads=Reads(inputs="relevances"),
    reads_if={
        ("precision", "fast"): Reads(inputs="relevances", precise=False),
        ("positions", "keep"): Reads(inputs="relevances", positions=True),
    },
)
def lrp(
    trace: Trace,
    *,
    rules: Rules = "z_plus",
    positions: PositionHandling = "drop",
    strict: bool = True,
    precision: Precision = "strict",
) -> Attribution:
    """Relevance propagated to the input: the pixels, or the embeddings of word pieces and regions (TA Eq. 4).

    `rules` "dtd" is TA's own, "lrp" the papers' code, "attn_lrp" and "cp_lrp" later rules for attention. `strict`
    raises on operations without a rule; otherwise these use the gradient, and the explanation says so. `precision`
    "fast" computes in the model's dtype, TF32 included; attn_lrp and cp_lrp then cost no more than a gradient. In
    float32, z_plus, dtd and lrp are computed twice, the second time with the input perturbed by its rounding error. The
    change of the scores is their `instability`, and the explanation warns if it is too large.

    `positions` "keep" with `rules` "attn_lrp" is PA-LRP (Bakish et al., NeurIPS 2025): the relevance of a position
    embedding is added to the token at that position. For embeddings that are added to those of words it is the ε-rule's
    share of the sum. A rotation of queries and keys (RoPE), q ⊙ cos + q′ ⊙ sin, is a product of an activation with the
    cosines and sines of its position. So half of the relevance belongs to the position. It applies to words only: a
    picture's scores belong to pixels, its positions to patches.
    """
    attribution = input_relevances(trace, rules, strict=strict)
    is_checked = rules in ILL_CONDITIONED and dtype_of(trace.question.model) == torch.float32
    if not is_checked or trace.state.again is None or trace.question.noise is not None:
        return attribution
    reads = Reads(inputs="relevances", precise=precision == "strict", positions=positions == "keep")
    moved = input_relevances(trace_again(trace, reads, noise=ROUNDING), rules, strict=strict)
    return replace(attribution, instability=instability(attribution.scores, moved.scores))


@method(
    "partial_lrp",
    reads=Reads(maps="last", relevances="last"),
    reads_if={("precision", "fast"): Reads(maps="last", relevances="last", precise=False)},
)
def partial_lrp(
    trace: Trace, *, rules: MapRules = "z_plus", strict: bool = True, precision: Precision = "strict"
) -> Attribution:
    """Relevance of the last map: mean_h (R_A)⁺ at the read-out's row (TA Sec. 4)."""
    relevances = map_relevances(trace, rules, strict=strict)
    rows_of_streams = []
    for readout, record in last_rows(trace):
        positions, weights = readout.rows
        rows = relevances.on(record).pick(positions).relevance.clamp(min=0)
        rows_of_streams.append(
            (record.key_stream, torch.einsum("brk,br->bk", rows.mean(HEAD).to(weights.dtype), weights))
        )
    return Attribution(summed(rows_of_streams), remarks=relevances.remarks)


@method(
    "transformer_attribution",
    reads=Reads(maps="all", gradients="all", relevances="all"),
    reads_if={("precision", "fast"): Reads(maps="all", gradients="all", relevances="all", precise=False)},
)
def transformer_attribution(
    trace: Trace,
    *,
    rules: MapRules = "dtd",
    first_block: int = 0,
    last_block: int | None = None,
    normalise_rows: bool = False,
    weight: Literal["gradient", "attention"] = "gradient",
    cross: Literal["flow", "last"] = "flow",
    strict: bool = True,
    precision: Precision = "strict",
) -> Attribution:
    """Relevance weighted by gradient, mean_h (∇A ⊙ R_A)⁺, composed through the blocks (TA Eq. 13-14).

    `weight` "attention" replaces the gradient by A, and `last_block` excludes the blocks after it (TA Table 3). `cross`
    "last" is GA's adaptation to several streams: as above within the read-out's stream, and only the last attention
    to every other one.
    """
    relevances = map_relevances(trace, rules, strict=strict)

    def weighted(record: AttentionRecord) -> MixingMatrix:
        factor = record.gradient if weight == "gradient" else record.map
        return head_mean((factor * record.relevance).clamp(min=0))

    steps = list(each_record(steps_between(trace, first_block, last_block), relevances.on))
    if cross == "last":
        moved = joined_by_the_last(steps, weighted, trace, normalise_rows=normalise_rows, alone=True)
    else:
        moved = flow(steps, weighted, readout_rows(trace), normalise_rows=normalise_rows)
    return Attribution({stream: row[:, 0] for stream, row in moved.items()}, remarks=relevances.remarks)

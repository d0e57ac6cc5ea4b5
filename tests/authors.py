"""Quirks of the papers' code that are no options of the library, as functions over records of one example each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from whyformer.tracing.record import AttentionRecord


def grad_cam_with_whole_map_weights(last: AttentionRecord) -> Tensor:
    """GradCAM but for ViT and CLIP: a head's weight is the mean gradient over the WHOLE map, not the read-out's row."""
    assert last.gradient is not None
    weights = last.gradient.mean(dim=(2, 3), keepdim=True)
    return (weights * last.map).mean(dim=1).clamp(min=0)


def raw_attention_over_keys(last: AttentionRecord) -> Tensor:
    """The mean-pooled ViT's raw attention: averaged over keys instead of over the queries that are read."""
    return last.map.mean(dim=1)[:, 1:, 1:].mean(dim=2)


def grad_cam_per_query(last: AttentionRecord) -> Tensor:
    """The mean-pooled ViT's GradCAM: one weight per query row, shared by the heads, then averaged over keys."""
    assert last.gradient is not None
    weights = last.gradient[:, :, :, 1:].mean(dim=(1, 3))[:, None, :, None]
    return (weights * last.map)[:, :, 1:, 1:].mean(dim=(1, 3)).clamp(min=0)


def perception_of_late_states(records: Sequence[AttentionRecord], alphas: Sequence[Tensor]) -> Tensor:
    """CLIP's P of Ours-T: each α_j of `alphas` has values taken AFTER the block's attention above its line."""
    perceived = torch.eye(len(alphas[0]), dtype=alphas[0].dtype)
    for record, alpha in zip(records, alphas, strict=True):
        perceived = perceived + record.map[0].mean(dim=0) * alpha @ perceived
    return perceived.abs()


def generic_attention_that_drops_layers(
    records: Sequence[AttentionRecord], query: str, key: str
) -> tuple[dict[str, Tensor], list[int]]:
    """DETR's R_qq, R_qi and R_ii by GA, and the zero rows of R_qq − I before each layer's cross-attention.

    One such row makes the whole product NaN, and the reference sets NaN to 0: the layer adds nothing.
    """
    size = {record.key_stream: record.map.shape[-1] for record in records}
    of_queries, of_image = (torch.eye(size[stream], dtype=records[0].map.dtype) for stream in (query, key))
    between = torch.zeros_like(records[-1].map[0, 0])
    zero_rows = []
    for record in records:
        assert record.gradient is not None
        mixed = (record.gradient[0] * record.map[0]).clamp(min=0).mean(dim=0)
        if record.query_stream == key:
            of_image = of_image + mixed @ of_image
        elif record.key_stream == query:
            of_queries, between = of_queries + mixed @ of_queries, between + mixed @ between
        else:
            zero_rows.append(int((_gained(of_queries).sum(dim=1) == 0).sum()))
            added = _normalised(of_queries).T @ mixed @ _normalised(of_image)
            between = between + added.nan_to_num(nan=0.0)
    return {"Rqq": of_queries, "Rqi": between, "Rii": of_image}, zero_rows


def partial_lrp_of_the_whole_map(relevance: Tensor) -> Tensor:
    """Partial LRP but for ViT and BERT: the head mean of the last relevance, NOT clamped, min-max over the matrix."""
    mean = relevance[0].mean(dim=0)
    return (mean - mean.min()) / (mean.max() - mean.min())


def gradient_times_relevance(last: AttentionRecord, relevance: Tensor) -> Tensor:
    """TA's ablation as its code has it: the last block's E_h (∇A ⊙ R)⁺, without an identity."""
    assert last.gradient is not None
    return (last.gradient * relevance)[0].clamp(min=0).mean(dim=0)


def relevance_rollout(relevances: Sequence[Tensor]) -> Tensor:
    """The product of E_h R⁺ + I, later blocks on the left, without a gradient."""
    product = torch.eye(relevances[0].shape[-1], dtype=relevances[0].dtype)
    for relevance in relevances:
        product = product + relevance[0].clamp(min=0).mean(dim=0) @ product
    return product


def grad_eclip_of_one_head(
    query: Tensor, keys: Tensor, values: Tensor, gradient: Tensor, output_weight: Tensor
) -> Tensor:
    """Grad-ECLIP: one head over all channels. `query` and `gradient` are the class token's, the rest the patches'."""
    query, keys = query @ output_weight.T, keys @ output_weight.T
    cosines = torch.stack([query @ key / (query.norm() * key.norm()) for key in keys])
    cosines = (cosines - cosines.min()) / (cosines.max() - cosines.min())
    return (gradient * values * cosines[:, None]).sum(dim=-1).clamp(min=0)


def with_own_entry(scores: Tensor, position: int, filled: str) -> Tensor:
    """The entry of the token that is read, filled with zero or with the least of its row, which sums to 1."""
    others = torch.cat([scores[:position], scores[position + 1 :]])
    scores = scores.clone()
    scores[position] = 0.0 if filled == "zero" else torch.minimum(others.min(), 1 - others.sum())
    return scores


def _gained(relevance: Tensor) -> Tensor:
    return relevance - torch.eye(len(relevance), dtype=relevance.dtype)


def _normalised(relevance: Tensor) -> Tensor:
    gained = _gained(relevance)
    return gained / gained.sum(dim=1, keepdim=True) + torch.eye(len(relevance), dtype=relevance.dtype)

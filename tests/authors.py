"""Quirks of the papers' code that are no options of the library, as functions over records of one example each."""

from __future__ import annotations

from torch import Tensor

from whyformer.record import AttentionRecord


def grad_cam_with_whole_map_weights(last: AttentionRecord) -> Tensor:
    """BERT's GradCAM: a head's weight is the mean gradient over the WHOLE map, not over the read-out's row."""
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

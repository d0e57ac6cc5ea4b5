"""Folds on a CPU: r @ M of a causal or open map, in buffers that are allocated once and stay in the cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from whyformer.axes import Rows

if TYPE_CHECKING:
    from whyformer.tracing.flow import HeadMean
    from whyformer.tracing.kernels import Attention
    from whyformer.tracing.record import AttentionRecord

ENTRIES = 2**22  # of a map that are made at once: 16 MiB in float32
DTYPES = (torch.float32, torch.float64)  # half precision has no fast product on most CPUs


def fold_on_cpu(rows: Rows, record: AttentionRecord, mixing: HeadMean) -> Rows | None:
    """rows @ mixing(record) without allocating a tile for each operation; None where that does not apply.

    Of a causal map only the lower triangle is computed.
    """
    call = record.call if rows.device.type == "cpu" else None
    if call is None or not _is_plain(call):
        return None
    gradient = record.mixed_gradient if mixing.times_gradient else None
    if mixing.times_gradient and (gradient is None or gradient.map_share is not None):
        return None
    scales, query_scale = mixing.key_scales, record.output_scale
    weights = rows if scales is None or query_scale is None else rows * query_scale[:, None, :].to(rows.dtype)
    folded = _fold(weights, call, None if gradient is None else gradient.of_mixed)
    return folded if scales is None else folded * scales[record.operation][:, None, :]


def _is_plain(call: Attention) -> bool:
    is_square = call.query.shape[-2] == call.key.shape[-2] and call.first == 0
    is_known = call.attn_mask is None and not call.dropout_p and call.dtype in DTYPES
    return is_known and (is_square or not call.is_causal)


@torch.no_grad()
def _fold(rows: Rows, call: Attention, of_mixed: torch.Tensor | None) -> Rows:
    """Σ_h Σ_i r_i A_hij / H for each key j, or Σ_h Σ_i r_i (A_hij · dO_hi·v_hj)⁺ / H."""
    batch, heads, queries, width = call.query.shape
    groups, keys = call.key.shape[1:3]
    scale = width**-0.5 if call.scale is None else call.scale
    # Query heads that share keys are rows of one product.
    shape = (batch * groups, heads // groups, queries, width)
    query = (call.query * scale).reshape(shape)
    arriving = None if of_mixed is None else of_mixed.to(call.dtype).reshape(shape)
    key, value = (x.reshape(batch * groups, keys, width).mT for x in (call.key, call.value))
    height = max(1, min(queries, ENTRIES // (batch * heads * keys)))
    buffers = [query.new_empty(batch * heads * height * keys) for _ in range(1 if arriving is None else 2)]
    future = query.new_full((height, height), -math.inf).triu(diagonal=1) if call.is_causal else None
    sums = query.new_zeros(batch, rows.shape[1], keys)
    for start in range(0, queries, height):
        end = min(start + height, queries)
        part, count = rows[..., start:end].to(call.dtype), end - start
        if not bool(part.any()):  # nothing flows here: most of a read-out's first row
            continue
        seen = end if call.is_causal else keys
        tile, *others = (buffer[: batch * heads * count * seen].view(batch * groups, -1, seen) for buffer in buffers)
        torch.bmm(query[:, :, start:end].reshape(batch * groups, -1, width), key[..., :seen], out=tile)
        if future is not None:
            tile.view(batch, heads, count, seen)[..., start:].add_(future[:count, :count])
        torch.softmax(tile, dim=-1, out=tile)
        if arriving is not None:
            (product,) = others
            torch.bmm(arriving[:, :, start:end].reshape(batch * groups, -1, width), value[..., :seen], out=product)
            tile.mul_(product.relu_())
        by_head = part[:, :, None].expand(-1, -1, heads, -1).reshape(batch, -1, heads * count)
        sums[..., :seen] += by_head @ tile.view(batch, heads * count, seen)
    return (sums / heads).to(rows.dtype)

"""Folds on a GPU: r @ M of a whole map, made and used up on chip, by a Triton kernel. Without Triton the tiles run."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from whyformer.axes import Rows
from whyformer.tracing.kernels import Attention
from whyformer.tracing.mixing import MixedGradient

if TYPE_CHECKING:
    from whyformer.tracing.flow import HeadMean
    from whyformer.tracing.record import AttentionRecord

WIDTHS = (32, 64, 128, 256)  # of a head, which the kernel has in one piece
HALF = (torch.float16, torch.bfloat16)
MOST_ROWS = 4  # that are folded one after the other; of more, tiles fold all at once


def fold_on_chip(rows: Rows, record: AttentionRecord, mixing: HeadMean) -> Rows | None:
    """rows @ mixing(record) by the kernel, or None where it does not apply."""
    kernels = _kernels() if rows.is_cuda and rows.shape[1] <= MOST_ROWS else None
    call = None if kernels is None else record.call
    if kernels is None or call is None or not _is_plain(call):
        return None
    gradient = record.mixed_gradient if mixing.times_gradient else None
    if mixing.times_gradient and gradient is None:
        return None
    scales, query_scale = mixing.key_scales, record.output_scale
    weights = rows if scales is None or query_scale is None else rows * query_scale[:, None, :].to(rows.dtype)
    folded = torch.stack([_fold(kernels, row, call, gradient) for row in weights.unbind(dim=1)], dim=1)
    return (folded if scales is None else folded * scales[record.operation][:, None, :]).to(rows.dtype)


def is_faster_on_chip(call: Attention) -> bool:
    """Whether the map of a call is better folded than kept, however small it is.

    In half precision the fused kernels and a fold take less than writing and reading the map; in float32 PyTorch's
    fused kernels are the slower ones.
    """
    return call.query.is_cuda and call.dtype in HALF and _is_plain(call) and _kernels() is not None


def _is_plain(call: Attention) -> bool:
    """Whether the call has no mask of its own, no dropout, and heads the kernel can hold."""
    query, key = call.query, call.key
    is_square = query.shape[-2] == key.shape[-2] or not call.is_causal
    return call.attn_mask is None and not call.dropout_p and call.first == 0 and is_square and query.shape[-1] in WIDTHS


def _fold(kernels: Any, row: Tensor, call: Attention, gradient: MixedGradient | None) -> Tensor:
    """Σ_h Σ_i r_i M_hij / H for each key j."""
    query, key, value = (_by_channel(x) for x in (call.query, call.key, call.value))
    of_mixed = query if gradient is None else _by_channel(gradient.of_mixed.to(value.dtype))
    batch, heads, queries, width = query.shape
    keys, groups = key.shape[-2], heads // key.shape[1]
    scale = width**-0.5 if call.scale is None else call.scale
    sums = torch.empty(batch, heads, queries, dtype=torch.float32, device=query.device)
    result = torch.empty(batch, heads, keys, dtype=torch.float32, device=query.device)
    shape = (heads, groups, queries, keys, scale * math.log2(math.e))  # the chip has powers of two
    read, mixed = (*query.stride()[:3], *key.stride()[:3]), (*value.stride()[:3], *of_mixed.stride()[:3])
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"  # of float32; half precision has its own
    constants = {"IS_CAUSAL": call.is_causal, "PRECISION": precision, "WIDTH": width, "QUERIES": 64, "KEYS": 64}
    log_sums, fold = kernels
    log_sums[(-(-queries // 64), batch * heads)](query, key, sums, *shape, *read, **constants)
    tensors = (query, key, value, of_mixed, sums, row.float().contiguous(), result)
    fold[(-(-keys // 64), batch * heads)](
        *tensors, *shape, *read, *mixed, TIMES_GRADIENT=gradient is not None, **constants
    )
    return result.sum(dim=1) / heads


def _by_channel(x: Tensor) -> Tensor:
    """The tensor as the kernels read it, the channels of a token one after the other."""
    return x if x.stride(-1) == 1 else x.contiguous()


@cache
def _kernels() -> Any:
    """The two kernels, compiled when first used; None where Triton is missing."""
    try:
        from whyformer.tracing import triton_kernels
    except ImportError:
        return None
    return triton_kernels.log_sums, triton_kernels.fold

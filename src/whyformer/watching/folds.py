"""Fold r @ M for a whole map that is not kept: on a GPU by a Triton kernel, on a CPU in preallocated buffers.

If neither applies, `flow` runs tile by tile.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from whyformer.axes import Rows, Values
from whyformer.watching.kernels import Attention

WIDTHS = (32, 64, 128, 256)  # of a head, that the GPU kernel holds in one piece
HALF = (torch.float16, torch.bfloat16)
WIDE = (torch.float32, torch.float64)  # most CPUs have no fast matrix product in half precision
MOST_ROWS = 4  # that a GPU folds in turn; tiles fold more of them at once
CPU_ENTRIES = 2**21  # of a map that a CPU computes at once: 8 MiB in float32, which the caches of its cores hold


def fold_whole(rows: Rows, call: Attention, of_mixed: Values | None = None) -> Rows | None:
    """The mean over heads of rows @ A, or of rows @ (A ⊙ ∇A)⁺ with the gradient of the mixed values.

    None if neither the GPU kernel nor the CPU buffers apply.
    """
    if rows.device.type == "cpu":
        return _fold_on_cpu(rows, call, of_mixed) if _fits_buffers(call) else None
    kernels = _kernels() if rows.is_cuda and rows.shape[1] <= MOST_ROWS else None
    if kernels is None or not _fits_chip(call):
        return None
    folded = [_fold_on_chip(kernels, row, call, of_mixed) for row in rows.unbind(dim=1)]
    return torch.stack(folded, dim=1).to(rows.dtype)


def is_faster_on_chip(call: Attention) -> bool:
    """Whether folding the map of a call is faster than keeping it, however small it is.

    In half precision the fused kernels and a fold cost less than writing and reading the map; in float32 PyTorch's
    fused kernels are slower.
    """
    return call.query.is_cuda and call.dtype in HALF and _fits_chip(call) and _kernels() is not None


def _fits_chip(call: Attention) -> bool:
    """Whether the call has no explicit mask, no dropout, and heads of a width the kernel supports."""
    query, key = call.query, call.key
    is_square = query.shape[-2] == key.shape[-2] or not call.is_causal
    is_plain = call.attn_mask is None and not call.dropout_p and call.first == 0 and _has_equal_heads(call)
    return is_plain and is_square and query.shape[-1] in WIDTHS


def _fits_buffers(call: Attention) -> bool:
    is_square = call.query.shape[-2] == call.key.shape[-2] and call.first == 0
    is_plain = call.attn_mask is None and not call.dropout_p and call.dtype in WIDE and _has_equal_heads(call)
    return is_plain and (is_square or not call.is_causal)


def _has_equal_heads(call: Attention) -> bool:
    """Whether values have as many heads as keys, and the width of the queries: both folds read them alike."""
    return call.value.shape[1] == call.key.shape[1] and call.value.shape[-1] == call.query.shape[-1]


@torch.no_grad()
def _fold_on_cpu(rows: Rows, call: Attention, of_mixed: Values | None) -> Rows:
    """Σ_h Σ_i r_i A_hij / H for each key j, or Σ_h Σ_i r_i (A_hij · dO_hi·v_hj)⁺ / H."""
    batch, heads, queries, width = call.query.shape
    groups, keys = call.key.shape[1:3]
    scale = width**-0.5 if call.scale is None else call.scale
    # Query heads that share keys are rows of one product.
    shape = (batch * groups, heads // groups, queries, width)
    query = (call.query * scale).reshape(shape)
    grad_output = None if of_mixed is None else of_mixed.to(call.dtype).reshape(shape)
    key, value = (x.reshape(batch * groups, keys, width).mT for x in (call.key, call.value))
    height = max(1, min(queries, CPU_ENTRIES // (batch * heads * keys)))
    buffers = [query.new_empty(batch * heads * height * keys) for _ in range(1 if grad_output is None else 2)]
    future = query.new_full((height, height), -math.inf).triu(diagonal=1) if call.is_causal else None
    sums = query.new_zeros(batch, rows.shape[1], keys)
    for start in range(0, queries, height):
        end = min(start + height, queries)
        part, count = rows[..., start:end].to(call.dtype), end - start
        if not bool(part.any()):  # zero in most tiles of a read-out
            continue
        seen = end if call.is_causal else keys
        tile, *others = (buffer[: batch * heads * count * seen].view(batch * groups, -1, seen) for buffer in buffers)
        torch.bmm(query[:, :, start:end].reshape(batch * groups, -1, width), key[..., :seen], out=tile)
        if future is not None:
            tile.view(batch, heads, count, seen)[..., start:].add_(future[:count, :count])
        torch.softmax(tile, dim=-1, out=tile)
        if grad_output is not None:
            (product,) = others
            torch.bmm(grad_output[:, :, start:end].reshape(batch * groups, -1, width), value[..., :seen], out=product)
            tile.mul_(product.relu_())
        by_head = part[:, :, None].expand(-1, -1, heads, -1).reshape(batch, -1, heads * count)
        sums[..., :seen] += by_head @ tile.view(batch, heads * count, seen)
    return (sums / heads).to(rows.dtype)


def _fold_on_chip(kernels: Any, row: Tensor, call: Attention, of_mixed: Values | None) -> Tensor:
    """Σ_h Σ_i r_i M_hij / H for each key j."""
    query, key, value = (_by_channel(x) for x in (call.query, call.key, call.value))
    grad_output = query if of_mixed is None else _by_channel(of_mixed.to(value.dtype))
    batch, heads, queries, width = query.shape
    keys, groups = key.shape[-2], heads // key.shape[1]
    scale = width**-0.5 if call.scale is None else call.scale
    sums = torch.empty(batch, heads, queries, dtype=torch.float32, device=query.device)
    result = torch.empty(batch, heads, keys, dtype=torch.float32, device=query.device)
    shape = (heads, groups, queries, keys, scale * math.log2(math.e))  # the kernels use powers of two
    read, mixed = (*query.stride()[:3], *key.stride()[:3]), (*value.stride()[:3], *grad_output.stride()[:3])
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"  # of float32; half precision has its own
    constants = {"IS_CAUSAL": call.is_causal, "PRECISION": precision, "WIDTH": width, "QUERIES": 64, "KEYS": 64}
    log_sums, fold = kernels
    tensors = (query, key, value, grad_output, sums, row.float().contiguous(), result)
    with torch.cuda.device(query.device):  # Triton launches on the current device, wherever the tensors are
        log_sums[(-(-queries // 64), batch * heads)](query, key, sums, *shape, *read, **constants)
        fold[(-(-keys // 64), batch * heads)](
            *tensors, *shape, *read, *mixed, TIMES_GRADIENT=of_mixed is not None, **constants
        )
    return result.sum(dim=1) / heads


def _by_channel(x: Tensor) -> Tensor:
    """Make the channels of a token contiguous, as the kernels read them."""
    return x if x.stride(-1) == 1 else x.contiguous()


@cache
def _kernels() -> Any:
    """The two kernels, compiled when first used; None where Triton is missing."""
    try:
        from whyformer.watching import triton_kernels
    except ImportError:
        return None
    return triton_kernels.log_sums_kernel, triton_kernels.fold_kernel

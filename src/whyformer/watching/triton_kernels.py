"""Triton kernels of `folds`: a separate file, since it is imported only where Triton is installed.

Queries, keys, values and the gradient of the mixed values are [example, head, token, channel] with any strides except
the last, which is 1. Models pass views of [example, token, head, channel], and copying them would double the cost.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def log_sums_kernel(
    query, key, sums, heads, groups, queries, keys, scale,
    query_example, query_head, query_token, key_example, key_head, key_token,
    IS_CAUSAL: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """The binary logarithm of each row's sum of 2^(q·k · scale), over the keys open to it."""
    block, both = tl.program_id(0), tl.program_id(1)
    example, head = both // heads, both % heads
    query += example.to(tl.int64) * query_example + head.to(tl.int64) * query_head
    key += example.to(tl.int64) * key_example + (head // groups).to(tl.int64) * key_head
    rows, channels = block * QUERIES + tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    q = tl.load(query + rows[:, None].to(tl.int64) * query_token + channels, mask=rows[:, None] < queries, other=0.0)
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    end = tl.minimum(keys, (block + 1) * QUERIES) if IS_CAUSAL else keys
    for start in range(0, end, KEYS):
        columns = start + tl.arange(0, KEYS)
        k = tl.load(
            key + columns[None, :].to(tl.int64) * key_token + channels[:, None],
            mask=columns[None, :] < keys,
            other=0.0,
        )
        scores = tl.dot(q, k, input_precision=PRECISION) * scale
        is_open = columns[None, :] < keys
        if IS_CAUSAL:
            is_open = is_open & (columns[None, :] <= rows[:, None])
        scores = tl.where(is_open, scores, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 1))
        total = total * tl.exp2(largest - now) + tl.sum(tl.exp2(scores - now[:, None]), 1)
        largest = now
    tl.store(sums + both * queries + rows, largest + tl.log2(total), mask=rows < queries)


@triton.jit
def fold_kernel(
    query, key, value, of_mixed, sums, weights, result, heads, groups, queries, keys, scale,
    query_example, query_head, query_token, key_example, key_head, key_token,
    value_example, value_head, value_token, mixed_example, mixed_head, mixed_token,
    TIMES_GRADIENT: tl.constexpr, IS_CAUSAL: tl.constexpr, PRECISION: tl.constexpr, WIDTH: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Σ_i r_i A_ij, or Σ_i r_i (A_ij · dO_i·v_j)⁺, for the keys j of one block and one head."""
    block, both = tl.program_id(0), tl.program_id(1)
    example, head = both // heads, both % heads
    query += example.to(tl.int64) * query_example + head.to(tl.int64) * query_head
    key += example.to(tl.int64) * key_example + (head // groups).to(tl.int64) * key_head
    value += example.to(tl.int64) * value_example + (head // groups).to(tl.int64) * value_head
    of_mixed += example.to(tl.int64) * mixed_example + head.to(tl.int64) * mixed_head
    columns, channels = block * KEYS + tl.arange(0, KEYS), tl.arange(0, WIDTH)
    is_key = columns[None, :] < keys
    places = columns[None, :].to(tl.int64)
    k = tl.load(key + places * key_token + channels[:, None], mask=is_key, other=0.0)
    v = tl.load(value + places * value_token + channels[:, None], mask=is_key, other=0.0) if TIMES_GRADIENT else k
    folded = tl.zeros([KEYS], tl.float32)
    first = (block * KEYS // QUERIES) * QUERIES if IS_CAUSAL else 0
    for start in range(first, queries, QUERIES):
        rows = start + tl.arange(0, QUERIES)
        inside = rows < queries
        r = tl.load(weights + example * queries + rows, mask=inside, other=0.0)
        if tl.max(tl.abs(r)) > 0:  # zero for most rows of a read-out's own block
            offsets = rows[:, None].to(tl.int64)
            q = tl.load(query + offsets * query_token + channels, mask=inside[:, None], other=0.0)
            row_sums = tl.load(sums + both * queries + rows, mask=inside, other=0.0)
            attention = tl.exp2(tl.dot(q, k, input_precision=PRECISION) * scale - row_sums[:, None])
            is_open = inside[:, None] & is_key
            if IS_CAUSAL:
                is_open = is_open & (columns[None, :] <= rows[:, None])
            attention = tl.where(is_open, attention, 0.0)
            if TIMES_GRADIENT:
                grad_output = tl.load(of_mixed + offsets * mixed_token + channels, mask=inside[:, None], other=0.0)
                gradient = tl.dot(grad_output, v, input_precision=PRECISION)
                attention = tl.maximum(attention * gradient, 0.0)
            folded += tl.sum(attention * r[:, None], 0)
    tl.store(result + both * keys + columns, folded, mask=columns < keys)

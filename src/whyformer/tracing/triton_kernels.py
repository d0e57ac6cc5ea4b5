"""The kernels behind `fused`, in Triton's own language: a file apart, since it is imported only where Triton is."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def log_sums(
    query, key, sums, heads, groups, queries, keys, scale,
    IS_CAUSAL: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """The logarithm of each row's sum of exp(q·k · scale), over the keys it may see."""
    block, head = tl.program_id(0), tl.program_id(1)
    key_head = (head // heads) * (heads // groups) + (head % heads) // groups
    rows, channels = block * QUERIES + tl.arange(0, QUERIES), tl.arange(0, WIDTH)
    q = tl.load(
        query + (head * queries + rows[:, None]).to(tl.int64) * WIDTH + channels,
        mask=rows[:, None] < queries,
        other=0.0,
    )
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    end = tl.minimum(keys, (block + 1) * QUERIES) if IS_CAUSAL else keys
    for start in range(0, end, KEYS):
        columns = start + tl.arange(0, KEYS)
        k = tl.load(
            key + (key_head * keys + columns[None, :]).to(tl.int64) * WIDTH + channels[:, None],
            mask=columns[None, :] < keys,
            other=0.0,
        )
        scores = tl.dot(q, k, input_precision="ieee") * scale
        is_open = columns[None, :] < keys
        if IS_CAUSAL:
            is_open = is_open & (columns[None, :] <= rows[:, None])
        scores = tl.where(is_open, scores, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 1))
        total = total * tl.exp(largest - now) + tl.sum(tl.exp(scores - now[:, None]), 1)
        largest = now
    tl.store(sums + head * queries + rows, largest + tl.log(total), mask=rows < queries)


@triton.jit
def fold(
    query, key, value, of_mixed, sums, weights, result, heads, groups, queries, keys, scale,
    TIMES_GRADIENT: tl.constexpr, IS_CAUSAL: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
):  # fmt: skip
    """Σ_i r_i A_ij, or Σ_i r_i (A_ij · dO_i·v_j)⁺, for the keys j of one block and one head."""
    block, head = tl.program_id(0), tl.program_id(1)
    key_head = (head // heads) * (heads // groups) + (head % heads) // groups
    columns, channels = block * KEYS + tl.arange(0, KEYS), tl.arange(0, WIDTH)
    places = (key_head * keys + columns[None, :]).to(tl.int64) * WIDTH + channels[:, None]
    k = tl.load(key + places, mask=columns[None, :] < keys, other=0.0)
    v = tl.load(value + places, mask=columns[None, :] < keys, other=0.0) if TIMES_GRADIENT else k
    folded = tl.zeros([KEYS], tl.float32)
    first = (block * KEYS // QUERIES) * QUERIES if IS_CAUSAL else 0
    for start in range(first, queries, QUERIES):
        rows = start + tl.arange(0, QUERIES)
        inside = rows < queries
        offsets = (head * queries + rows[:, None]).to(tl.int64) * WIDTH + channels
        q = tl.load(query + offsets, mask=inside[:, None], other=0.0)
        row_sums = tl.load(sums + head * queries + rows, mask=inside, other=0.0)
        r = tl.load(weights + (head // heads) * queries + rows, mask=inside, other=0.0)
        attention = tl.exp(tl.dot(q, k, input_precision="ieee") * scale - row_sums[:, None])
        is_open = inside[:, None] & (columns[None, :] < keys)
        if IS_CAUSAL:
            is_open = is_open & (columns[None, :] <= rows[:, None])
        attention = tl.where(is_open, attention, 0.0)
        if TIMES_GRADIENT:
            arriving = tl.load(of_mixed + offsets, mask=inside[:, None], other=0.0)
            gradient = tl.dot(arriving, v, input_precision="ieee")
            attention = tl.maximum(attention * gradient, 0.0)
        folded += tl.sum(attention * r[:, None], 0)
    tl.store(result + head * keys + columns, folded, mask=columns < keys)

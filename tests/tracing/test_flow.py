"""The recursion against dense matrices over all streams at once."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from whyformer.tracing.flow import flow
from whyformer.tracing.record import AttentionRecord
from whyformer.watching import folds
from whyformer.watching.kernels import Attention
from whyformer.watching.mixing import KeptMap

SIZES = {"text": 3, "image": 4}
PAIRS = [(query, key) for query in SIZES for key in SIZES]

steps_of_pairs = st.lists(st.lists(st.sampled_from(PAIRS), min_size=1, max_size=3, unique=True), min_size=1, max_size=4)


def record(query: str, key: str, seed: int) -> AttentionRecord:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(2, 2, SIZES[query], SIZES[key], generator=generator, dtype=torch.float64)
    return AttentionRecord("", 0, query, key, KeptMap(weights))


def mixing(record: AttentionRecord) -> Tensor:
    return record.map.mean(dim=1)


def dense(step: tuple[AttentionRecord, ...]) -> Tensor:
    """M of one step, as one matrix over the tokens of both streams."""
    offset = {"text": 0, "image": SIZES["text"]}
    matrix = torch.zeros(2, 7, 7, dtype=torch.float64)
    for part in step:
        rows = slice(offset[part.query_stream], offset[part.query_stream] + SIZES[part.query_stream])
        columns = slice(offset[part.key_stream], offset[part.key_stream] + SIZES[part.key_stream])
        matrix[:, rows, columns] += mixing(part)
    return matrix


@settings(max_examples=60, deadline=None)
@given(steps_of_pairs, st.integers(0, 1000), st.booleans())
def test_flow_is_the_read_outs_row_of_the_dense_product(pairs, seed, normalise_rows):
    steps = [tuple(record(*pair, seed + 7 * i + j) for j, pair in enumerate(step)) for i, step in enumerate(pairs)]
    start = torch.zeros(2, 1, 3, dtype=torch.float64)
    start[:, 0, 0] = 1.0
    moved = flow(steps, mixing, {"text": start}, normalise_rows=normalise_rows)

    row = torch.cat([start, torch.zeros(2, 1, 4, dtype=torch.float64)], dim=2)
    kept = row.clone()
    for step in reversed(steps):
        block = dense(step) + torch.eye(7, dtype=torch.float64)
        sums = block.sum(dim=2, keepdim=True) if normalise_rows else torch.ones(2, 7, 1, dtype=torch.float64)
        row, kept = row @ (block / sums), kept / sums.transpose(1, 2)
    expected = (row - kept).split([3, 4], dim=2)
    torch.testing.assert_close(moved["text"], expected[0], rtol=1e-10, atol=1e-12)
    if "image" in moved:
        torch.testing.assert_close(moved["image"], expected[1], rtol=1e-10, atol=1e-12)
    else:
        assert not expected[1].any()


@given(st.integers(0, 1000), st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_normalised_rows_hand_down_all_that_is_not_kept(seed, blocks):
    steps = [(record("text", "text", seed + number),) for number in range(blocks)]
    start = torch.full((2, 1, 3), 1 / 3, dtype=torch.float64)
    moved = flow(steps, mixing, {"text": start}, normalise_rows=True)["text"]
    kept = start.clone()
    for step in reversed(steps):
        kept = kept / (1 + mixing(step[0]).sum(dim=-1)).unsqueeze(1)
    torch.testing.assert_close((moved + kept).sum(dim=-1), torch.ones(2, 1, dtype=torch.float64))


def test_records_of_one_step_read_the_same_state():
    first, second = record("text", "image", 1), record("image", "text", 2)
    start = {"text": torch.eye(3, dtype=torch.float64).expand(2, 3, 3)}
    together = flow([(first, second)], mixing, start)
    in_turn = flow([(second,), (first,)], mixing, start)
    assert not together["text"].any()
    torch.testing.assert_close(together["image"], mixing(first))
    torch.testing.assert_close(in_turn["text"], mixing(first) @ mixing(second))


def test_a_call_whose_values_are_narrower_than_its_queries_is_not_folded_as_a_whole():
    query, key = torch.randn(2, 1, 2, 20, 32)
    value = torch.randn(1, 2, 20, 16)
    rows = torch.ones(1, 1, 20)
    assert folds.fold_whole(rows, Attention(query, key, value)) is None
    same = folds.fold_whole(rows, Attention(query, key, query))
    expected = (query @ key.mT / 32**0.5).softmax(dim=-1).mean(dim=1).sum(dim=1)
    torch.testing.assert_close(same[:, 0], expected)

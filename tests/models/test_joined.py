"""Streams that are cut up or joined, against dense matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from whyformer.models.joined import MapTokens, Transfer, mean_of
from whyformer.tracing.flow import carry, dense, flow
from whyformer.tracing.record import AttentionRecord
from whyformer.watching.mixing import KeptMap

FINE, COARSE, BATCH = 6, 3, 2
WINDOWS = torch.tensor([[4, 0, 2], [1, 5, -1]])  # of the six tokens; the last window is padded
MERGED = torch.tensor([[0, 1], [2, 3], [4, -1]])  # token 5 is dropped, the last merged one is token 4 alone


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mixing(record: AttentionRecord) -> Tensor:
    return record.map.mean(dim=1)


def windowed(seed: int = 1) -> AttentionRecord:
    tokens = torch.cat([torch.where(WINDOWS < 0, -1, WINDOWS + example * FINE) for example in range(BATCH)])
    maps = noise(4, 2, 3, 3, seed=seed)
    return AttentionRecord("", 0, "fine", "fine", KeptMap(maps), tokens=MapTokens(tokens, tokens, (FINE, FINE), BATCH))


def matrix_of(record: AttentionRecord) -> Tensor:
    """The windows of both examples as one matrix each, entry by entry."""
    matrix = torch.zeros(BATCH, FINE, FINE, dtype=torch.float64)
    for example in range(BATCH):
        for window, positions in enumerate(WINDOWS.tolist()):
            weights = mixing(record)[example * len(WINDOWS) + window]
            for i, query in enumerate(positions):
                for j, key in enumerate(positions):
                    if query >= 0 and key >= 0:
                        matrix[example, query, key] += weights[i, j]
    return matrix


def merge() -> Transfer:
    return mean_of("coarse", "fine", MERGED.expand(BATCH, -1, -1), (COARSE, FINE))


def merge_matrix() -> Tensor:
    matrix = torch.zeros(COARSE, FINE, dtype=torch.float64)
    matrix[0, :2] = matrix[1, 2:4] = 0.5
    matrix[2, 4] = 1.0
    return matrix


def coarse_record(seed: int = 2) -> AttentionRecord:
    return AttentionRecord("", 1, "coarse", "coarse", KeptMap(noise(BATCH, 2, COARSE, COARSE, seed=seed)))


def test_the_maps_of_windows_are_one_sparse_matrix():
    torch.testing.assert_close(dense(windowed(), mixing), matrix_of(windowed()))


def test_flow_through_windows_and_merges_is_the_dense_product():
    first, second, start = windowed(), coarse_record(), noise(BATCH, 1, COARSE, seed=3)
    for normalise_rows in (False, True):
        moved = flow([(first,), merge(), (second,)], mixing, {"coarse": start}, normalise_rows=normalise_rows)
        assert moved.keys() == {"fine"}
        row, kept = start, start
        for attention in (mixing(second), None, matrix_of(first)):
            if attention is None:
                row, kept = row @ merge_matrix(), kept @ merge_matrix()
                continue
            block = attention + torch.eye(attention.shape[-1], dtype=torch.float64)
            sums = block.sum(dim=-1, keepdim=True) if normalise_rows else torch.ones_like(block[..., :1])
            row, kept = row @ (block / sums), kept / sums.mT
        torch.testing.assert_close(moved["fine"], row - kept, rtol=1e-12, atol=1e-12)


def test_tokens_put_in_the_place_of_others_leave_them_alone():
    """A bridge: two of five words are the two means of the picture's tokens, in the second example only one is."""
    places = torch.tensor([[3, 1], [2, -1]])
    parts = torch.tensor([[[0, 1, 2], [3, 4, 5]], [[0, 1, 2], [3, 4, 5]]])
    bridge = mean_of("text", "fine", parts, (5, FINE), positions=places, leaving="carried")
    rows = noise(BATCH, 1, 5)
    carried = carry({"text": rows}, [bridge])
    expected = torch.zeros(BATCH, 1, FINE, dtype=torch.float64)
    expected[0, 0, :3], expected[0, 0, 3:] = rows[0, 0, 3] / 3, rows[0, 0, 1] / 3
    expected[1, 0, :3] = rows[1, 0, 2] / 3
    left = rows.clone()
    left[0, 0, [1, 3]] = left[1, 0, 2] = 0.0
    torch.testing.assert_close(carried, {"text": left, "fine": expected})


def test_what_is_added_to_a_stream_takes_nothing_from_it():
    added = mean_of("coarse", "fine", MERGED.expand(BATCH, -1, -1), (COARSE, FINE), leaving="none")
    rows, own = noise(BATCH, 1, COARSE), noise(BATCH, 1, FINE, seed=5)
    carried = added.carry({"coarse": rows, "fine": own})
    torch.testing.assert_close(carried, {"coarse": rows, "fine": own + rows @ merge_matrix()})


def test_one_packed_map_of_all_examples_is_read_example_by_example():
    """Two pictures of two and three tokens lie behind each other in one map, which keeps them apart."""
    tokens = torch.tensor([[0, 1, 3, 4, 5]])  # three positions an example, the first has two tokens
    weights = noise(1, 2, 5, 5) * torch.block_diag(torch.ones(2, 2), torch.ones(3, 3))
    record = AttentionRecord("", 0, "image", "image", KeptMap(weights), tokens=MapTokens(tokens, tokens, (3, 3), 2))
    start = noise(2, 1, 3, seed=4)
    moved = flow([(record,)], mixing, {"image": start})["image"]
    torch.testing.assert_close(moved[0, :, :2], start[0, :, :2] @ mixing(record)[0, :2, :2])
    torch.testing.assert_close(moved[1], start[1] @ mixing(record)[0, 2:, 2:])
    assert not moved[0, :, 2].any()
    picked = record.pick(torch.tensor([[1], [2]])).map
    torch.testing.assert_close(picked[1, :, 0], weights[0, :, 4, 2:])


def test_copies_of_the_examples_have_tokens_of_their_own():
    record, copies = windowed(), 3
    by_map = record.tokens.repeat(copies, copies * len(record.map))
    rows = noise(copies * BATCH, 1, FINE)
    expected = [record.tokens.of_queries(part) for part in rows.split(BATCH)]
    torch.testing.assert_close(by_map.of_queries(rows), torch.cat(expected))
    packed = MapTokens(torch.tensor([[0, 1, 3]]), torch.tensor([[0, 1, 3]]), (2, 2), 2)
    repeated = packed.repeat(2, 1)
    assert repeated.queries.tolist() == [[0, 1, 3, 4, 5, 7]]
    moved = merge().repeat(copies).carry({"coarse": noise(copies * BATCH, 1, COARSE)})["fine"]
    torch.testing.assert_close(moved, noise(copies * BATCH, 1, COARSE) @ merge_matrix())

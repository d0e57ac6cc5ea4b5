"""Every kind of map against the whole map: made anew, a run of queries at a time, picked, and folded.

That a map may be kept, made from queries and keys, or sampled from points is told here once for all methods and models;
elsewhere a few of them show that it reaches the scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from whyformer.tracing.flow import HeadMean, flow, fold
from whyformer.tracing.record import AttentionRecord
from whyformer.watching import folds, mixing
from whyformer.watching.deformable import SampledAttention
from whyformer.watching.kernels import Attention
from whyformer.watching.mixing import KeptMap, Lazy, MixedGradient, Mixing

# What one more rounding of a map costs, in its own precision.
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.02}


@dataclass(frozen=True)
class Example:
    """An attention call, with the map and the gradient it must have, in float64."""

    attention: Attention
    expected: Tensor
    of_mixed: Tensor
    seed: int

    @property
    def tolerance(self) -> float:
        return ROUNDING[self.attention.dtype]

    @property
    def gradient(self) -> Tensor:
        """dO vᵀ, one value head per query head."""
        groups = self.attention.value.shape[1]
        value = self.attention.value.double().repeat_interleave(self.expected.shape[1] // groups, dim=1)
        return self.of_mixed.double() @ value.mT

    def drawn(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=torch.Generator().manual_seed(self.seed + 1), dtype=torch.float64)


def masks(kind: str, batch: int, heads: int, queries: int, keys: int, generator: torch.Generator) -> Tensor | None:
    """What a model hands to its attention as a mask: which keys are open, or what is added to their scores."""
    place = torch.arange(keys)
    lengths = torch.randint(0, keys + 1, (batch, 1, 1, 1), generator=generator)
    match kind:
        case "right padding":
            return place < lengths
        case "left padding of all queries":
            return (place >= keys - lengths).expand(batch, 1, queries, keys)
        case "window":
            return (place - torch.arange(queries)[:, None]).abs() < 2
        case "any":  # a query may see nothing
            return torch.rand(batch, heads, queries, keys, generator=generator) < 0.6
        case "bias":
            bias = torch.randn(1, heads, queries, keys, generator=generator)
            return bias.masked_fill(torch.rand(1, heads, queries, keys, generator=generator) < 0.3, -math.inf)
    return None


MASKS = ["none", "right padding", "left padding of all queries", "window", "any", "bias"]


@st.composite
def examples(draw: Callable, dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32)) -> Example:
    seed, dtype = draw(st.integers(0, 1000)), draw(st.sampled_from(dtypes))
    batch, groups, together = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    is_causal, queries = draw(st.booleans()), draw(st.integers(1, 7))
    # Cross-attention is seldom causal; where it is, PyTorch counts both from the first token on.
    keys = draw(st.integers(1, 7)) if draw(st.booleans()) else queries
    generator = torch.Generator().manual_seed(seed)
    heads, width = groups * together, draw(st.integers(1, 4))
    query, of_mixed = torch.randn(2, batch, heads, queries, width, generator=generator, dtype=torch.float64).to(dtype)
    key, value = torch.randn(2, batch, groups, keys, width, generator=generator, dtype=torch.float64).to(dtype)
    mask = masks(draw(st.sampled_from(MASKS)), batch, heads, queries, keys, generator)
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(dtype)
    scale = draw(st.sampled_from([None, 0.3, 1.0]))
    attention = Attention(query, key, value, mask, 0.0, is_causal, scale, enable_gqa=together > 1)
    return Example(attention, naive_map(attention), of_mixed, seed)


def naive_map(call: Attention) -> Tensor:
    """softmax(q kᵀ · scale + mask) in float64, nothing where all keys are masked."""
    key = call.key.double().repeat_interleave(call.query.shape[1] // call.key.shape[1], dim=1)
    scale = call.query.shape[-1] ** -0.5 if call.scale is None else call.scale
    scores = call.query.double() @ key.mT * scale
    if call.is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(diagonal=1), -math.inf)
    if call.attn_mask is not None and call.attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~call.attn_mask, -math.inf)
    elif call.attn_mask is not None:
        scores = scores + call.attn_mask.double()
    weights = (scores - scores.amax(dim=-1, keepdim=True).clamp(min=-1e9)).exp()
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-300)


def assert_near(got: Tensor, expected: Tensor, tolerance: float) -> None:
    assert got.shape == expected.shape
    assert torch.isfinite(got).all()
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    assert float((got.double() - expected.double()).abs().max()) <= tolerance * max(largest, 1.0)


def forms(example: Example) -> dict[str, tuple[Mixing, Mixing]]:
    """The same map and its gradient in all the forms that are not sampled."""
    attention = example.attention
    gradient = MixedGradient(attention, example.of_mixed)
    described = attention.shape, attention.dtype, attention.device
    return {
        "kept": (KeptMap(attention()), KeptMap(gradient())),
        "made": (attention, gradient),
        "lazy": (Lazy(lambda: attention, *described), Lazy(lambda: gradient, *described)),
    }


@given(examples((torch.float64, torch.float32, torch.bfloat16)))
@settings(max_examples=150)
def test_a_map_and_its_gradient_are_those_of_the_call(example):
    for source, gradient in forms(example).values():
        assert source.shape == gradient.shape == example.expected.shape
        assert source.dtype == gradient.dtype == source().dtype == example.attention.dtype
        assert_near(source(), example.expected, example.tolerance)
        assert_near(gradient(), example.gradient, example.tolerance)


@given(examples())
@settings(max_examples=80)
def test_the_values_are_mixed_as_the_models_own_kernel_mixes_them(example):
    call = example.attention
    seen = naive_map(call).sum(dim=-1, keepdim=True) > 0
    value = call.value.repeat_interleave(call.query.shape[1] // call.value.shape[1], dim=1)
    assert_near(call.mixed(), (naive_map(call) @ value.double()), example.tolerance)
    if call.attn_mask is None or not call.is_causal:  # both at once PyTorch refuses
        own = F.scaled_dot_product_attention(
            call.query, call.key, call.value, call.attn_mask, 0.0, call.is_causal, scale=call.scale, enable_gqa=True
        )
        assert_near(call.mixed(), own.where(seen, 0), example.tolerance)


@given(examples(), st.data())
@settings(max_examples=150)
def test_picked_queries_have_the_rows_of_the_whole_map(example, data):
    batch, _, queries, _ = example.expected.shape
    start = data.draw(st.integers(0, queries - 1))
    run = slice(start, data.draw(st.integers(start + 1, queries)))
    later = slice(data.draw(st.integers(0, run.stop - start - 1)), run.stop - start)
    positions = (example.drawn(batch, 3) * queries).long()
    within = (example.drawn(batch, 2) * (run.stop - start)).long()
    for source, gradient in forms(example).values():
        for mix, whole in ((source, example.expected), (gradient, example.gradient)):
            assert_near(mix.pick(run)(), whole[:, :, run], example.tolerance)
            assert_near(mix.pick(run).pick(later)(), whole[:, :, run][:, :, later], example.tolerance)
            for rows, index in ((mix.pick(positions), positions), (mix.pick(run).pick(within), start + within)):
                assert_near(rows(), whole.take_along_dim(index[:, None, :, None], dim=2), example.tolerance)


def record_of(source: Mixing, gradient: Mixing | None = None, **more: object) -> AttentionRecord:
    return AttentionRecord("", 0, "text", "image", source, gradient, operation=3, **more)


SCALED = [None, "keys", "keys and queries"]


@given(examples(), st.booleans(), st.sampled_from(SCALED), st.sampled_from([1, 20, 2**22]))
@settings(max_examples=200)
def test_a_fold_is_the_product_with_the_whole_matrix(example, times_gradient, scaled, tile):
    batch, _, queries, keys = example.expected.shape
    rows, scales = example.drawn(batch, 2, queries) - 0.3, example.drawn(batch, keys)
    rows[:, :, : queries // 3] = 0  # most of a read-out's rows are
    of_queries = example.drawn(batch, queries) if scaled == "keys and queries" else None
    matrix = example.expected
    if times_gradient:
        matrix = (matrix * example.gradient).clamp(min=0)
    matrix = matrix.mean(dim=1)
    if scaled:
        matrix = matrix * scales[:, None, :]
    if of_queries is not None:
        matrix = matrix * of_queries[:, :, None]
    dtype = example.attention.dtype
    mean = HeadMean(times_gradient, {3: scales.to(dtype)} if scaled else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixing, "TILE", tile)
        patch.setattr(folds, "CPU_ENTRIES", tile)
        for source, gradient in forms(example).values():
            record = record_of(source, gradient, output_scale=None if of_queries is None else of_queries.to(dtype))
            assert_near(fold(rows.to(dtype), record, mean), rows @ matrix, 4 * example.tolerance)
            # Any other mixing is folded tile by tile as well.
            folded = fold(rows.to(dtype), record, lambda part: mean(part))
            assert_near(folded, rows @ matrix, 4 * example.tolerance)


@given(examples(), st.booleans(), st.sampled_from([1, 20]))
@settings(max_examples=60)
def test_tiles_cover_every_query_once_and_tell_what_is_attended(example, times_gradient, tile):
    whole = (example.expected * example.gradient).clamp(min=0) if times_gradient else example.expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixing, "TILE", tile)
        for source, gradient in forms(example).values():
            record = record_of(source, gradient)
            parts = [HeadMean(times_gradient)(part) for _, part in record.tiles()]
            assert_near(torch.cat(parts, dim=1), whole.mean(dim=1), 4 * example.tolerance)
            assert torch.equal(record.is_attended, example.expected.sum(dim=(1, 2)) > 0)
            assert torch.equal(record.reached, (example.gradient.abs().amax(dim=(1, 3)) > 0))


@given(examples((torch.float64,)), st.booleans(), st.sampled_from([1, 20, 2**22]))
@settings(max_examples=60)
def test_rows_are_normalised_by_the_sums_of_the_whole_matrix(example, times_gradient, tile):
    batch, _, queries, _ = example.expected.shape
    matrix = (example.expected * example.gradient).clamp(min=0) if times_gradient else example.expected
    matrix = matrix.mean(dim=1)
    start = {"text": example.drawn(batch, 1, queries)}
    expected = (start["text"] / (1 + matrix.sum(dim=-1))[:, None]) @ matrix
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixing, "TILE", tile)
        for source, gradient in forms(example).values():
            steps = [(record_of(source, gradient),)]
            moved = flow(steps, HeadMean(times_gradient), start, normalise_rows=True)
            assert_near(moved["image"], expected, example.tolerance)


@given(examples((torch.float64,)), st.sampled_from([None, 0.5]))
@settings(max_examples=40)
def test_the_relevance_of_a_map_is_its_share_of_what_arrives(example, share):
    relevance = MixedGradient(example.attention, example.of_mixed, share)
    expected = example.gradient if share is None else example.expected * example.gradient * share
    assert_near(relevance(), expected, example.tolerance)
    assert_near(relevance.pick(slice(0, 1))(), expected[:, :, :1], example.tolerance)
    rows = example.drawn(*example.expected.shape[:1], 1, example.expected.shape[2])
    product = rows @ (example.expected * expected).clamp(min=0).mean(dim=1)
    assert_near(fold(rows, record_of(example.attention, relevance), HeadMean(times_gradient=True)), product, 1e-12)


SIZES = ((2, 3), (1, 2))


@st.composite
def samples(draw: Callable) -> tuple[SampledAttention, Tensor, Tensor]:
    """Points in and around two feature maps, some of whose tokens are padding; their map, and of its mixed values."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    batch, heads, queries = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 5))
    points = torch.rand(batch, heads, queries, 5, 2, generator=generator, dtype=torch.float64) * 5 - 1.5
    weights = torch.rand(batch, heads, queries, 5, generator=generator, dtype=torch.float64)
    value = torch.randn(batch, heads, 8, 2, generator=generator, dtype=torch.float64)
    value = value * (torch.rand(batch, 1, 8, 1, generator=generator) < 0.8)
    of_mixed = torch.randn(batch, heads, queries, 2, generator=generator, dtype=torch.float64)
    sampled = SampledAttention(points, weights, SIZES, (3, 2), value)
    return sampled, naive_samples(sampled), of_mixed


def naive_samples(sampled: SampledAttention) -> Tensor:
    """Weight times bilinear weight, token by token."""
    (height, width), (_, other) = SIZES
    tokens = [(0, x, y) for y in range(height) for x in range(width)] + [(1, x, 0) for x in range(other)]
    level = torch.tensor([0, 0, 0, 1, 1])
    columns = []
    for number, x, y in tokens:
        near = (1 - (sampled.points - torch.tensor([x, y])).abs()).clamp(min=0).prod(dim=-1)
        columns.append((sampled.weights * near * (level == number)).sum(dim=-1))
    is_token = sampled.value.ne(0).any(dim=3).any(dim=1)
    return torch.stack(columns, dim=-1) * is_token[:, None, None]


@given(samples(), st.booleans(), st.sampled_from([1, 20, 2**22]))
@settings(max_examples=60)
def test_sampled_points_fold_like_their_whole_map(sample, times_gradient, tile):
    sampled, expected, of_mixed = sample
    batch, _, queries, _ = expected.shape
    gradient = MixedGradient(sampled, of_mixed)
    assert_near(sampled(), expected, 1e-12)
    assert_near(gradient(), of_mixed @ sampled.value.mT, 1e-12)
    rows = torch.rand(batch, 2, queries, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    positions = torch.full((batch, 1), queries - 1)
    for mix, whole in ((sampled, expected), (gradient, gradient())):
        assert_near(mix.pick(positions)(), whole[:, :, -1:], 1e-12)
        assert_near(mix.pick(slice(queries // 2, None))(), whole[:, :, queries // 2 :], 1e-12)
    matrix = (expected * gradient()).clamp(min=0) if times_gradient else expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixing, "TILE", tile)
        record = record_of(sampled, gradient)
        assert_near(fold(rows, record, HeadMean(times_gradient)), rows @ matrix.mean(dim=1), 1e-12)
        assert torch.equal(record.is_attended, sampled.value.ne(0).any(dim=3).any(dim=1))
        kept = replace(record, source=KeptMap(expected), gradient_source=KeptMap(gradient()))
        assert_near(fold(rows, kept, HeadMean(times_gradient)), rows @ matrix.mean(dim=1), 1e-12)

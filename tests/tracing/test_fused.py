"""The kernel of Triton is tried on a GPU (benchmarks/fold.py); here, that the tiles run where it cannot."""

from dataclasses import replace

import torch

from whyformer.tracing.flow import HeadMean, fold
from whyformer.tracing.record import AttentionRecord
from whyformer.watching.kernels import Attention
from whyformer.watching.mixing import MixedGradient


def example() -> AttentionRecord:
    generator = torch.Generator().manual_seed(0)
    query, of_mixed = torch.randn(2, 2, 4, 9, 32, generator=generator).unbind()
    key, value = torch.randn(2, 2, 2, 9, 32, generator=generator).unbind()
    attention = Attention(query, key, value, is_causal=True, enable_gqa=True)
    return AttentionRecord("", 0, "text", "text", attention, MixedGradient(attention, of_mixed), operation=3)


def test_where_no_kernel_applies_the_tiles_run():
    record = example()
    masked = replace(record, source=replace(record.source, attn_mask=torch.ones(9, 9).tril().bool(), is_causal=False))
    rows = torch.rand(2, 1, 9)
    assert HeadMean().fold(rows, record) is not None
    assert HeadMean().fold(rows, masked) is None
    torch.testing.assert_close(fold(rows, masked, HeadMean()), fold(rows, record, HeadMean()))


def test_a_fold_is_a_product_with_the_whole_matrix():
    record, rows = example(), torch.rand(2, 1, 9, generator=torch.Generator().manual_seed(1))
    gradient = (record.map * record.gradient).clamp(min=0).mean(dim=1)
    scales = torch.rand(2, 9)
    torch.testing.assert_close(fold(rows, record, HeadMean()), rows @ record.map.mean(dim=1))
    torch.testing.assert_close(fold(rows, record, HeadMean(times_gradient=True)), rows @ gradient)
    scaled = fold(rows, record, HeadMean(key_scales={3: scales}))
    torch.testing.assert_close(scaled, (rows @ record.map.mean(dim=1)) * scales[:, None, :])

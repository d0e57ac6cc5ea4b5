"""Attention and a state space in parallel (Falcon-H1), against a dense twin whose maps are all written out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tiny_hybrids import HYBRIDS
from whyformer import attribute

WORDS = {"input_ids": torch.tensor([[5, 9, 31, 4, 7, 52, 18, 3]])}
TARGET = 1


def duality_map(dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, dt_bias: Tensor) -> Tensor:
    """M_ts = (C_t·B_s) exp(Σ_{s<r≤t} a Δ_r) Δ_s, plus D on the diagonal, [head, query, key] of one example."""
    step, tokens = F.softplus(dt[0] + dt_bias).T, dt.shape[1]
    rows = torch.diag_embed(D[:, None].expand(-1, tokens)).clone()
    for t in range(tokens):
        for s in range(t + 1):
            decay = (A * step[:, s + 1 : t + 1].sum(dim=1)).exp()
            rows[:, t, s] += (C[0, t, 0] @ B[0, s, 0]) * decay * step[:, s]
    return rows


@contextmanager
def dense(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Tensor]]:
    """Run every state space and every attention of one example as a map times values, and keep the maps."""
    maps: list[Tensor] = []

    def scan(hidden_states, dt, A, B, C, chunk_size, D, dt_bias, **options):
        maps.append(duality_map(dt, A, B, C, D, dt_bias))
        return torch.einsum("hts,bshf->bthf", maps[-1], hidden_states).contiguous()

    def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        future = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).triu(1)
        maps.append((query @ key.mT * scale).masked_fill(future, -torch.inf).softmax(dim=-1)[0])
        return maps[-1] @ value

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[type(model).__module__], "mamba2_chunk_scan", scan)
        patch.setattr(F, "scaled_dot_product_attention", attention)
        yield maps


@pytest.mark.parametrize("method", ["rollout", "generic_attention"])
def test_both_branches_are_followed_as_in_the_dense_twin(method, monkeypatch):
    model = HYBRIDS["Falcon-H1"]().double()
    with torch.no_grad():
        expected = model(**WORDS).logits
    with dense(model, monkeypatch) as maps:
        logits = model(**WORDS, use_cache=False).logits
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-7)
    gradients = torch.autograd.grad(logits[0, -1, TARGET], maps)
    mixing = maps
    if method == "generic_attention":
        mixing = [(rows * gradient).clamp(min=0) for rows, gradient in zip(maps, gradients, strict=True)]
    blocks = [[rows.mean(dim=0).detach() for rows in mixing[first : first + 2]] for first in (0, 2)]

    read = torch.zeros(WORDS["input_ids"].shape[1], dtype=torch.float64)
    read[-1] = 1

    def followed(chosen: slice) -> Tensor:
        """The row of the read-out through these branches of both blocks, which read one state."""
        row = read
        for branches in reversed(blocks):
            row = row + sum(row @ branch for branch in branches[chosen])
        return row - read

    scores = attribute(model, WORDS, TARGET, method)["text"][0].double()
    torch.testing.assert_close(scores, followed(slice(0, 2)), rtol=1e-4, atol=1e-6)
    for alone in (slice(0, 1), slice(1, 2)):
        assert (scores - followed(alone)).abs().max() > 0.01 * scores.abs().max()

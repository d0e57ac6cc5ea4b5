"""Maps of kernels in closed form, where the kernel itself would have to run once for every token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from whyformer.axes import AttentionMap, Rows, Values

SCAN_CHUNK = 8  # queries of a scan that are computed together


def convolution_rows(constants: Mapping[str, Any], first: int, last: int, tokens: int) -> AttentionMap:
    """The rows of a causal convolution: w_{K−1−(t−s)} for the last K tokens s of each query t."""
    weight: Tensor = constants["weight"]
    channels, width = weight.shape
    queries = last - first
    rows = weight.new_zeros(1, channels, queries, tokens + width - 1)  # what precedes the first token is dropped
    band = rows.as_strided((channels, queries, width), (rows.stride(1), rows.stride(2) + 1, 1), storage_offset=first)
    band.copy_(weight[:, None])
    return rows[..., width - 1 :]


def convolution_band(constants: Mapping[str, Any], of_mixed: Values, value: Values) -> Rows:
    """The head mean of (M ⊙ ∇M)⁺ for the keys 0, 1, … tokens before each query: [example, lag, query]."""
    weight: Tensor = constants["weight"]
    lags = []
    for lag, share in enumerate(weight.unbind(dim=1)[::-1]):
        earlier = F.pad(value, (0, 0, lag, 0))[:, :, : value.shape[2]]
        lags.append(((of_mixed * earlier).sum(dim=-1) * share[:, None]).clamp(min=0).mean(dim=1))
    return torch.stack(lags, dim=1)


def fold_band(rows: Rows, band: Rows) -> Rows:
    """Compute rows · M for a map with nothing outside its band [example, lag, query]."""
    folded = torch.zeros_like(rows)
    for lag, entries in enumerate(band.unbind(dim=1)):
        if lag < rows.shape[-1]:
            folded[..., : rows.shape[-1] - lag] += (rows * entries[:, None].to(rows))[..., lag:]
    return folded


def scan_rows(constants: Mapping[str, Any], first: int, last: int, tokens: int) -> AttentionMap:
    """The rows of a selective scan: Σ_n C_tn exp(a_n (S_t − S_s)) Δ_s B_sn, and D more at s = t, for each channel.

    S is the sum of the steps Δ so far. Between s and t, exp(a (S_t − S_s)) splits into two factors of at most 1 each.
    So all keys before a chunk of queries take a product of matrices.
    """
    decay, steps, written, read = _scan(constants)
    total = steps.cumsum(dim=2)
    examples, channels, _ = steps.shape
    rows = steps.new_zeros(examples, channels, last - first, tokens)
    weighted = steps[..., None] * written[:, None]  # Δ_s B_sn, decayed up to the token before the chunk
    if first:
        weighted[:, :, :first] *= _decayed(decay, total[:, :, first - 1 : first] - total[:, :, :first])
    before = total[:, :, first - 1 : first] if first else torch.zeros_like(total[:, :, :1])
    for start in range(first, last, SCAN_CHUNK):
        end = min(start + SCAN_CHUNK, last)
        own, at = total[:, :, start:end], slice(start - first, end - first)
        reached = read[:, None, start:end] * _decayed(decay, own - before)
        rows[:, :, at, :start] = reached @ weighted[:, :, :start].mT
        apart = (own[..., :, None] - own[..., None, :]).clamp(min=0)
        near = torch.einsum(
            "etn,ectsn,ecsn->ects", read[:, start:end], _decayed(decay[:, None], apart), weighted[:, :, start:end]
        )
        rows[:, :, at, start:end] = near.tril()
        weighted[:, :, :start] *= _decayed(decay, own[..., -1:] - before)
        weighted[:, :, start:end] *= _decayed(decay, own[..., -1:] - own)
        before = own[..., -1:]
    if (skip := constants.get("D")) is not None:
        rows.diagonal(offset=first, dim1=2, dim2=3).add_(skip.to(rows)[:, None])
    return rows


def _scan(constants: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """a [channel, state], Δ [example, channel, token], and B and C [example, token, state]."""
    steps, bias = constants["dt"], constants.get("delta_bias")
    dtype = torch.promote_types(steps.dtype, torch.float32)
    steps = steps.to(dtype) if bias is None else steps.to(dtype) + bias.to(dtype)[:, None]
    steps = F.softplus(steps) if constants.get("delta_softplus") else steps
    written, read = (constants[name].to(dtype).mT for name in ("B", "C"))
    return constants["A"].to(dtype), steps, written, read


def _decayed(decay: Tensor, apart: Tensor) -> Tensor:
    """exp(a · apart), with an axis of states added."""
    return (decay.view(decay.shape[0], *[1] * (apart.dim() - 2), decay.shape[-1]) * apart[..., None]).exp()

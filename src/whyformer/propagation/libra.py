"""Normalisations whose denominator is a constant to the gradient, as LibraGrad (CVPR 2025) and CP-LRP take it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """`F.layer_norm` whose standard deviation is a constant."""
    axes = tuple(range(-len(normalized_shape), 0))
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    centred = wide - wide.mean(dim=axes, keepdim=True)
    spread = centred.detach().square().mean(dim=axes, keepdim=True)
    normed = (centred * (spread + eps).rsqrt()).to(x.dtype)
    normed = normed if weight is None else normed * weight
    return normed if bias is None else normed + bias


def rms_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """`F.rms_norm` whose root mean square is a constant."""
    axes = tuple(range(-len(normalized_shape), 0))
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    size = wide.detach().square().mean(dim=axes, keepdim=True)
    normed = (wide * (size + (torch.finfo(x.dtype).eps if eps is None else eps)).rsqrt()).to(x.dtype)
    return normed if weight is None else normed * weight


def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Tensor:
    """`F.normalize` whose length is a constant."""
    length: Tensor = torch.linalg.vector_norm(x.detach(), p, dim, keepdim=True)
    return x / length.clamp(min=eps)


_CONSTANT: dict[Callable[..., Any], Callable[..., Tensor]] = {
    F.layer_norm: layer_norm,
    torch.layer_norm: layer_norm,
    F.rms_norm: rms_norm,
    F.normalize: normalize,
}


def with_constant_denominator(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same normalisation with a constant denominator; batch norms have one already."""
    return _CONSTANT.get(norm, norm)

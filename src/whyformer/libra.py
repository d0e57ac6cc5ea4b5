"""LibraGrad's backward pass (CVPR 2025): forward as ever, but what only scales is a constant to the gradient.

The softmax's output, a normalisation's denominator and an activation's gate g(x) in x·g(x) get no gradient, and each
factor of a gated product gets half of its own. Input times gradient then adds up to the score, biases apart. Without
it the gradient along what a normalisation divides out is zero, however much the answer rests on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
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


def gated(func: Callable[..., Tensor], x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """x·g(x) whose gate is a constant; where x is 0, the gate is that of the smallest numbers."""
    with torch.no_grad():
        nonzero = torch.where(x == 0, torch.finfo(x.dtype).tiny ** 0.5, x)
        gate = func(nonzero, *args, **kwargs) / nonzero
    return x * gate


def product(first: Tensor, second: Tensor) -> Tensor:
    """The product of two activations, each of which gets half of the gradient."""
    return (first * second.detach() + first.detach() * second) / 2

"""Gradients of normalisations with a constant denominator, as in LibraGrad (CVPR 2025) and CP-LRP.

Each takes the gradient at the output and the arguments of its function, and returns the gradient at the input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def layer_norm(
    grad_output: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """(g − mean g) / σ with g = w ⊙ grad_output: `F.layer_norm`'s gradient without its last term, x̂ mean(g x̂).

    Computed by the fused kernels: with input and mean zero, x̂ and hence that term vanish.
    """
    _, mean, spread = torch.native_layer_norm(x, list(normalized_shape), weight, bias, eps)
    zeros, needs_grad = torch.zeros_like(x), [True, False, False]
    grad_input: Tensor = torch.ops.aten.native_layer_norm_backward(
        grad_output, zeros, list(normalized_shape), torch.zeros_like(mean), spread, weight, bias, needs_grad
    )[0]
    return grad_input


def rms_norm(
    grad_output: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """The gradient of `F.rms_norm` with a constant root mean square."""
    axes = tuple(range(-len(normalized_shape), 0))
    size = x.to(torch.promote_types(x.dtype, torch.float32)).square().mean(dim=axes, keepdim=True)
    scale = (size + (torch.finfo(x.dtype).eps if eps is None else eps)).rsqrt()
    weighted = grad_output if weight is None else grad_output * weight
    return (weighted * scale).to(x.dtype)


def normalize(
    grad_output: Tensor, x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None
) -> Tensor:
    """The gradient of `F.normalize` with a constant norm."""
    length: Tensor = torch.linalg.vector_norm(x, p, dim, keepdim=True)
    return grad_output / length.clamp(min=eps)


# Batch norms are not listed: their denominator is constant already.
CONSTANT_DENOMINATOR: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    F.layer_norm: layer_norm,
    torch.layer_norm: layer_norm,
    F.rms_norm: rms_norm,
    F.normalize: normalize,
}

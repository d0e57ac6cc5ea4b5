"""ROAD (Rong et al., ICML 2022): impute removed pixels, so that the shape of the mask reveals nothing."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from whyformer.axes import PixelRemoval, Pixels, StepPixels

NOISE = 0.01
PLANES_AT_ONCE = {"cpu": 3, "cuda": 4096}  # as many as stay in the cache, or fill the device


def imputed(pixels: Pixels, removal: PixelRemoval, *, noise: float = NOISE, seed: int = 0) -> StepPixels:
    """Replace removed pixels of the images at every step by the weighted mean of their neighbours, plus noise.

    If no pixel is left, all are 0. Every image gets the same noise, so that results do not depend on the batch.
    """
    steps, batch = removal.shape[:2]
    channels = pixels.shape[1]
    wide = pixels.to(torch.promote_types(pixels.dtype, torch.float32))
    planes = wide.expand(steps, *wide.shape).reshape(-1, 1, *wide.shape[2:])
    marks = removal[:, :, None].expand(-1, -1, channels, -1, -1).reshape(-1, 1, *removal.shape[2:])
    at_once = PLANES_AT_ONCE.get(pixels.device.type, PLANES_AT_ONCE["cpu"])
    filled = torch.cat([_solved(*part) for part in zip(planes.split(at_once), marks.split(at_once), strict=True)])
    generator = torch.Generator().manual_seed(seed)
    grain = torch.randn(steps, 1, *pixels.shape[1:], generator=generator).to(pixels)
    smooth = filled.view(steps, batch, channels, *filled.shape[2:]).to(pixels)
    return torch.where(removal[:, :, None], smooth + noise * grain, pixels)


def _solved(planes: Tensor, removal: Tensor) -> Tensor:
    """Solve (Σ_n w_n) x = Σ_n w_n x_n for the removed pixels x, over the neighbours n inside the image.

    The system is symmetric and positive definite: conjugate gradients, all planes at once, each to its own tolerance.
    """

    def product(x: Tensor) -> Tensor:
        return (total * x - _neighbours(x)).where(removal, 0.0)

    total = _neighbours(torch.ones_like(planes[:1]))
    residual = _neighbours(planes.where(~removal, 0.0)).where(removal, 0.0)
    solution, direction, left = torch.zeros_like(planes), residual, _squared(residual)
    enough = left * torch.finfo(planes.dtype).eps ** 1.5
    for _ in range(planes[0].numel()):
        active = left > enough
        if not bool(active.any()):
            break
        moved = product(direction)
        step = (left / _inner(direction, moved)).where(active, 0.0)
        solution, residual = solution + step * direction, residual - step * moved
        before, left = left, _squared(residual).where(active, left)
        direction = residual + (left / before).where(active, 0.0) * direction
    return solution


def _neighbours(x: Tensor) -> Tensor:
    """Σ_n w_n x_n: weights 1/6 beside, above and below, 1/12 at the corners; (1 2 1)ᵀ(1 2 1)/12 without the centre."""
    rows = F.pad(x, (0, 0, 1, 1))
    rows = rows[:, :, :-2] + 2 * x + rows[:, :, 2:]
    both = F.pad(rows, (1, 1))
    return (both[..., :-2] + 2 * rows + both[..., 2:] - 4 * x) / 12


def _inner(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).sum(dim=(1, 2, 3), keepdim=True)


def _squared(x: Tensor) -> Tensor:
    return _inner(x, x)

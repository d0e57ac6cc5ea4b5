"""Operations that are several in one, taken apart so that each part has its rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Run = Callable[..., Any]


def baddbmm(run: Run, bias: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    """BLOOM's scores: β times a bias that depends on positions alone, plus α times the product."""
    product = run(torch.mul, run(torch.bmm, batch1, batch2), alpha)
    return run(torch.add, product, run(torch.mul, bias, beta))


def glu(run: Run, x: Tensor, dim: int = -1) -> Any:
    """One half of the channels, gated by the other."""
    value, gate = run(torch.chunk, x, 2, dim)
    return run(torch.mul, value, run(torch.sigmoid, gate))


def is_rotation(args: tuple[Any, ...]) -> bool:
    """Whether it is a product of complex numbers, one of them a constant: as Llama 4 turns queries and keys."""
    is_complex = [isinstance(x, Tensor) and x.is_complex() for x in args[:2]]
    return all(is_complex) and len(args) == 2 and args[0].requires_grad != args[1].requires_grad


def complex_product(run: Run, x: Tensor, y: Tensor) -> Any:
    """The product of complex numbers as a linear operation on pairs of real ones."""
    turned, constant = (x, y) if x.requires_grad else (y, x)
    return run(torch.view_as_complex, run(turn_pairs, run(torch.view_as_real, turned), constant))


def turn_pairs(x: Tensor, factor: Tensor) -> Tensor:
    """Pairs of real numbers times complex ones."""
    return torch.view_as_real(torch.view_as_complex(x) * factor)


COMPOSED: dict[str, Callable[..., Any]] = {"baddbmm": baddbmm, "glu": glu, "complex product": complex_product}

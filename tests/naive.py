"""Relevance rules as the papers print them, term by term: dense float64 twins that share nothing with the library.

An operation is given as a function. What it does to each entry of its input is found by trying: one basis vector after
the other. A rule then says how what arrived at an output is shared out among the terms that it is the sum of.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

Function = Callable[..., Tensor]
Twin = Callable[..., list[Tensor]]

STABILISER, EPSILON = 1e-9, 1e-6


def safely(a: Tensor, b: Tensor) -> Tensor:
    """SPEC 1.4: a / (b + 1e-9), and 0 where b is 0."""
    return torch.where(b == 0, 0.0, a / (b + STABILISER))


def off_zero(a: Tensor, b: Tensor) -> Tensor:
    """The ε-rule's a / (b + ε sign b)."""
    return a / (b + torch.where(b < 0, -EPSILON, EPSILON))


def basis(x: Tensor) -> list[Tensor]:
    return [row.reshape(x.shape) for row in torch.eye(x.numel(), dtype=torch.float64)]


def dense(function: Function, x: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix [output, input] of an affine function, and its bias."""
    bias = function(torch.zeros_like(x)).flatten()
    return torch.stack([function(unit).flatten() - bias for unit in basis(x)], dim=1), bias


def shared_out(shares: Tensor, x: Tensor) -> list[Tensor]:
    """Terms [output, input] added up for each input."""
    return [shares.sum(dim=0).reshape(x.shape)]


# Linear operations: z_o = Σ_i m_oi x_i + b_o


def z_plus(arrived: Tensor, function: Function, x: Tensor) -> list[Tensor]:
    """TA Eq. 4: terms of a positive input and a positive weight."""
    matrix, _ = dense(function, x)
    terms = matrix.clamp(min=0) * x.flatten().clamp(min=0)
    return shared_out(terms * safely(arrived.flatten(), terms.sum(dim=1))[:, None], x)


def positive_terms(arrived: Tensor, function: Function, x: Tensor) -> list[Tensor]:
    """TA Eq. 5: the terms that are positive."""
    matrix, _ = dense(function, x)
    terms = (matrix * x.flatten()).clamp(min=0)
    return shared_out(terms * safely(arrived.flatten(), terms.sum(dim=1))[:, None], x)


def each_sign(arrived: Tensor, function: Function, x: Tensor) -> list[Tensor]:
    """The reference's "lrp" (SPEC 1.4.1): positive times positive, negative times negative, each shares out all."""
    matrix, _ = dense(function, x)
    shares = torch.zeros_like(matrix)
    for sign in (1, -1):
        terms = (sign * matrix).clamp(min=0) * (sign * x.flatten()).clamp(min=0)
        shares += terms * safely(arrived.flatten(), terms.sum(dim=1))[:, None]
    return shared_out(shares, x)


def epsilon(arrived: Tensor, function: Function, x: Tensor) -> list[Tensor]:
    matrix, bias = dense(function, x)
    terms = matrix * x.flatten()
    return shared_out(terms * off_zero(arrived.flatten(), terms.sum(dim=1) + bias)[:, None], x)


def z_b(arrived: Tensor, function: Function, x: Tensor) -> list[Tensor]:
    """The pixels' rule (SPEC 1.4.7), bounded by the least and the greatest entry of each picture."""
    matrix, _ = dense(function, x)
    low, high = (
        torch.stack([bound(picture).expand(picture.shape) for picture in x]) for bound in (torch.min, torch.max)
    )
    terms = matrix * x.flatten() - matrix.clamp(min=0) * low.flatten() - matrix.clamp(max=0) * high.flatten()
    return shared_out(terms * (arrived.flatten() / (terms.sum(dim=1) + STABILISER))[:, None], x)


def proportional(arrived: Tensor, function: Function, x: Tensor) -> list[Tensor]:
    matrix, _ = dense(function, x)
    terms = matrix * x.flatten()
    return shared_out(terms * safely(arrived.flatten(), terms.sum(dim=1))[:, None], x)


# Products of two activations: z_o = Σ_ij b_oij u_i v_j


def products(function: Function, u: Tensor, v: Tensor) -> Tensor:
    """Every term [output, entry of u, entry of v]."""
    found = [torch.stack([function(one, other).flatten() for other in basis(v)], dim=1) for one in basis(u)]
    return torch.stack(found, dim=1) * u.flatten()[:, None] * v.flatten()


def bilinear(
    division: Function, share: float, arrived: Tensor, function: Function, u: Tensor, v: Tensor
) -> list[Tensor]:
    terms = products(function, u, v)
    shares = share * terms * division(arrived.flatten(), terms.sum(dim=(1, 2)))[:, None, None]
    return [shares.sum(dim=(0, 2)).reshape(u.shape), shares.sum(dim=(0, 1)).reshape(v.shape)]


def only_values(arrived: Tensor, function: Function, u: Tensor, v: Tensor) -> list[Tensor]:
    """CP-LRP: the map is a constant."""
    return [torch.zeros_like(u), bilinear(off_zero, 1.0, arrived, function, u, v)[1]]


# Sums: z = function(u, 0) + function(0, v)


def added(division: Function, arrived: Tensor, function: Function, u: Tensor, v: Tensor) -> list[Tensor]:
    (of_u, _), (of_v, _) = sides(function, u, v)
    terms = of_u * u.flatten(), of_v * v.flatten()
    factor = division(arrived.flatten(), terms[0].sum(dim=1) + terms[1].sum(dim=1))[:, None]
    return [shared_out(part * factor, x)[0] for part, x in zip(terms, (u, v), strict=True)]


def added_in_balance(arrived: Tensor, function: Function, u: Tensor, v: Tensor) -> list[Tensor]:
    """SPEC 1.4.3 "ours", with the sums of each example: the examples are the first axis of what arrived."""
    (of_u, _), (of_v, _) = sides(function, u, v)
    terms = [of_u * u.flatten(), of_v * v.flatten()]
    factor = safely(arrived.flatten(), terms[0].sum(dim=1) + terms[1].sum(dim=1))[:, None]
    shares = [(part * factor).reshape(len(arrived), -1, part.shape[1]) for part in terms]
    for example, whole in enumerate(arrived.flatten(1).sum(dim=1)):
        totals = [part[example].sum() for part in shares]
        size = totals[0].abs() + totals[1].abs()
        for part, total in zip(shares, totals, strict=True):
            part[example] *= safely(safely(total.abs(), size) * whole, total)
    return [part.sum(dim=(0, 1)).reshape(x.shape) for part, x in zip(shares, (u, v), strict=True)]


def sides(function: Function, u: Tensor, v: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return dense(lambda x: function(x, torch.zeros_like(v)), u), dense(lambda x: function(torch.zeros_like(u), x), v)


# The rest


def identity(arrived: Tensor, function: Function, x: Tensor) -> list[Tensor]:
    return [arrived]


def none(arrived: Tensor, function: Function, x: Tensor) -> list[Tensor]:
    return [torch.zeros_like(x)]


def moved(arrived: Tensor, function: Function, *inputs: Tensor) -> list[Tensor]:
    """Every entry takes back what arrived where it went."""
    found = []
    for number, x in enumerate(inputs):
        zeros = [torch.zeros_like(other) for other in inputs]

        def of_one(entry: Tensor, number: int = number, zeros: list[Tensor] = zeros) -> Tensor:
            return function(*zeros[:number], entry, *zeros[number + 1 :])

        found.append((dense(of_one, x)[0] * arrived.flatten()[:, None]).sum(dim=0).reshape(x.shape))
    return found


def softmax_expanded(arrived: Tensor, function: Function, x: Tensor) -> list[Tensor]:
    """AttnLRP Prop. 3.1, row by row: x_i (R_i − s_i Σ_j R_j)."""
    rows = zip(x.flatten(0, -2), function(x).flatten(0, -2), arrived.flatten(0, -2), strict=True)
    found = []
    for scores, weights, relevance in rows:
        row = [
            0.0 if s == -torch.inf else s * (r - w * relevance.sum())
            for s, w, r in zip(scores, weights, relevance, strict=True)
        ]
        found.append(torch.tensor(row, dtype=torch.float64))
    return [torch.stack(found).reshape(x.shape)]


def norm_with_constant_denominator(arrived: Tensor, function: Function, x: Tensor) -> list[Tensor]:
    """AttnLRP, CP-LRP: the ε-rule for the affine function that a normalisation is once its denominator is fixed.

    The denominator is told apart by trying: `function(x, at)` normalises x by the denominator of `at`.
    """
    return epsilon(arrived, lambda y: function(y, x), x)


# LibraGrad: gradients in which what only scales is a constant


def gradient(arrived: Tensor, function: Function, *inputs: Tensor, share: float = 1.0) -> list[Tensor]:
    """PyTorch's own, of the plain function."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    return [share * part for part in torch.autograd.grad(function(*leaves), leaves, arrived)]


def gradient_with_constant_denominator(arrived: Tensor, function: Function, x: Tensor) -> list[Tensor]:
    return moved(arrived, lambda y: function(y, x), x)


def gradient_with_constant_gate(arrived: Tensor, function: Function, x: Tensor) -> list[Tensor]:
    return [arrived * function(x) / x]


RELEVANCE: dict[str, Twin] = {
    "pixels": z_b,
    "share": proportional,
    "add": partial(added, safely),
    "rotation": partial(added, safely),
    "product": partial(bilinear, safely, 0.5),
    "mixing": partial(bilinear, safely, 0.5),
    "gate": partial(bilinear, safely, 0.5),
    "norm": identity,
    "activation": identity,
    "curve": identity,
    "self-gate": identity,
    "softmax": identity,
    "scale": identity,
    "denominator": none,
    "moving": moved,
}
EPSILON_RULES: dict[str, Twin] = RELEVANCE | {
    "linear": epsilon,
    "pixels": epsilon,
    "norm": norm_with_constant_denominator,
    "share": epsilon,
    "add": partial(added, off_zero),
    "rotation": partial(added, off_zero),
    "product": partial(bilinear, off_zero, 0.5),
    "mixing": partial(bilinear, off_zero, 0.5),
    "gate": partial(bilinear, off_zero, 0.5),
}
TWINS: dict[str, dict[str, Twin]] = {
    "z_plus": RELEVANCE | {"linear": z_plus},
    "dtd": RELEVANCE | {"linear": positive_terms, "add": added_in_balance},
    "lrp": RELEVANCE | {"linear": each_sign},
    "attn_lrp": EPSILON_RULES | {"softmax": softmax_expanded},
    "cp_lrp": EPSILON_RULES | {"softmax": none, "mixing": only_values},
    "libra": dict.fromkeys(
        ("linear", "pixels", "share", "add", "rotation", "product", "mixing", "scale", "curve", "moving"), gradient
    )
    | {
        "norm": gradient_with_constant_denominator,
        "activation": gradient_with_constant_gate,
        "self-gate": gradient_with_constant_gate,
        "gate": partial(gradient, share=0.5),
        "softmax": none,
        "denominator": none,
    },
}
TWINS["attn_lrp as a gradient"] = TWINS["libra"] | {
    "softmax": gradient,
    "curve": gradient_with_constant_gate,
    "product": partial(gradient, share=0.5),
    "mixing": partial(gradient, share=0.5),
}

"""How operations change the role of a tensor: by moving its entries, scaling, normalising and biasing them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.errors import UnsupportedModel
from whyformer.watching.operation_names import PUTTING, SWAPPING
from whyformer.watching.roles import Branch, Mixed, Move, Normed, Projection, Role, Sampled, Spread, Weights, Written

# Arguments of the two norms after the input.
LAYER_NORM = ("normalized_shape", "weight", "bias", "eps")
RMS_NORM = ("normalized_shape", "weight", "eps")


def moved(role: Role | None, name: str, args: tuple[Any, ...]) -> Role | None:
    """The role after a move: swapped axes are noted for an output of attention, and end the role of a map."""
    if name in PUTTING:
        return _put_elsewhere(role, args[0])
    if name not in SWAPPING:
        return role
    if isinstance(role, Written):
        return replace(role, is_swapped=role.is_swapped != _swaps_first_axes(name, args))
    return None if isinstance(role, Weights) else role


def _swaps_first_axes(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a move swaps the axes of tokens and examples; those of windows swap others."""
    if name in ("transpose", "swapaxes", "swapdims") and len(args) == 3:
        return {axis % args[0].dim() for axis in args[1:]} == {0, 1}
    return True


def _put_elsewhere(role: Role | None, tensor: Tensor) -> Role | None:
    """The role after a roll or a padding, which do not change a token's channels."""
    if isinstance(role, Projection) and role.state is not None:
        return Normed(role.state, origin=tensor)
    if isinstance(role, Normed) and role.origin is None:
        return replace(role, origin=tensor)
    return role if isinstance(role, (Written, Normed)) else None


def mixes(operands: list[Any]) -> bool:
    """Whether the product contracts the map's keys: matrix products always do, einsum by its equation."""
    if not isinstance(operands[0], str):
        return isinstance(operands[1], Tensor)
    terms, _, result = operands[0].replace(" ", "").partition("->")
    weights = terms.split(",")[0]
    return len(weights) > 1 and weights[-2] in result and weights[-1] not in result


def repeating(shape: torch.Size) -> Move:
    """The move that repeats shared heads to the number of heads of this shape."""
    return lambda x: x.repeat_interleave(shape[-3] // x.shape[-3], dim=-3)


def part_of(move: Callable[..., Any], number: int) -> Move:
    """A move that takes one of several results."""
    return lambda x: move(x)[number]


def concatenated(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], role_of: Callable[[Any], Role | None]
) -> Role | None:
    """The role of a concatenation: that of its only non-empty tensor, of samples, or of attention run in parts.

    The parts must be consecutive tokens, not heads side by side (ConvBERT).
    """
    parts, axis = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    roles = [role_of(x) for x in parts if isinstance(x, Tensor) and x.numel()]
    if name == "cat" and len(roles) == 1:
        return roles[0]
    samples = [role for role in roles if isinstance(role, Sampled)]
    if samples and len(samples) == len(parts):
        levels, grids = (tuple(x for role in samples for x in getattr(role, part)) for part in ("levels", "grids"))
        return Sampled(levels, grids, samples[0].source)
    mixed = [role for role in roles if isinstance(role, Mixed)]
    if name != "cat" or not mixed or len(mixed) < len(roles) or axis != 1:
        return None
    for other in mixed[1:]:  # they share one outcome
        other.tap.outcome = mixed[0].tap.outcome
    if mixed[0].tap.kernel is not None:  # run by groups of channels (Zamba), not of tokens
        mixed[0].tap.outcome.beside |= {role.tap for role in mixed}
    return mixed[0]


def projected(
    role: Mixed, source: Tensor, parameter: Tensor, weight: Tensor, output: Tensor | None, module: nn.Module | None
) -> Written | Branch:
    """The role of a projection of mixed values: the first is the output projection, others may be its adapter."""
    tap, outcome = role.tap, role.tap.outcome
    outcome.readers += 1
    if outcome.readers > 1:
        return Branch(tap, weight)
    outcome.output_parameter, outcome.output_weight, outcome.output_module = parameter, weight, module
    outcome.output = None if output is None else output.detach().clone()
    if role.is_gated:
        outcome.gated = None if output is None else source.detach()
    elif role.values is not None:
        tap.compare_order(role.values, source.reshape(-1, source.shape[-1]))
    return Written(tap)


def check_fits(shape: torch.Size, batch: int) -> None:
    """Check that a map with heads and examples on one axis has equally many for each example."""
    if shape[0] % batch:
        raise UnsupportedModel(f"An attention map of shape {tuple(shape)} does not fit {batch} examples.")


def scaled(role: Role | None, tensor: Tensor, factor: Any, factor_role: Role | None, batch: int) -> Role | None:
    """The role of a tensor times a factor: one per channel is merged into the weight, one per token is a constant."""
    if isinstance(role, Weights):
        return role
    if isinstance(role, Mixed):
        return gated(role, tensor)
    if isinstance(role, Sampled):
        return replace(role, weights=factor.detach()) if isinstance(factor, Tensor) and factor.dim() == 4 else None
    if isinstance(role, Written):
        return _scale_output(role, tensor, factor)
    if isinstance(role, (Projection, Branch)) and not isinstance(factor, Tensor):
        return replace(role, weight=role.weight * factor)
    if isinstance(role, Projection) and tensor.dim() == 3:
        if isinstance(factor_role, Spread) and _is_by_token(factor, tensor):
            return replace(role, is_normed=True)
        if role.is_normed and factor.shape == tensor.shape[-1:]:
            return role.scaled(factor.detach(), batch)
    return None


def gated(role: Mixed, tensor: Tensor) -> Mixed:
    """The role of mixed values times a gate, a norm's spread or its weights; their order is compared before."""
    if role.values is not None and not role.is_gated:
        role.tap.compare_order(role.values, tensor.reshape(-1, tensor.shape[-1]))
    return replace(role, is_gated=True)


def centred(role: Role | None, tensor: Tensor, mean: Any) -> Mixed | None:
    """The role of mixed values minus a number per token and head, their mean: W_o does not read the values alone."""
    if not isinstance(role, Mixed) or not _is_by_token(mean, tensor):
        return None
    role.tap.outcome.is_centred = True
    return replace(role, values=None, is_gated=True)


def _scale_output(role: Written, tensor: Tensor, factor: Any) -> Written | None:
    tap = role.tap
    if not isinstance(factor, Tensor) or factor.dim() == 0 or factor.shape == tensor.shape[-1:]:
        if tap.outcome.output_weight is not None:  # LayerScale, or a norm's weights, are merged into W_o
            tap.outcome.output_weight = (
                (tap.outcome.output_weight.T * factor).T.detach().to(tap.outcome.output_weight.dtype)
            )
        return role
    if role.is_joined or not _is_by_token(factor, tensor):
        return None
    scale = factor.detach()
    scale = scale.transpose(0, 1) if role.is_swapped else scale
    tap.outcome.output_scale = scale if tap.outcome.output_scale is None else tap.outcome.output_scale * scale
    return role


def normed(role: Role | None, args: Any, kwargs: Any, original: Tensor, *, centres: bool, batch: int) -> Role:
    """The role of a normalised tensor: the output of an attention block, a latent, or a state.

    The spread is a constant per token, and the norm's weights are merged into those of the projection before it.
    `original` is the tensor that this one is a copy of, or itself.
    """
    x: Tensor = args[0]
    if isinstance(role, Mixed) and not centres:
        return gated(role, x)
    given = dict(zip(LAYER_NORM if centres else RMS_NORM, args[1:], strict=False)) | kwargs
    bias, weight, eps = given.get("bias"), given.get("weight"), given.get("eps", 1e-5 if centres else None)
    state = Normed(original, None if bias is None else bias.detach())
    is_latent = isinstance(role, Projection) and x.dim() == 3
    is_output = isinstance(role, Written) and not role.is_joined
    if not (is_latent or is_output) or tuple(given["normalized_shape"]) != tuple(x.shape[-1:]):
        return state
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    if centres:
        wide = wide - wide.mean(dim=-1, keepdim=True)
    spread = (wide.square().mean(dim=-1, keepdim=True) + (torch.finfo(x.dtype).eps if eps is None else eps)).rsqrt()
    factor = torch.ones_like(wide[0, 0]) if weight is None else weight.detach()
    if isinstance(role, Written):
        output = role.tap.outcome.output_weight
        if centres and output is not None:
            role.tap.outcome.output_weight = output - output.mean(dim=0, keepdim=True)
        written = _scale_output(role, x, spread)
        return (written and _scale_output(written, x, factor)) or state
    assert isinstance(role, Projection)
    plain = role.scaled(torch.ones_like(factor), batch)
    if plain is None:
        return state
    rows = plain.weight - plain.weight.mean(dim=0, keepdim=True) if centres else plain.weight
    return replace(plain, weight=rows * factor[:, None].to(rows.dtype), is_normed=True, state=x)


def biased(role: Role | None, tensor: Tensor, bias: Any) -> Projection | None:
    """The role after adding a bias: a projection stays one if the bias is per channel."""
    if not isinstance(role, Projection) or not isinstance(bias, Tensor) or bias.dim() > tensor.dim():
        return None
    tokens = role.shape[:-1].numel()
    is_by_channel = bias.numel() * tokens == tensor.numel() and tokens > 1
    return role if is_by_channel and not bias.requires_grad else None


def _is_by_token(factor: Any, tensor: Tensor) -> bool:
    return isinstance(factor, Tensor) and factor.shape == (*tensor.shape[:-1], 1)

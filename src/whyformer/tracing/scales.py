"""What a scale, a norm or a bias makes of a tensor of an attention block, as far as its weights are concerned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from whyformer.tracing.tags import Branch, Normed, Projection, Spread, Tag, Weights, Written


def scaled(tag: Tag | None, tensor: Tensor, factor: Any, factor_tag: Tag | None, batch: int) -> Tag | None:
    """The tag of a tensor times a factor: its channels' belongs to the weight, its tokens' is a constant."""
    if isinstance(tag, Weights):
        return tag
    if isinstance(tag, Written):
        return _scale_output(tag, tensor, factor)
    if isinstance(tag, (Projection, Branch)) and not isinstance(factor, Tensor):
        return replace(tag, weight=tag.weight * factor)
    if isinstance(tag, Projection) and tensor.dim() == 3:
        if isinstance(factor_tag, Spread) and _is_by_token(factor, tensor):
            return replace(tag, is_normed=True)
        if tag.is_normed and factor.shape == tensor.shape[-1:]:
            return tag.scaled(factor.detach(), batch)
    return None


def _scale_output(tag: Written, tensor: Tensor, factor: Any) -> Written | None:
    tap = tag.tap
    if not isinstance(factor, Tensor) or factor.dim() == 0 or factor.shape == tensor.shape[-1:]:
        if tap.outcome.output_weight is not None:  # LayerScale, or the weights of a norm, belong to W_o
            tap.outcome.output_weight = (
                (tap.outcome.output_weight.T * factor).T.detach().to(tap.outcome.output_weight.dtype)
            )
        return tag
    if tag.is_joined or not _is_by_token(factor, tensor):
        return None
    scale = factor.detach()
    scale = scale.transpose(0, 1) if tag.is_swapped else scale
    tap.outcome.output_scale = scale if tap.outcome.output_scale is None else tap.outcome.output_scale * scale
    return tag


def normed(tag: Tag | None, args: Any, kwargs: Any, original: Tensor, *, centres: bool, batch: int) -> Tag:
    """The tag of a normalised tensor: of what an attention block writes, of a latent of it, or of a state.

    The spread is a constant of each token, and the weights belong to those of the projection before. `original` is what
    the tensor is a copy of, or itself.
    """
    x: Tensor = args[0]
    shape, weight, bias, eps = (kwargs.get(name, value) for name, value in _norm_arguments(args, centres).items())
    state = Normed(original, None if bias is None else bias.detach())
    is_latent = isinstance(tag, Projection) and x.dim() == 3
    is_output = isinstance(tag, Written) and not tag.is_joined
    if not (is_latent or is_output) or tuple(shape) != tuple(x.shape[-1:]):
        return state
    wide = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    if centres:
        wide = wide - wide.mean(dim=-1, keepdim=True)
    spread = (wide.square().mean(dim=-1, keepdim=True) + (torch.finfo(x.dtype).eps if eps is None else eps)).rsqrt()
    factor = torch.ones_like(wide[0, 0]) if weight is None else weight.detach()
    if isinstance(tag, Written):
        output = tag.tap.outcome.output_weight
        if centres and output is not None:
            tag.tap.outcome.output_weight = output - output.mean(dim=0, keepdim=True)
        written = _scale_output(tag, x, spread)
        return (written and _scale_output(written, x, factor)) or state
    assert isinstance(tag, Projection)
    plain = tag.scaled(torch.ones_like(factor), batch)
    if plain is None:
        return state
    rows = plain.weight - plain.weight.mean(dim=0, keepdim=True) if centres else plain.weight
    return replace(plain, weight=rows * factor[:, None].to(rows.dtype), is_normed=True, state=x)


def _norm_arguments(args: Any, centres: bool) -> dict[str, Any]:
    names = (
        ("input", "normalized_shape", "weight", "bias", "eps")
        if centres
        else ("input", "normalized_shape", "weight", "eps")
    )
    defaults = {"normalized_shape": (), "weight": None, "bias": None, "eps": 1e-5 if centres else None}
    return defaults | dict(zip(names[1:], args[1:], strict=False))


def biased(tag: Tag | None, tensor: Tensor, bias: Any) -> Projection | None:
    """A projection stays one when each of its channels gets a bias."""
    if not isinstance(tag, Projection) or not isinstance(bias, Tensor) or bias.dim() > tensor.dim():
        return None
    tokens = tag.shape[:-1].numel()
    is_by_channel = bias.numel() * tokens == tensor.numel() and tokens > 1
    return tag if is_by_channel and not bias.requires_grad else None


def _is_by_token(factor: Any, tensor: Tensor) -> bool:
    return isinstance(factor, Tensor) and factor.shape == (*tensor.shape[:-1], 1)

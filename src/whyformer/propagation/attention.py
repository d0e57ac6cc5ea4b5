"""Relevance through a whole attention operation, tile by tile of its queries: no map is ever held.

What the rules of AttnLRP do one after the other to q·kᵀ, the mask, the softmax and the product with the values, done at
once: the map is made from queries and keys for some queries at a time, used, and dropped.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from whyformer.propagation.operation import GradInputs, Operation

TILE = 2**26  # entries of a map, of all examples and heads, that are made at once
EPSILON = 1e-6  # of the ε-rule, away from zero


def away_from_zero(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The quotient of the ε-rule: the denominator is kept off zero on either side."""
    return numerator / (denominator + torch.where(denominator < 0, -EPSILON, EPSILON))


def attention_epsilon(grad_output: Tensor, operation: Operation) -> GradInputs:
    """AttnLRP: half of the relevance to the values, half to the map and on to queries and keys (Prop. 3.1, 3.3)."""
    return _taken_back(grad_output, operation, through_map=True)


def attention_values(grad_output: Tensor, operation: Operation) -> GradInputs:
    """CP-LRP: the attention map is a constant, and the values get all."""
    return _taken_back(grad_output, operation, through_map=False)


def _taken_back(relevance: Tensor, operation: Operation, *, through_map: bool) -> GradInputs:
    tensors = [x.detach() for x in operation.inputs]
    (query, key, value), mask, is_causal, scale = _arguments(*operation.with_inputs(tensors))
    groups = query.shape[-3] // key.shape[-3]
    keys, values = (x.repeat_interleave(groups, dim=-3) for x in (key, value))
    scaled = query * scale
    share = away_from_zero(relevance, operation.output.detach())
    to_query, to_keys, to_values = torch.zeros_like(query), torch.zeros_like(keys), torch.zeros_like(values)
    height = max(1, TILE // (math.prod(query.shape[:-2]) * keys.shape[-2]))
    for start in range(0, query.shape[-2], height):
        rows = slice(start, start + height)
        products = scaled[..., rows, :] @ keys.mT
        scores = products + _bias(mask, rows, is_causal=is_causal, like=products)
        weights = scores.softmax(dim=-1)
        to_values += weights.mT @ share[..., rows, :]
        if not through_map:
            continue
        to_map = weights * (share[..., rows, :] @ values.mT) / 2
        to_scores = scores * (to_map - weights * to_map.sum(dim=-1, keepdim=True))
        to_scores = to_scores.masked_fill(scores == -math.inf, 0.0)
        if mask is not None or is_causal:  # what was added to the products has its share
            to_scores = products * away_from_zero(to_scores, scores)
        to_products = away_from_zero(to_scores, products)
        to_query[..., rows, :] = scaled[..., rows, :] * (to_products @ keys) / 2
        to_keys += to_products.mT @ scaled[..., rows, :] / 2
    to_value = value * to_values.unflatten(-3, (-1, groups)).sum(dim=-3) / (2 if through_map else 1)
    to_key = key * to_keys.unflatten(-3, (-1, groups)).sum(dim=-3)
    shares = (to_query, to_key, to_value) if through_map else (None, None, to_value)
    return [*shares, *[None] * (len(operation.inputs) - 3)]


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Tensor, Tensor, Tensor], Any, bool, float]:
    """Queries, keys and values, the mask, whether it is causal, and the scale of a scaled_dot_product_attention."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    named = dict(zip(names, args, strict=False)) | kwargs
    query = named["query"]
    scale = named.get("scale")
    tensors = (query, named["key"], named["value"])
    return (
        tensors,
        named.get("attn_mask"),
        bool(named.get("is_causal")),
        query.shape[-1] ** -0.5 if scale is None else scale,
    )


def _bias(mask: Tensor | None, rows: slice, *, is_causal: bool, like: Tensor) -> Tensor | float:
    """What is added to the scores of some queries: 0 or what the mask says where it is open, −∞ where it is shut."""
    bias: Tensor | float = 0.0
    if mask is not None:
        part = mask[..., rows, :] if mask.shape[-2] > 1 else mask
        bias = (
            part if part.dtype != torch.bool else torch.zeros_like(part, dtype=like.dtype).masked_fill(~part, -math.inf)
        )
    if is_causal:
        shut = torch.ones(like.shape[-2:], dtype=torch.bool, device=like.device).triu(diagonal=rows.start + 1)
        bias = bias + torch.zeros(shut.shape, dtype=like.dtype, device=like.device).masked_fill(shut, -math.inf)
    return bias

"""Relevance through a whole attention operation, computed in tiles of queries without holding the map.

The rules of q·kᵀ, the mask, the softmax and the product with the values in one. The rows of the map are recomputed
from queries and keys, used, and dropped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whyformer.backward.operations import GradInputs, Operation, Quotient, away_from_zero, balance, ratio

TILE_ENTRIES = 2**26  # entries of a map, over all examples and heads, that are computed at once


@dataclass(frozen=True)
class Tile:
    """Some queries of an attention: their products with the keys, the bias, the sum of both, and the map."""

    rows: slice
    products: Tensor
    bias: Tensor | None
    scores: Tensor
    weights: Tensor

    @property
    def open_bias(self) -> Tensor:
        """The bias where the mask is open, 0 where it is closed."""
        assert self.bias is not None
        return self.bias.masked_fill(self.bias.isinf(), 0.0)


@dataclass(frozen=True)
class FusedAttention:
    """The inputs of a scaled_dot_product_attention: scaled queries, and keys and values for each of their heads."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    is_causal: bool
    groups: int  # query heads that share a key head

    @classmethod
    def of(cls, operation: Operation) -> FusedAttention:
        args, kwargs = operation.arguments
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
        named: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
        named |= {name: x.detach() for name, x in named.items() if isinstance(x, Tensor)}
        query, scale = named["query"], named.get("scale")
        groups = query.shape[-3] // named["key"].shape[-3]
        key, value = (named[name].repeat_interleave(groups, dim=-3) for name in ("key", "value"))
        scaled = query * (query.shape[-1] ** -0.5 if scale is None else scale)
        return cls(scaled, key, value, named.get("attn_mask"), bool(named.get("is_causal")), groups)

    @property
    def has_bias(self) -> bool:
        """Whether a bias is added to the products."""
        return self.mask is not None or self.is_causal

    def tiles(self) -> Iterator[Tile]:
        """Iterate over the queries in tiles that fit in memory."""
        height = max(1, TILE_ENTRIES // (math.prod(self.query.shape[:-2]) * self.key.shape[-2]))
        for start in range(0, self.query.shape[-2], height):
            rows = slice(start, start + height)
            products = self.query[..., rows, :] @ self.key.mT
            bias = self._bias(rows, products) if self.has_bias else None
            scores = products if bias is None else products + bias
            yield Tile(rows, products, bias, scores, scores.softmax(dim=-1).to(products.dtype))

    def mask_rows(self, x: Tensor, rows: slice) -> Tensor:
        """Select the rows of some queries from a tensor of the mask's shape."""
        return x[..., rows, :] if x.shape[-2] > 1 else x

    def by_key_head(self, x: Tensor) -> Tensor:
        """Sum over the query heads that share a key head."""
        summed: Tensor = x.unflatten(-3, (-1, self.groups)).sum(dim=-3)
        return summed

    def _bias(self, rows: slice, products: Tensor) -> Tensor:
        """The bias of some queries: 0 or the mask's value where it is open, −∞ where it is closed."""
        dtype = torch.promote_types(products.dtype, torch.float32)
        bias = torch.zeros(products.shape[-2:], dtype=dtype, device=products.device)
        if self.mask is not None:
            part = self.mask_rows(self.mask, rows)
            bias = bias.masked_fill(~part, -math.inf) if part.dtype == torch.bool else part.to(dtype)
        if self.is_causal:
            future = torch.ones(products.shape[-2:], dtype=torch.bool, device=products.device)
            bias = bias.masked_fill(future.triu(diagonal=rows.start + 1), -math.inf)
        return bias


def attention_shares(grad_output: Tensor, operation: Operation) -> GradInputs:
    """TA Eq. 6 for both products of attention: half to the values, half through the map to queries and keys."""
    return _attention_relevance(grad_output, operation, ratio, _unchanged)


def attention_balanced(grad_output: Tensor, operation: Operation) -> GradInputs:
    """TA Eq. 6 for both products of attention, with products and mask balanced per example (TA Sec. 3.2)."""
    return _attention_relevance(grad_output, operation, ratio, _unchanged, _balance)


def attention_epsilon(grad_output: Tensor, operation: Operation) -> GradInputs:
    """AttnLRP: half of the relevance to the values, half through the map to queries and keys (Prop. 3.1, 3.3)."""
    return _attention_relevance(grad_output, operation, away_from_zero, _expanded)


def attention_values(grad_output: Tensor, operation: Operation) -> GradInputs:
    """CP-LRP: the attention map is a constant, and all relevance goes to the values."""
    attention, share = FusedAttention.of(operation), away_from_zero(grad_output, operation.output.detach())
    to_value = torch.zeros_like(attention.value)
    for tile in attention.tiles():
        to_value += tile.weights.mT @ share[..., tile.rows, :]
    return [None, None, attention.by_key_head(attention.value * to_value), *[None] * (len(operation.inputs) - 3)]


def _attention_relevance(
    relevance: Tensor,
    operation: Operation,
    quotient: Quotient,
    to_scores: Callable[[Tensor, Tile], Tensor],
    scale: Callable[[Tensor, FusedAttention, Operation], Sequence[Tensor]] | None = None,
) -> GradInputs:
    """The relevance of queries, keys, values and mask.

    `to_scores` passes the map's relevance through the softmax; `scale` returns the factors that rescale the shares of
    products and mask.
    """
    attention = FusedAttention.of(operation)
    query, key, value, mask = attention.query, attention.key, attention.value, attention.mask
    share = quotient(relevance, operation.output.detach())
    scales = (1.0, 1.0) if scale is None or not attention.has_bias else scale(share, attention, operation)
    to_query, to_key, to_value = (torch.zeros_like(x) for x in (query, key, value))
    in_graph = any(x.requires_grad for x in operation.inputs[3:])
    to_mask = torch.zeros_like(mask) if mask is not None and in_graph else None
    for tile in attention.tiles():
        to_value += tile.weights.mT @ share[..., tile.rows, :] / 2
        to_products = to_scores(_to_map(share, attention, tile), tile)
        if tile.bias is not None:  # the bias has its share
            factor = quotient(to_products, tile.scores)
            to_products = tile.products * factor * scales[0]
            if to_mask is not None:
                part = attention.mask_rows(to_mask, tile.rows)
                part += (tile.open_bias * factor * scales[1]).sum_to_size(part.shape)
        factor = quotient(to_products.to(query.dtype), tile.products) / 2
        to_query[..., tile.rows, :] = factor @ key
        to_key += factor.mT @ query[..., tile.rows, :]
    shares = [query * to_query, *(attention.by_key_head(x) for x in (key * to_key, value * to_value))]
    return [*shares, *[to_mask] * (len(operation.inputs) - 3)]


def _balance(share: Tensor, attention: FusedAttention, operation: Operation) -> Sequence[Tensor]:
    """The factors that balance products and mask per example, from sums over the whole map in a separate pass."""
    totals = [torch.zeros((), dtype=share.dtype, device=share.device)] * 3
    for tile in attention.tiles():
        to_scores = _to_map(share, attention, tile)
        factor = ratio(to_scores, tile.scores)
        parts = (to_scores, factor * tile.products, factor * tile.open_bias)
        totals = [total + operation.per_example(part) for total, part in zip(totals, parts, strict=True)]
    return balance(totals[0], totals[1:])


def _to_map(share: Tensor, attention: FusedAttention, tile: Tile) -> Tensor:
    """The relevance of some rows of the map, given the relevance per unit of its output, `share`."""
    return tile.weights * (share[..., tile.rows, :] @ attention.value.mT) / 2


def _unchanged(to_map: Tensor, tile: Tile) -> Tensor:
    """Pass the relevance through the softmax unchanged."""
    return to_map


def _expanded(to_map: Tensor, tile: Tile) -> Tensor:
    """AttnLRP Prop. 3.1: expand the softmax at its scores; masked entries get 0."""
    to_scores = tile.scores * (to_map - tile.weights * to_map.sum(dim=-1, keepdim=True))
    return to_scores.masked_fill(tile.scores == -math.inf, 0.0)

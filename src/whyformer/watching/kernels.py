"""PyTorch's attention operations, written out to expose their maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from whyformer.axes import AttentionMap, Positions, Values
from whyformer.errors import UnsupportedModel
from whyformer.watching.mixing import repeat_examples, version_of

# The most entries of an example's map that is kept for its gradient; a larger one is recomputed on access.
KEPT = 2**24


def attention_map(
    query: Tensor,
    key: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    first: int = 0,
) -> AttentionMap:
    """softmax(q kᵀ · scale + mask), with the arguments of `F.scaled_dot_product_attention`.

    `first` is the index of the first query if only some are given, for `is_causal`. A query with all keys masked
    attends to nothing, as in the fused kernels. Its scores are made finite before the softmax: a NaN there would reach
    every gradient of the example.
    """
    scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.transpose(-2, -1)
    if is_causal:
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril(diagonal=first)
        attn_mask = causal if attn_mask is None else _both(attn_mask, causal)
    if attn_mask is None:
        weights = scores.softmax(dim=-1)  # accumulates in float32 in any dtype
    else:
        opened, blind = _opened(attn_mask)
        additive = _additive(opened, torch.promote_types(scores.dtype, torch.float32))
        weights = (scores + additive).softmax(dim=-1)
        weights = weights if blind is None else weights.masked_fill(blind, 0.0)
    return _dropped(weights, dropout_p).to(query.dtype)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[AttentionMap, Values]:
    """The map of `F.scaled_dot_product_attention`, and the values it mixes, one value head per query head."""
    if enable_gqa:
        key, value = (_by_query_head(x, query) for x in (key, value))
    return attention_map(query, key, attn_mask, dropout_p, is_causal, scale), value


@dataclass(frozen=True)
class Attention:
    """The arguments of a call of `F.scaled_dot_product_attention`. Calling it computes their map, each time again.

    A map of 12 heads over 4,096 tokens takes 400 MB in half precision, its queries, keys and values 19.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False
    first: int = 0  # the index of its first query, for part of a call
    version: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", self._version())

    def __call__(self) -> AttentionMap:
        self._check_unchanged()
        key = _by_query_head(self.key, self.query) if self.enable_gqa else self.key
        return attention_map(self.query, key, self.attn_mask, self.dropout_p, self.is_causal, self.scale, self.first)

    def pick(self, rows: slice | Positions) -> Attention:
        """Select queries: a slice, or positions for each example."""
        self._check_unchanged()
        mask = self.attn_mask
        if isinstance(rows, slice):
            has_rows = mask is not None and mask.dim() > 1 and mask.shape[-2] > 1
            mask = mask[..., rows, :] if has_rows and mask is not None else mask
            return replace(self, query=self.query[:, :, rows], attn_mask=mask, first=self.first + (rows.start or 0))
        index = rows[:, None, :, None]
        if mask is not None and mask.dim() > 1 and mask.shape[-2] > 1:
            mask = mask.expand(len(rows), *mask.shape[1:]) if mask.dim() == 4 else mask[None, None]
            mask = mask.expand(len(rows), *mask.shape[1:]).take_along_dim(index, dim=-2)
        if self.is_causal:
            kept = torch.arange(self.key.shape[-2], device=rows.device) <= self.first + index
            mask = kept if mask is None else _both(mask, kept)
        query = self.query.take_along_dim(index, dim=-2)
        return replace(self, query=query, attn_mask=mask, is_causal=False, first=0)

    def repeat(self, times: int) -> Attention:
        """Repeat the examples, without a copy if there is a single one."""
        self._check_unchanged()
        query, key, value = (repeat_examples(x, times) for x in (self.query, self.key, self.value))
        mask = self.attn_mask
        if mask is not None and mask.dim() == 4 and len(mask) > 1:
            mask = repeat_examples(mask, times)
        return replace(self, query=query, key=key, value=value, attn_mask=mask)

    @property
    def shape(self) -> torch.Size:
        """The shape of its map."""
        return torch.Size((*self.query.shape[:-1], self.key.shape[-2]))

    @property
    def can_be_repeated(self) -> bool:
        """Whether its map can be recomputed, as [batch, head, query, key]: not after dropout."""
        return self.query.dim() == 4 and len(self.key) == len(self.query) and not self.dropout_p

    @property
    def dtype(self) -> torch.dtype:
        return self.query.dtype

    @property
    def device(self) -> torch.device:
        return self.query.device

    def mixed(self) -> Values:
        """The values mixed by the fused kernels.

        Kernels disagree on a query with all keys masked, above all in the backward pass. So its keys are opened, and
        its result is set to 0.
        """
        mask, blind = (None, None) if self.attn_mask is None else _opened(self.attn_mask)
        arguments = (self.query, self.key, self.value, mask, self.dropout_p, self.is_causal)
        mixed = F.scaled_dot_product_attention(*arguments, scale=self.scale, enable_gqa=self.enable_gqa)
        return mixed if blind is None else mixed.masked_fill(blind, 0.0)

    def with_own_keys(self) -> Attention:
        """Repeat keys and values for every query head: PyTorch has no fused kernel for shared ones in float32."""
        if not self.enable_gqa:
            return self
        key, value = (_by_query_head(x, self.query) for x in (self.key, self.value))
        return replace(self, key=key, value=value, enable_gqa=False)

    def gradient(self, of_mixed: Values) -> AttentionMap:
        """The gradient of its map, given that of the mixed values."""
        self._check_unchanged()
        value = _by_query_head(self.value, self.query) if self.enable_gqa else self.value
        return of_mixed @ value.mT.to(of_mixed)

    def detached(self) -> Attention:
        """Detach the tensors of the call."""
        query, key, value = (x.detach() for x in (self.query, self.key, self.value))
        mask = None if self.attn_mask is None else self.attn_mask.detach()
        return replace(self, query=query, key=key, value=value, attn_mask=mask)

    def _version(self) -> int:
        return version_of((self.query, self.key, self.value, self.attn_mask))

    def _check_unchanged(self) -> None:
        if self._version() != self.version:
            raise UnsupportedModel(
                "The model changes the inputs of its attention in place: the attention map cannot be computed."
            )


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """`F.multi_head_attention_forward`, written out in operations that the recorder sees."""
    extended = {"bias_k": bias_k, "bias_v": bias_v, "static_k": static_k, "static_v": static_v}
    extra_keys = [name for name, tensor in extended.items() if tensor is not None] + ["add_zero_attn"] * add_zero_attn
    if extra_keys:
        names = ", ".join(extra_keys)
        raise UnsupportedModel(f"nn.MultiheadAttention with {names} adds keys that are not input tokens.")
    is_batched = query.dim() == 3
    if not is_batched:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    weights: Sequence[Any] = (q_proj_weight, k_proj_weight, v_proj_weight)
    if in_proj_weight is not None and not use_separate_proj_weight:
        weights = in_proj_weight.chunk(3)
    biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = (
        F.linear(x, weight, bias).unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3)
        for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
    )

    mask = _packed_mask(q, k, attn_mask, key_padding_mask, is_causal=is_causal)
    dropout_p = dropout_p if training else 0.0
    if need_weights:
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        attention = _dropped(F.softmax(scores if mask is None else scores + mask, dim=-1), dropout_p)
        mixed = torch.matmul(attention, v)
    else:
        attention, mixed = None, F.scaled_dot_product_attention(q, k, v, mask, dropout_p)
    output = F.linear(mixed.permute(2, 0, 1, 3).flatten(-2), out_proj_weight, out_proj_bias)
    if attention is not None and average_attn_weights:
        attention = attention.mean(dim=1)
    if not is_batched:
        output, attention = output.squeeze(1), None if attention is None else attention.squeeze(0)
    return output, attention


def _packed_mask(
    q: Tensor, k: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, *, is_causal: bool
) -> Tensor | None:
    """Combine the masks of nn.MultiheadAttention into one that is added to the scores; None if all keys are open."""
    batch, heads, queries, _ = q.shape
    keys = k.shape[2]
    mask = None if attn_mask is None else _additive(_kept(attn_mask), q.dtype)
    if mask is not None and mask.dim() == 3:
        mask = mask.view(batch, heads, queries, keys)
    if key_padding_mask is not None:
        padding = _additive(_kept(key_padding_mask), q.dtype).view(batch, 1, 1, keys)
        mask = padding if mask is None else mask + padding
    if is_causal and mask is None:
        mask = _additive(torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(), q.dtype)
    return mask


def _by_query_head(x: Tensor, query: Tensor) -> Tensor:
    return x.repeat_interleave(query.shape[-3] // x.shape[-3], dim=-3)


def _dropped(weights: Tensor, dropout_p: float) -> Tensor:
    return F.dropout(weights, dropout_p) if dropout_p else weights


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -math.inf)


def _opened(mask: Tensor) -> tuple[Tensor, Tensor | None]:
    """Open all keys to queries that have every key masked; also return which queries these are, None without any.

    Whether there are any is only checked on a CPU, where it is cheaper than filling a map; on a GPU it would
    synchronise.
    """
    is_boolean = mask.dtype == torch.bool
    blind = ~mask.any(dim=-1, keepdim=True) if is_boolean else (mask == -math.inf).all(dim=-1, keepdim=True)
    if blind.device.type == "cpu" and not blind.any():
        return mask, None
    return mask | blind if is_boolean else mask.masked_fill(blind, 0.0), blind


def _kept(mask: Tensor) -> Tensor:
    """Invert a boolean mask: nn.MultiheadAttention marks the keys to leave out, other masks those to keep."""
    return ~mask if mask.dtype == torch.bool else mask


def _both(mask: Tensor, kept: Tensor) -> Tensor:
    return mask & kept if mask.dtype == torch.bool else mask.masked_fill(~kept, -math.inf)

"""Attention that a model runs as one call: kept as a map, folded into queries and keys, or recorded by shape only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from whyformer.axes import Values
from whyformer.watching import kernels
from whyformer.watching.deformable import SampledAttention, value_role
from whyformer.watching.facts import plain, plain_values
from whyformer.watching.folds import is_faster_on_chip
from whyformer.watching.kernels import KEPT, Attention
from whyformer.watching.operation_names import (
    Function,
)
from whyformer.watching.provenance import repeating
from whyformer.watching.roles import (
    Projection,
    Sampled,
)

if TYPE_CHECKING:
    from whyformer.watching.watcher import Watcher

# The fewest queries for which keeping an output, as large as a state, saves more than its memory is worth.
KEPT_OUTPUT = 1_024


def fused_attention(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """`F.scaled_dot_product_attention`: keep its map, fold it into queries and keys, or record its shape only."""
    args, kwargs = plain(args), plain_values(kwargs)
    if watcher.is_before_first:
        watcher.seen += 1
        return watcher.run_operation(func, args, kwargs)
    return _attention(watcher, args, kwargs)


def _attention(watcher: Watcher, args: Any, kwargs: Any) -> Tensor:
    """Run an attention call as the watcher's settings say: kept, folded, or recorded by shape only."""
    attention = Attention(*args, **kwargs)
    is_recomputed = watcher.plan.maps in ("folded", "shapes only")
    if attention.enable_gqa and is_recomputed and attention.dtype in (torch.float32, torch.float64):
        role = watcher.facts.role(attention.value)
        with watcher.unrecorded():
            attention = attention.with_own_keys()
        watcher.carry(role, attention.value, repeating(attention.value.shape))
    if watcher.plan.maps == "shapes only":
        result = _keep_output(watcher, attention)
        if result is None:
            with watcher.unrecorded():
                result = attention.mixed()
        watcher.record(attention, attention.value, result, probe=result)
        return result
    if attention.can_be_repeated and _folds(watcher, attention):
        return _folded_attention(watcher, attention)
    with watcher.unrecorded():
        weights, value = kernels.scaled_dot_product_attention(*args, **kwargs)
        if value is not attention.value:  # repeated for every query head
            watcher.carry(watcher.facts.role(attention.value), value, repeating(value.shape))
        value = for_each_head(watcher, value, weights)
        weights = watcher.with_probe(weights)
        result = torch.matmul(weights, value)
    watcher.record(weights, value, result, probe=weights)
    return result


def _folds(watcher: Watcher, attention: Attention) -> bool:
    """Whether the map of a call is not kept: by the plan, because it is too large, or because folding is faster."""
    if watcher.plan.maps != "kept":
        return watcher.plan.maps == "folded"
    return attention.shape.numel() > KEPT * watcher.batch or is_faster_on_chip(attention)


def _folded_attention(watcher: Watcher, attention: Attention) -> Tensor:
    """Attention run by the fused kernels: its map and gradient are too large to keep, and computed on access."""
    role = watcher.facts.role(attention.value)
    if isinstance(role, Projection):  # several query heads may read one value head
        role = role.moved(repeating(attention.query.shape))
    known = _known_output(watcher, attention)
    with watcher.unrecorded():
        mixed = watcher.with_probe(attention.mixed() if known is None else known)
        result = mixed.clone() if watcher.plan.graph else mixed  # the model may change it in place
    watcher.record(attention.detached(), attention.value, result, probe=mixed, value_role=role)
    return result


def packed_attention(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """`nn.MultiheadAttention`, operation by operation."""
    # Calling it here would recurse: it checks for active modes itself. Re-entering the mode records each operation.
    with watcher:
        return kernels.multi_head_attention(*args, **kwargs)


def sum_of_points(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """The sum over weighed samples of feature maps: deformable attention."""
    result = watcher.run_operation(func, args, kwargs)
    role = watcher.facts.role(args[0])
    if not isinstance(role, Sampled) or role.weights is None:
        watcher.facts.set_role(result, watcher.scores(args))
        return result
    with watcher.unrecorded():
        attention = SampledAttention.of(role, watcher.batch)
        mixed = watcher.with_probe(result.unflatten(0, (watcher.batch, -1)).mT)
        watcher.record(attention, attention.value, mixed, probe=mixed, value_role=value_role(role, watcher.batch))
        moved_back = mixed.mT.flatten(0, 1)
    watcher.carry(watcher.facts.role(mixed), moved_back)
    return moved_back


def for_each_head(watcher: Watcher, value: Any, weights: Tensor) -> Any:
    """Expand values that all heads share to one copy per head of the map; einsum names its axes itself."""
    if not isinstance(value, Tensor) or value.dim() != 4 or value.shape[1] == weights.shape[1]:
        return value
    by_head = value.expand(-1, weights.shape[1], -1, -1)
    watcher.carry(watcher.facts.role(value), by_head, lambda x: x.expand(-1, weights.shape[1], -1, -1))
    return by_head


@dataclass(frozen=True)
class KeptOutput:
    """The output of a fused attention on a CPU, and the log-sum-exp of each query's scores.

    A block that is run again for its gradient need not compute them again.
    """

    values: Values
    log_sums: Tensor
    version: int
    arguments: tuple[Any, ...]

    @classmethod
    def of(cls, call: Attention) -> KeptOutput | None:
        """Run a call and keep its output; None for a short or masked call, and where another kernel would run."""
        query, key, value = call.query, call.key, call.value
        if (
            query.shape[-2] < KEPT_OUTPUT
            or query.device.type != "cpu"
            or call.attn_mask is not None
            or call.dropout_p
            or call.enable_gqa
        ):
            return None
        how: dict[str, Any] = {"is_causal": call.is_causal, "scale": call.scale}
        if torch._fused_sdp_choice(query, key, value, **how) != torch.nn.attention.SDPBackend.FLASH_ATTENTION.value:
            return None
        values, log_sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, **how)
        return cls(values, log_sums, values._version, _arguments(call))

    def fits(self, call: Attention) -> bool:
        """Whether it is the output of a call with these shapes and options, and was not changed in place.

        The numbers are those of the same operation in a rerun of the same block: they are not compared.
        """
        return self.values._version == self.version and self.arguments == _arguments(call)


def _arguments(call: Attention) -> tuple[Any, ...]:
    """The shapes, precision and options of a call."""
    shapes = tuple(tensor.shape for tensor in (call.query, call.key, call.value))
    return *shapes, call.value.dtype, call.is_causal, call.scale, call.attn_mask is None, call.dropout_p


def rerun_attention(
    query: Tensor, key: Tensor, value: Tensor, *, kept: KeptOutput, is_causal: bool, scale: float | None
) -> Values:
    """`F.scaled_dot_product_attention` with an output that is known: only its gradient is computed."""
    mixed: Values = _RerunAttention.apply(query, key, value, kept, is_causal, scale)
    return mixed


class _RerunAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, kept: KeptOutput, is_causal: bool, scale: float | None
    ) -> Tensor:
        ctx.save_for_backward(query, key, value)
        ctx.kept, ctx.how = kept, {"dropout_p": 0.0, "is_causal": is_causal, "scale": scale}
        return kept.values.detach()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Any:
        arguments = (grad_output, *ctx.saved_tensors, ctx.kept.values, ctx.kept.log_sums)
        gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(*arguments, **ctx.how)
        return *gradients, None, None, None


def _keep_output(watcher: Watcher, attention: Attention) -> Values | None:
    """Run attention of a pass without a graph and keep its output for the pass with one, where that is cheaper."""
    if watcher.outputs is None or torch.is_grad_enabled():
        return None
    kept = KeptOutput.of(attention)
    if kept is None:
        return None
    watcher.outputs[watcher.seen] = kept
    return kept.values


def _known_output(watcher: Watcher, attention: Attention) -> Values | None:
    """The output of attention that a former pass has kept, with its gradient."""
    kept = None if watcher.outputs is None else watcher.outputs.get(watcher.first + watcher.seen)
    if kept is None or not kept.fits(attention):
        return None
    how = {"kept": kept, "is_causal": attention.is_causal, "scale": attention.scale}
    values: Values = watcher.run_operation(rerun_attention, (attention.query, attention.key, attention.value), how)
    return values

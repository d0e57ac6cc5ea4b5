"""Handlers of the operations of a forward pass, one function each, looked up by the operation's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from whyformer.models.weights import module_here, plain_weight
from whyformer.watching import kernels
from whyformer.watching.deformable import SAMPLING, SampledAttention, sampled, value_role
from whyformer.watching.determinism import drawn
from whyformer.watching.folds import is_faster_on_chip
from whyformer.watching.kernels import KEPT, Attention
from whyformer.watching.operation_names import COPYING, KEEPING, MOVING, PUTTING, Function
from whyformer.watching.provenance import biased, mixes, moved, normed, projected, repeating, role_of_all, scaled
from whyformer.watching.roles import (
    Addend,
    Branch,
    Mixed,
    Projection,
    Role,
    Sampled,
    Scores,
    Spread,
    Transposed,
    Weights,
    Written,
    may_be_state,
    with_adapter,
)

if TYPE_CHECKING:
    from whyformer.watching.watcher import Watcher


def plain(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Detach the parameters among the arguments: their gradients are never needed."""
    changed = None
    for number, x in enumerate(args):
        kind = type(x)
        if kind is tuple or kind is list:
            constant: Any = kind(plain(tuple(x)))
        elif kind is nn.Parameter or (kind is not Tensor and isinstance(x, nn.Parameter)):
            constant = x.detach()
        else:
            continue
        changed = list(args) if changed is None else changed
        changed[number] = constant
    return args if changed is None else tuple(changed)


def plain_values(kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(kwargs, plain(tuple(kwargs.values())), strict=True)) if kwargs else kwargs


def _gradient_in_order(name: str, result: Any) -> Any:
    """Make the gradient of a batch norm's output contiguous.

    For a batch of one, PyTorch's backward pass of batch norm on a CPU misreads a gradient that is a transposed view.
    """
    if name == "batch_norm" and result.requires_grad:
        result.register_hook(lambda gradient: None if gradient is None else gradient.contiguous())
    return result


def _run(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """Run an operation with parameters as constants."""
    return watcher.run_operation(func, plain(args), plain_values(kwargs))


def parameter_view(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """An attribute of a tensor; views of a parameter, such as weight.T, are detached like the parameter."""
    value = watcher.run_operation(func, args, kwargs)
    if isinstance(value, Tensor) and isinstance(args[0], nn.Parameter):
        value = value.detach()
        watcher.facts.set_role(value, Transposed.of(args[0], value))
    return value


def other_operation(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """Any other operation: facts about its first tensor are kept if it only moves entries."""
    name = getattr(func, "__name__", "")
    constants = plain(args)
    role = watcher.facts.role(args[0]) if args else None
    original = watcher.facts.original(args[0]) if watcher.states and args and name in COPYING else None
    result = _gradient_in_order(name, watcher.run_operation(func, constants, plain_values(kwargs)))
    if name in KEEPING:
        watcher.carry(role, result)
    elif name in MOVING or name in PUTTING:
        watcher.carry(moved(role, name, args), result, lambda x: func(x, *constants[1:], **kwargs))
    elif name == "cat" and (role := role_of_all(constants, kwargs, watcher.facts.role)) is not None:
        watcher.carry(role, result)
    elif name == "rsqrt" or (name == "pow" and type(constants[1]) is float and constants[1] < 0):
        watcher.facts.set_role(result, Spread())
    else:
        role = sampled(name, args, watcher.facts.role) if name in SAMPLING else None
        watcher.facts.set_role(result, Scores() if name == "baddbmm" else role or watcher.scores(args))
    if original is not None and original is not result:
        watcher.facts.note(result, copy_of=original)
    return result


def softmax(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A softmax over keys, which turns scores into attention weights."""
    result = watcher.run_operation(func, plain(args), kwargs)
    over_keys = (args[1] if len(args) > 1 else kwargs.get("dim")) in (-1, result.dim() - 1)
    is_map = over_keys and isinstance(watcher.facts.role(args[0]), Scores)
    watcher.facts.set_role(result, Weights() if is_map else None)
    return result


def product(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A matrix product: of weights and values, an explicit attention; of two activations, scores."""
    at = 1 if func.__name__ == "einsum" else 0
    args = (*args[:1], *args[1]) if at and type(args[1]) in (tuple, list) else args  # both spellings of einsum
    operands = list(plain(args))
    if len(operands) < at + 2 or not isinstance(watcher.facts.role(operands[at]), Weights) or not mixes(operands):
        result = watcher.run_operation(func, tuple(operands), plain_values(kwargs))
        factor = watcher.facts.role(args[1]) if len(args) > 1 else None
        if isinstance(factor, Transposed) and at == 0:  # a linear layer as Falcon writes it
            _project(watcher, args[0], factor.parameter, plain_weight(factor.parameter), result)
        else:
            is_linear = any(isinstance(x, nn.Parameter) for x in args)
            watcher.facts.set_role(result, None if is_linear else Scores())
        return result
    with watcher.unrecorded():
        operands[at] = watcher.with_probe(operands[at])
        operands[at + 1] = operands[at + 1] if at else _for_each_head(watcher, operands[1], operands[0])
        result = func(*operands, **kwargs)
    watcher.record(operands[at], operands[at + 1], result, probe=operands[at])
    return result


def fused_attention(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """`F.scaled_dot_product_attention`: keep its map, fold it into queries and keys, or record its shape only."""
    args, kwargs = plain(args), plain_values(kwargs)
    if watcher.seen < watcher.start:
        watcher.seen += 1
        return watcher.run_operation(func, args, kwargs)
    with watcher.unrecorded():
        return _attention(watcher, args, kwargs)


def _attention(watcher: Watcher, args: Any, kwargs: Any) -> Tensor:
    """Run an attention call as the watcher's settings say: kept, folded, or recorded by shape only."""
    attention = Attention(*args, **kwargs)
    if (watcher.fold or watcher.shapes_only) and attention.dtype in (torch.float32, torch.float64):
        attention, role = attention.with_own_keys(), watcher.facts.role(attention.value)
        watcher.carry(role, attention.value, repeating(attention.value.shape))
    if watcher.shapes_only:
        result = attention.mixed()
        watcher.record(attention, attention.value, result, probe=result)
        return result
    is_kept = attention.shape.numel() <= KEPT * watcher.batch and not is_faster_on_chip(attention)
    if attention.can_be_repeated and not watcher.keep_maps and (watcher.fold or not is_kept):
        return _folded_attention(watcher, attention)
    weights, value = kernels.scaled_dot_product_attention(*args, **kwargs)
    watcher.carry(watcher.facts.role(attention.value), value, repeating(value.shape))
    value = _for_each_head(watcher, value, weights)
    weights = watcher.with_probe(weights)
    result = torch.matmul(weights, value)
    watcher.record(weights, value, result, probe=weights)
    return result


def sum_of_points(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """The sum over weighed samples of feature maps: deformable attention."""
    result, role = _run(watcher, func, args, kwargs), watcher.facts.role(args[0])
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


def _for_each_head(watcher: Watcher, value: Any, weights: Tensor) -> Any:
    """Expand values that all heads share to one copy per head of the map; einsum names its axes itself."""
    if not isinstance(value, Tensor) or value.dim() != 4 or value.shape[1] == weights.shape[1]:
        return value
    by_head = value.expand(-1, weights.shape[1], -1, -1)
    watcher.carry(watcher.facts.role(value), by_head, lambda x: x.expand(-1, weights.shape[1], -1, -1))
    return by_head


def _folded_attention(watcher: Watcher, attention: Attention) -> Tensor:
    """Attention run by the fused kernels: its map and gradient are too large to keep, and computed on access."""
    role = watcher.facts.role(attention.value)
    if isinstance(role, Projection):  # several query heads may read one value head
        role = replace(role, moves=(*role.moves, repeating(attention.query.shape)))
    mixed = watcher.with_probe(attention.mixed())
    result = mixed.clone() if watcher.graph else mixed  # the model may change it in place
    watcher.record(attention.detached(), attention.value, result, probe=mixed, value_role=role)
    return result


def packed_attention(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """`nn.MultiheadAttention`, operation by operation."""
    # Calling it here would recurse: it checks for active modes itself. Re-entering the mode records each operation.
    with watcher:
        return kernels.multi_head_attention(*args, **kwargs)


def linear(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A linear layer: W_o if it reads mixed values, else perhaps W_v."""
    result = _run(watcher, func, args, kwargs)
    is_transposed = func.__name__ == "addmm"  # GPT-2's Conv1D: bias, input, transposed weight
    source, parameter = args[1:3] if is_transposed else (*args, *kwargs.values())[:2]
    weight = plain_weight(parameter)
    _project(watcher, source, parameter, weight.t() if is_transposed else weight, result)
    return result


def _project(watcher: Watcher, source: Tensor, parameter: Tensor, weight: Tensor, result: Any) -> None:
    """Set the role of a linear projection of `source`."""
    role = watcher.facts.role(source)
    if isinstance(role, Mixed):
        is_named = type(parameter) is nn.Parameter and not watcher.lends  # otherwise its module identifies it
        output, module = result if watcher.edges else None, None if is_named else module_here()
        watcher.facts.set_role(result, projected(role, source, parameter, weight, output, module))
    elif isinstance(role, Branch):
        watcher.facts.set_role(result, replace(role, weight=weight @ role.weight))
    elif watcher.states:
        watcher.facts.set_role(
            result, Projection.of(source, role, weight, result.shape, watcher.facts.original(source))
        )


def norm(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A normalisation: of a state, of a latent, or of the output of attention."""
    result = _run(watcher, func, args, kwargs)
    if watcher.states:
        role, original, centres = (
            watcher.facts.role(args[0]),
            watcher.facts.original(args[0]),
            func.__name__ == "layer_norm",
        )
        watcher.facts.set_role(result, normed(role, args, kwargs, original, centres=centres, batch=watcher.batch))
    return result


def add(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A sum: of attention's output and the residual state, of a projection and its adapter, of scores and a mask."""
    first = args[0]
    kept = first.detach().clone() if watcher.states and func.__name__ in ("add_", "__iadd__") else first
    pairs = ((first, args[1]), (args[1], first)) if len(args) > 1 else ()
    role: Role | None = watcher.scores(args)
    sums: list[tuple[Written, Tensor]] = []  # outputs of attention, and the states they are added to
    together = with_adapter(*map(watcher.facts.role, args[:2])) if watcher.states and pairs and not kwargs else None
    if together is not None:
        role, pairs = together, ()
    for written, other in pairs if watcher.states else ():
        origin = watcher.facts.role(written)
        if isinstance(origin, Written) and isinstance(other, Tensor) and other.shape == written.shape:
            state = (kept if other is first else other).detach()
            addend = Addend(other, state, watcher.facts.original(other), watcher.facts.role(other))
            is_residual = origin.tap.add_to(origin, written, addend)
            sums += [(origin, state)] if watcher.edges and (is_residual or may_be_state(addend.role)) else []
            if is_residual:
                role = None
                break
            role = replace(origin, is_joined=True)  # by a parallel MLP or an adapter: the residual add follows
        role = role or biased(origin, written, other)
    result = _run(watcher, func, args, kwargs)
    for output, state in sums:
        output.tap.add_up(output, state, result)
    watcher.facts.set_role(result, role)
    return result


def scale(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """An elementwise product: LayerScale, a norm's weights, a mask of weights."""
    role: Role | None = watcher.scores(args) or sampled("mul", args, watcher.facts.role)
    for tensor, factor in (args[:2], args[1::-1]) if len(args) > 1 else ():
        role = scaled(watcher.facts.role(tensor), tensor, factor, watcher.facts.role(factor), watcher.batch) or role
    result = _run(watcher, func, args, kwargs)
    watcher.facts.set_role(result, role)
    return result


HANDLERS: dict[str, Callable[[Watcher, Function, Any, Any], Any]] = (
    {
        "scaled_dot_product_attention": fused_attention,
        "multi_head_attention_forward": packed_attention,
        "softmax": softmax,
        "sum": sum_of_points,
        "__get__": parameter_view,
    }
    | dict.fromkeys(["matmul", "__matmul__", "bmm", "einsum"], product)
    | dict.fromkeys(["multinomial", "randperm"], lambda _, func, args, kwargs: drawn(func, args, kwargs))
    | dict.fromkeys(["linear", "addmm"], linear)
    | dict.fromkeys(["layer_norm", "rms_norm"], norm)
    | dict.fromkeys(["add", "add_", "__add__", "__radd__", "__iadd__"], add)
    | dict.fromkeys(["mul", "mul_", "__mul__", "__rmul__", "__imul__", "multiply"], scale)
)

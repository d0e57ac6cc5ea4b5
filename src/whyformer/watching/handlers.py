"""Handlers of the operations of a forward pass, one function each, looked up by the operation's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from whyformer.models.weights import plain_weight
from whyformer.watching import kernels
from whyformer.watching.deformable import SAMPLING, SampledAttention, sampled, value_role
from whyformer.watching.determinism import drawn
from whyformer.watching.facts import plain, plain_values
from whyformer.watching.folds import is_faster_on_chip
from whyformer.watching.kernels import KEPT, Attention
from whyformer.watching.operation_names import (
    COPYING,
    KEEPING,
    MOVING,
    PUTTING,
    Function,
)
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


def _run(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """Run an operation with parameters as constants."""
    return watcher.run_operation(func, plain(args), plain_values(kwargs) if kwargs else kwargs)


def parameter_view(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """An attribute that is a tensor; views of a parameter, such as weight.T, are detached like the parameter."""
    value = watcher.run_operation(func, args, kwargs)
    if isinstance(value, Tensor) and isinstance(args[0], nn.Parameter):
        value = value.detach()
        watcher.facts.set_role(value, Transposed.of(args[0], value))
    return value


def keep(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """An operation that leaves every entry in its place."""
    original, role = _original(watcher, func, args), watcher.facts.role(args[0]) if args else None
    result = _run(watcher, func, args, kwargs)
    if role is not None:
        watcher.carry(role, result)
    if original is not None and original is not result:
        watcher.facts.note(result, copy_of=original)
    return result


def move(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """An operation that rearranges entries, moves tokens, or inserts others between them."""
    original, role = _original(watcher, func, args), watcher.facts.role(args[0]) if args else None
    constants = plain(args)
    result = watcher.run_operation(func, constants, plain_values(kwargs) if kwargs else kwargs)
    if role is not None:
        watcher.carry(moved(role, func.__name__, args), result, lambda x: func(x, *constants[1:], **kwargs))
    if original is not None and original is not result:
        watcher.facts.note(result, copy_of=original)
    return result


def concatenate(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A concatenation: of attention run in parts, or of samples."""
    result = _run(watcher, func, args, kwargs)
    role = role_of_all(args, kwargs, watcher.facts.role) if func.__name__ == "cat" else None
    role = role or sampled(func.__name__, args, watcher.facts.role)
    watcher.carry(role or watcher.scores(args), result)
    return result


def spread(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A negative power: the reciprocal spread of a norm written in Python."""
    result = _run(watcher, func, args, kwargs)
    is_spread = func.__name__ == "rsqrt" or (len(args) > 1 and type(args[1]) is float and args[1] < 0)
    watcher.facts.set_role(result, Spread() if is_spread else watcher.scores(args))
    return result


def biased_product(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A product of two activations plus a bias: scores, as BLOOM writes them."""
    result = _run(watcher, func, args, kwargs)
    watcher.facts.set_role(result, Scores())
    return result


def batch_norm(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A batch norm, the gradient of whose output is made contiguous.

    For a batch of one, PyTorch's backward pass of batch norm on a CPU misreads a gradient that is a transposed view.
    """
    result = other_operation(watcher, func, args, kwargs)
    if result.requires_grad:
        result.register_hook(lambda gradient: None if gradient is None else gradient.contiguous())
    return result


def other_operation(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """Any other operation: a bias, a mask or a scale of scores leaves scores."""
    result = _run(watcher, func, args, kwargs)
    watcher.facts.set_role(result, watcher.scores(args))
    return result


def _original(watcher: Watcher, func: Function, args: Any) -> Tensor | None:
    """The tensor that the result of an operation is a copy of; None if it is not one, or nobody asks."""
    return watcher.facts.original(args[0]) if watcher.plan.states and args and func.__name__ in COPYING else None


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
            _project(watcher, args[0], factor.parameter, result)
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
    if watcher.is_before_first:
        watcher.seen += 1
        return watcher.run_operation(func, args, kwargs)
    return _attention(watcher, args, kwargs)


def _attention(watcher: Watcher, args: Any, kwargs: Any) -> Tensor:
    """Run an attention call as the watcher's settings say: kept, folded, or recorded by shape only."""
    attention = Attention(*args, **kwargs)
    if watcher.plan.maps in ("folded", "shapes only") and attention.dtype in (torch.float32, torch.float64):
        role = watcher.facts.role(attention.value)
        with watcher.unrecorded():
            attention = attention.with_own_keys()
        watcher.carry(role, attention.value, repeating(attention.value.shape))
    if watcher.plan.maps == "shapes only":
        with watcher.unrecorded():
            result = attention.mixed()
        watcher.record(attention, attention.value, result, probe=result)
        return result
    is_kept = attention.shape.numel() <= KEPT * watcher.batch and not is_faster_on_chip(attention)
    folds = watcher.plan.maps == "folded" or (watcher.plan.maps == "kept" and not is_kept)
    if attention.can_be_repeated and folds:
        return _folded_attention(watcher, attention)
    with watcher.unrecorded():
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
    with watcher.unrecorded():
        mixed = watcher.with_probe(attention.mixed())
        result = mixed.clone() if watcher.plan.graph else mixed  # the model may change it in place
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
    _project(watcher, source, parameter, result, is_transposed=is_transposed)
    return result


def _project(watcher: Watcher, source: Tensor, parameter: Tensor, result: Any, *, is_transposed: bool = False) -> None:
    """Set the role of a linear projection of `source`."""
    role = watcher.facts.role(source)
    if not (watcher.plan.states or isinstance(role, (Mixed, Branch))):
        return
    weight = plain_weight(parameter)
    weight = weight.t() if is_transposed else weight
    if isinstance(role, Mixed):
        is_named = type(parameter) is nn.Parameter and not watcher.lends  # otherwise its module identifies it
        output, module = result if watcher.plan.edges else None, None if is_named else watcher.modules[-1]
        watcher.facts.set_role(result, projected(role, source, parameter, weight, output, module))
    elif isinstance(role, Branch):
        watcher.facts.set_role(result, replace(role, weight=weight @ role.weight))
    else:
        watcher.facts.set_role(
            result, Projection.of(source, role, weight, result.shape, watcher.facts.original(source))
        )


def norm(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A normalisation: of a state, of a latent, or of the output of attention."""
    result = _run(watcher, func, args, kwargs)
    if watcher.plan.states:
        role, original = watcher.facts.role(args[0]), watcher.facts.original(args[0])
        centres = func.__name__ == "layer_norm"
        watcher.facts.set_role(result, normed(role, args, kwargs, original, centres=centres, batch=watcher.batch))
    return result


def add(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A sum: of attention's output and the residual state, of a projection and its adapter, of scores and a mask."""
    branches = [role for role in map(watcher.facts.role, args[:2]) if isinstance(role, Written) and role.is_branch]
    if len(branches) == 2 and branches[0].tap is not branches[1].tap and args[0].shape == args[1].shape:
        result = _run(watcher, func, args, kwargs)
        watcher.facts.set_role(result, branches[0].join(branches[1]))
        return result
    if not watcher.plan.states or len(args) < 2:
        return other_operation(watcher, func, args, kwargs)
    first = args[0]
    kept = first.detach().clone() if func.__name__ in ("add_", "__iadd__") else first
    pairs: tuple[tuple[Any, Any], ...] = ((first, args[1]), (args[1], first))
    role: Role | None = watcher.scores(args)
    sums: list[tuple[Written, Tensor]] = []  # outputs of attention, and the states they are added to
    together = None if kwargs else with_adapter(*map(watcher.facts.role, args[:2]))
    if together is not None:
        role, pairs = together, ()
    for written, other in pairs:
        origin = watcher.facts.role(written)
        if isinstance(origin, Written) and isinstance(other, Tensor) and other.shape == written.shape:
            state = (kept if other is first else other).detach()
            addend = Addend(other, state, watcher.facts.original(other), watcher.facts.role(other))
            decisions = [branch.tap.add_to(branch, written, addend) for branch in origin.branches]
            is_residual = all(decisions)
            if watcher.plan.edges and (is_residual or may_be_state(addend.role)):
                sums += [(branch, state) for branch in origin.branches]
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


Handler = Callable[["Watcher", Function, Any, Any], Any]
HANDLERS: dict[str, Handler] = (
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
    | dict.fromkeys(KEEPING, keep)
    | dict.fromkeys([*MOVING, *PUTTING], move)
    | dict.fromkeys(SAMPLING, concatenate)
    | dict.fromkeys(["rsqrt", "pow"], spread)
    | {"baddbmm": biased_product, "batch_norm": batch_norm}
    | dict.fromkeys(["add", "add_", "__add__", "__radd__", "__iadd__"], add)
    | dict.fromkeys(["mul", "mul_", "__mul__", "__rmul__", "__imul__", "multiply"], scale)
)

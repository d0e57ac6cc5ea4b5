"""What each operation of a forward pass says of attention: a function each, looked up by the operation's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from whyformer.models.weights import module_here, plain_weight
from whyformer.propagation.kinds import COPYING, KEEPING, MOVING
from whyformer.tracing import kernels
from whyformer.tracing.draws import drawn
from whyformer.tracing.frozen import Function, gradient_in_order, plain, plain_values
from whyformer.tracing.fused import is_faster_on_chip
from whyformer.tracing.kernels import KEPT, Attention
from whyformer.tracing.moves import PUTTING, mixes, moved, projected, repeating, tag_of_all
from whyformer.tracing.sampling import SAMPLING, SampledAttention, sampled, value_tag
from whyformer.tracing.scales import biased, normed, scaled
from whyformer.tracing.tags import (
    Addend,
    Branch,
    Mixed,
    Projection,
    Sampled,
    Scores,
    Spread,
    Tag,
    Transposed,
    Weights,
    Written,
    may_be_state,
    with_adapter,
)

if TYPE_CHECKING:
    from whyformer.tracing.recorder import Recorder


def parameter_view(watcher: Recorder, func: Function, args: Any, kwargs: Any) -> Any:
    """An attribute of a tensor; of a parameter, weight.T is as little in the graph as the weight."""
    value = func(*args, **kwargs)
    if isinstance(value, Tensor) and isinstance(args[0], nn.Parameter):
        value = value.detach()
        watcher.set(value, Transposed.of(args[0], value))
    return value


def other_operation(watcher: Recorder, func: Function, args: Any, kwargs: Any) -> Any:
    """Any other operation: what is known of its first tensor stays known where it only moves entries."""
    name = getattr(func, "__name__", "")
    constants = plain(args)
    tag = watcher.tag(args[0]) if args else None
    original = watcher.original(args[0]) if watcher.states and args and name in COPYING else None
    result = gradient_in_order(name, func(*constants, **plain_values(kwargs)))
    if name in KEEPING:
        watcher.carry(tag, result)
    elif name in MOVING or name in PUTTING:
        watcher.carry(moved(tag, name, args), result, lambda x: func(x, *constants[1:], **kwargs))
    elif name == "cat" and (tag := tag_of_all(constants, kwargs, watcher.tag)) is not None:
        watcher.carry(tag, result)
    elif name == "rsqrt" or (name == "pow" and type(constants[1]) is float and constants[1] < 0):
        watcher.set(result, Spread())
    else:
        tag = sampled(name, args, watcher.tag) if name in SAMPLING else None
        watcher.set(result, Scores() if name == "baddbmm" else tag or watcher.scores(args))
    if original is not None and original is not result:
        watcher.set_original(result, original)
    return result


def softmax(watcher: Recorder, func: Function, args: Any, kwargs: Any) -> Any:
    """A softmax over keys makes scores the weights of an attention."""
    result = func(*plain(args), **kwargs)
    over_keys = (args[1] if len(args) > 1 else kwargs.get("dim")) in (-1, result.dim() - 1)
    watcher.set(result, Weights() if over_keys and isinstance(watcher.tag(args[0]), Scores) else None)
    return result


def product(watcher: Recorder, func: Function, args: Any, kwargs: Any) -> Any:
    """A matrix product: of weights and values, an attention written out; of two activations, scores."""
    at = 1 if func.__name__ == "einsum" else 0
    args = (*args[:1], *args[1]) if at and type(args[1]) in (tuple, list) else args  # both spellings of einsum
    operands = list(plain(args))
    if len(operands) < at + 2 or not isinstance(watcher.tag(operands[at]), Weights) or not mixes(operands):
        result = func(*operands, **plain_values(kwargs))
        factor = watcher.tag(args[1]) if len(args) > 1 else None
        if isinstance(factor, Transposed) and at == 0:  # a linear layer, as Falcon writes it
            _project(watcher, args[0], factor.parameter, plain_weight(factor.parameter), result)
        else:
            watcher.set(result, None if any(isinstance(x, nn.Parameter) for x in args) else Scores())
        return result
    operands[at] = watcher.with_probe(operands[at])
    operands[at + 1] = operands[at + 1] if at else _for_each_head(watcher, operands[1], operands[0])
    result = func(*operands, **kwargs)
    watcher.record(operands[at], operands[at + 1], result, probe=operands[at])
    return result


def fused_attention(watcher: Recorder, func: Function, args: Any, kwargs: Any) -> Any:
    """`F.scaled_dot_product_attention`: its map kept, folded into queries and keys, or only its shape."""
    args, kwargs = plain(args), plain_values(kwargs)
    if watcher.seen < watcher.start:
        watcher.seen += 1
        return func(*args, **kwargs)
    attention = Attention(*args, **kwargs)
    if (watcher.fold or watcher.shapes_only) and attention.dtype in (torch.float32, torch.float64):
        attention, tag = attention.with_own_keys(), watcher.tag(attention.value)
        watcher.carry(tag, attention.value, repeating(attention.value.shape))
    if watcher.shapes_only:
        result = attention.mixed()
        watcher.record(attention, attention.value, result, probe=result)
        return result
    is_kept = attention.shape.numel() <= KEPT * watcher.batch and not is_faster_on_chip(attention)
    if attention.can_be_repeated and not watcher.keep_maps and (watcher.fold or not is_kept):
        return _run_fused(watcher, attention)
    weights, value = kernels.scaled_dot_product_attention(*args, **kwargs)
    watcher.carry(watcher.tag(attention.value), value, repeating(value.shape))
    value = _for_each_head(watcher, value, weights)
    weights = watcher.with_probe(weights)
    result = weights @ value
    watcher.record(weights, value, result, probe=weights)
    return result


def sum_of_points(watcher: Recorder, func: Function, args: Any, kwargs: Any) -> Any:
    """The sum over weighed samples of feature maps: deformable attention."""
    result, tag = func(*plain(args), **plain_values(kwargs)), watcher.tag(args[0])
    if not isinstance(tag, Sampled) or tag.weights is None:
        watcher.set(result, watcher.scores(args))
        return result
    attention = SampledAttention.of(tag, watcher.batch)
    mixed = watcher.with_probe(result.unflatten(0, (watcher.batch, -1)).mT)
    watcher.record(attention, attention.value, mixed, probe=mixed, value_tag=value_tag(tag, watcher.batch))
    moved_back = mixed.mT.flatten(0, 1)
    watcher.carry(watcher.tag(mixed), moved_back)
    return moved_back


def _for_each_head(watcher: Recorder, value: Any, weights: Tensor) -> Any:
    """The values once for each head of the map, where all heads read the same ones; einsum names its axes."""
    if not isinstance(value, Tensor) or value.dim() != 4 or value.shape[1] == weights.shape[1]:
        return value
    by_head = value.expand(-1, weights.shape[1], -1, -1)
    watcher.carry(watcher.tag(value), by_head, lambda x: x.expand(-1, weights.shape[1], -1, -1))
    return by_head


def _run_fused(watcher: Recorder, attention: Attention) -> Tensor:
    """Attention left to the fused kernels: its map and gradient, too large to keep, are made when they are read."""
    tag = watcher.tag(attention.value)
    if isinstance(tag, Projection):  # each value head may be read by several query heads
        tag = replace(tag, moves=(*tag.moves, repeating(attention.query.shape)))
    mixed = watcher.with_probe(attention.mixed())
    result = mixed.clone() if watcher.graph else mixed  # the model may change it in place
    watcher.record(attention.detached(), attention.value, result, probe=mixed, value_tag=tag)
    return result


def packed_attention(watcher: Recorder, func: Function, args: Any, kwargs: Any) -> Any:
    """`nn.MultiheadAttention`, part by part."""
    # Calling it again would recurse: it asks for active modes itself. Re-entered, this mode sees each part of it.
    with watcher:
        return kernels.multi_head_attention(*args, **kwargs)


def linear(watcher: Recorder, func: Function, args: Any, kwargs: Any) -> Any:
    """A linear layer: W_o if it reads mixed values, else perhaps W_v."""
    result = func(*plain(args), **plain_values(kwargs))
    is_transposed = func.__name__ == "addmm"  # GPT-2's Conv1D: bias, input, transposed weight
    source, parameter = args[1:3] if is_transposed else (*args, *kwargs.values())[:2]
    weight = plain_weight(parameter)
    _project(watcher, source, parameter, weight.t() if is_transposed else weight, result)
    return result


def _project(watcher: Recorder, source: Tensor, parameter: Tensor, weight: Tensor, result: Any) -> None:
    """The result is a linear projection of the source."""
    tag = watcher.tag(source)
    if isinstance(tag, Mixed):
        is_named = type(parameter) is nn.Parameter and not watcher.lends  # else its module tells where it is
        output, module = result if watcher.edges else None, None if is_named else module_here()
        watcher.set(result, projected(tag, source, parameter, weight, output, module))
    elif isinstance(tag, Branch):
        watcher.set(result, replace(tag, weight=weight @ tag.weight))
    elif watcher.states:
        watcher.set(result, Projection.of(source, tag, weight, result.shape, watcher.original(source)))


def norm(watcher: Recorder, func: Function, args: Any, kwargs: Any) -> Any:
    """A normalisation: of a state, of a latent, or of what attention writes."""
    result = func(*plain(args), **plain_values(kwargs))
    if watcher.states:
        tag, original, centres = watcher.tag(args[0]), watcher.original(args[0]), func.__name__ == "layer_norm"
        watcher.set(result, normed(tag, args, kwargs, original, centres=centres, batch=watcher.batch))
    return result


def add(watcher: Recorder, func: Function, args: Any, kwargs: Any) -> Any:
    """A sum: of what attention writes and the residual state, of a projection and its adapter, of scores and a mask."""
    first = args[0]
    kept = first.detach().clone() if watcher.states and func.__name__ in ("add_", "__iadd__") else first
    pairs = ((first, args[1]), (args[1], first)) if len(args) > 1 else ()
    tag: Tag | None = watcher.scores(args)
    sums: list[tuple[Written, Tensor]] = []  # what attention writes here, and the state that it is added to
    together = with_adapter(*map(watcher.tag, args[:2])) if watcher.states and pairs and not kwargs else None
    if together is not None:
        tag, pairs = together, ()
    for written, other in pairs if watcher.states else ():
        origin = watcher.tag(written)
        if isinstance(origin, Written) and isinstance(other, Tensor) and other.shape == written.shape:
            state = (kept if other is first else other).detach()
            addend = Addend(other, state, watcher.original(other), watcher.tag(other))
            is_residual = origin.tap.add_to(origin, written, addend)
            sums += [(origin, state)] if watcher.edges and (is_residual or may_be_state(addend.tag)) else []
            if is_residual:
                tag = None
                break
            tag = replace(origin, is_joined=True)  # by a parallel MLP, an adapter: the residual is still to come
        tag = tag or biased(origin, written, other)
    result = func(*plain(args), **plain_values(kwargs))
    for output, state in sums:
        output.tap.add_up(output, state, result)
    watcher.set(result, tag)
    return result


def scale(watcher: Recorder, func: Function, args: Any, kwargs: Any) -> Any:
    """A product entry by entry: LayerScale, a norm's weights, a mask of weights."""
    tag: Tag | None = watcher.scores(args) or sampled("mul", args, watcher.tag)
    for tensor, factor in (args[:2], args[1::-1]) if len(args) > 1 else ():
        tag = scaled(watcher.tag(tensor), tensor, factor, watcher.tag(factor), watcher.batch) or tag
    result = func(*plain(args), **plain_values(kwargs))
    watcher.set(result, tag)
    return result


HANDLERS: dict[str, Callable[[Recorder, Function, Any, Any], Any]] = (
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

"""Handlers of the operations of a forward pass, one function each, looked up by the operation's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from whyformer.errors import UnsupportedModel
from whyformer.models.weights import plain_weight
from whyformer.watching.attention_calls import for_each_head, fused_attention, packed_attention, sum_of_points
from whyformer.watching.facts import plain
from whyformer.watching.operation_names import (
    COPYING,
    KEEPING,
    MOVING,
    PUTTING,
    Function,
    name_unless_asking,
)
from whyformer.watching.provenance import biased, centred, concatenated, mixes, moved, normed, projected, scaled
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
    two_branches,
    with_adapter,
)

if TYPE_CHECKING:
    from whyformer.watching.watcher import Watcher


def parameter_view(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """An attribute that is a tensor; views of a parameter, such as weight.T, are detached like the parameter."""
    value = func(*args, **kwargs) if watcher.rules is None else watcher.rules.run(func, args, kwargs)
    if isinstance(value, Tensor) and isinstance(args[0], nn.Parameter):
        value = value.detach()
        watcher.facts.set_role(value, Transposed.of(args[0], value))
    return value


def keep(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """An operation that leaves every entry in its place."""
    role = watcher.facts.role(args[0]) if args else None
    result = watcher.run_operation(func, args, kwargs)
    if role is not None:
        watcher.carry(role, result)
    return result


def copy(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """An operation that returns the same values, mostly in a new tensor, as some that keep or move entries do."""
    original = watcher.facts.original(args[0]) if watcher.plan.states and args else None
    result = (move if func.__name__ in MOVING else keep)(watcher, func, args, kwargs)
    if original is not None and original is not result:
        watcher.facts.note(result, copy_of=original)
    return result


def move(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """An operation that rearranges entries, moves tokens, or inserts others between them."""
    role = watcher.facts.role(args[0]) if args else None
    if role is None:
        return watcher.run_operation(func, args, kwargs)
    constants = plain(args)
    result = watcher.run_operation(func, constants, kwargs)
    if isinstance(role, (Written, Weights)) or func.__name__ in PUTTING:
        role = moved(role, func.__name__, args)
    watcher.carry(role, result, lambda x: func(x, *constants[1:], **kwargs))
    return result


def concatenate(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A concatenation: of attention run in parts, or of samples."""
    result = watcher.run_operation(func, args, kwargs)
    watcher.carry(concatenated(func.__name__, args, kwargs, watcher.facts.role) or watcher.scores(args), result)
    return result


def sample_points(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """Values sampled at points of a feature map: a part of deformable attention."""
    result = watcher.run_operation(func, args, kwargs)
    watcher.facts.set_role(result, Sampled((args[0],), (args[1].detach(),), watcher.facts.role(args[0])))
    return result


def spread(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A negative power: the reciprocal spread of a norm written in Python."""
    result = watcher.run_operation(func, args, kwargs)
    is_spread = func.__name__ == "rsqrt" or (len(args) > 1 and type(args[1]) is float and args[1] < 0)
    watcher.facts.set_role(result, Spread() if is_spread else watcher.scores(args))
    return result


def biased_product(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A product of two activations plus a bias: scores, as BLOOM writes them."""
    result = watcher.run_operation(func, args, kwargs)
    watcher.set_scores(result)
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
    result = watcher.run_operation(func, args, kwargs)
    watcher.facts.set_role(result, watcher.scores(args))
    return result


def softmax(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A softmax over keys, which turns scores into attention weights."""
    result = watcher.run_operation(func, args, kwargs)
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
        result = watcher.run_operation(func, tuple(operands), kwargs)
        factor = watcher.facts.role(args[1]) if len(args) > 1 else None
        if isinstance(factor, Transposed) and at == 0:  # a linear layer as Falcon writes it
            _project(watcher, args[0], factor.parameter, result)
        else:
            if any(isinstance(x, nn.Parameter) for x in args):  # a linear layer
                watcher.facts.set_role(result, None)
            else:
                watcher.set_scores(result)
        return result
    with watcher.unrecorded():
        operands[at] = watcher.with_probe(operands[at])
        operands[at + 1] = operands[at + 1] if at else for_each_head(watcher, operands[1], operands[0])
        result = func(*operands, **kwargs)
    watcher.record(operands[at], operands[at + 1], result, probe=operands[at])
    return result


def linear(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A linear layer: W_o if it reads mixed values, else perhaps W_v."""
    result = watcher.run_operation(func, args, kwargs)
    is_transposed = func.__name__ == "addmm"  # GPT-2's Conv1D: bias, input, transposed weight
    source, parameter = args[1:3] if is_transposed else (*args, *kwargs.values())[:2]
    _project(watcher, source, parameter, result, is_transposed=is_transposed)
    return result


def _project(watcher: Watcher, source: Tensor, parameter: Tensor, result: Any, *, is_transposed: bool = False) -> None:
    """Set the role of a linear projection of `source`."""
    role = watcher.facts.role(source)
    if not watcher.plan.states and not isinstance(role, (Mixed, Branch)):
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
    result = watcher.run_operation(func, args, kwargs)
    if watcher.plan.states:
        role, original = watcher.facts.role(args[0]), watcher.facts.original(args[0])
        centres = func.__name__ == "layer_norm"
        watcher.facts.set_role(result, normed(role, args, kwargs, original, centres=centres, batch=watcher.batch))
    return result


def add(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A sum: of attention's output and the residual state, of a projection and its adapter, of scores and a mask."""
    if len(args) < 2:
        return other_operation(watcher, func, args, kwargs)
    roles = watcher.facts.role(args[0]), watcher.facts.role(args[1])
    if (branches := two_branches(*roles)) is not None and args[0].shape == args[1].shape:
        result = watcher.run_operation(func, args, kwargs)
        watcher.facts.set_role(result, branches[0].join(branches[1]))
        return result
    if not watcher.plan.states:
        return other_operation(watcher, func, args, kwargs)
    first = args[0]
    kept = first.detach().clone() if func.__name__ in ("add_", "__iadd__") else first
    pairs: tuple[tuple[Any, Any], ...] = ((first, args[1]), (args[1], first))
    role: Role | None = watcher.scores(args)
    sums: list[tuple[Written, Tensor]] = []  # outputs of attention, and the states they are added to
    together = None if kwargs else with_adapter(*roles)
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
    result = watcher.run_operation(func, args, kwargs)
    for output, state in sums:
        output.tap.add_up(output, state, result)
    watcher.facts.set_role(result, role)
    return result


def subtract(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """A difference: of mixed values and their mean, as norms written in Python take it, or any other."""
    role = centred(watcher.facts.role(args[0]), *args[:2]) if len(args) > 1 and not kwargs else None
    result = other_operation(watcher, func, args, kwargs)
    if role is not None:
        watcher.facts.set_role(result, role)
    return result


def scale(watcher: Watcher, func: Function, args: Any, kwargs: Any) -> Any:
    """An elementwise product: LayerScale, a norm's weights, a mask of weights."""
    role: Role | None = watcher.scores(args)
    for tensor, factor in (args[:2], args[1::-1]) if len(args) > 1 else ():
        role = scaled(watcher.facts.role(tensor), tensor, factor, watcher.facts.role(factor), watcher.batch) or role
    result = watcher.run_operation(func, args, kwargs)
    watcher.facts.set_role(result, role)
    return result


def drawn(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Replace a random draw; raise if that would leave tokens without fixed positions."""
    choice = even_choice(args, kwargs) if func is torch.multinomial else None
    if choice is None:
        raise UnsupportedModel(
            f"The model shuffles its tokens at random on every pass (torch.{func.__name__}): a score would not belong "
            "to any particular token."
        )
    return choice


def even_choice(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Replace `torch.multinomial` over equal weights by evenly spaced indices, in order.

    ViLT samples its patches this way, in a new order each time, and its padding. None if the weights differ: then the
    draw itself is part of the computation.
    """
    names = ("input", "num_samples", "replacement")
    arguments: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
    weights, count = arguments["input"], int(arguments["num_samples"])
    if weights.dim() != 1 or not bool((weights == weights[0]).all()):
        return None
    total = len(weights)
    order = torch.arange(count, device=weights.device)
    return order % total if arguments.get("replacement") else order * total // count


Handler = Callable[["Watcher", Function, Any, Any], Any]
HANDLERS: dict[str, Handler] = (
    {
        "scaled_dot_product_attention": fused_attention,
        "multi_head_attention_forward": packed_attention,
        "softmax": softmax,
        "grid_sample": sample_points,
        "sum": sum_of_points,
        "__get__": parameter_view,
    }
    | dict.fromkeys(["matmul", "__matmul__", "bmm", "einsum"], product)
    | dict.fromkeys(["multinomial", "randperm"], lambda _, func, args, kwargs: drawn(func, args, kwargs))
    | dict.fromkeys(["linear", "addmm"], linear)
    | dict.fromkeys(["layer_norm", "rms_norm"], norm)
    | dict.fromkeys(KEEPING, keep)
    | dict.fromkeys([*MOVING, *PUTTING], move)
    | dict.fromkeys(COPYING, copy)
    | dict.fromkeys("cat concat concatenate stack hstack vstack dstack column_stack block_diag".split(), concatenate)
    | dict.fromkeys(["rsqrt", "pow"], spread)
    | {"baddbmm": biased_product, "batch_norm": batch_norm}
    | dict.fromkeys(["add", "add_", "__add__", "__radd__", "__iadd__"], add)
    | dict.fromkeys(["sub", "__sub__"], subtract)
    | dict.fromkeys(["mul", "mul_", "__mul__", "__rmul__", "__imul__", "multiply"], scale)
)


# Handlers of operations that give a role to their result only if some argument has one.
PASSING_ON = frozenset({keep, move, softmax, scale, add, other_operation, sum_of_points})
# The same for plans without states.
PASSING_ON_MAPS = PASSING_ON | {copy, linear, norm}


@lru_cache(maxsize=4096)
def handler_of(func: Function) -> Handler | None:
    """The handler of a function; None if it only asks a tensor for something, such as its shape."""
    name = name_unless_asking(func)
    return None if name is None else HANDLERS.get(name, other_operation)

"""Classify operations for the rules, by their name and the facts about their inputs."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from whyformer.backward.operations import Operation, linear_form
from whyformer.errors import UnsupportedModel
from whyformer.watching.facts import NOTHING_KNOWN, Facts, TensorFact

RunOperation = Callable[..., Any]

# The kind of each function. Those that only move or pick entries (`watching.operation_names`) use their gradient.
OPERATION_KINDS: dict[str, str] = (
    dict.fromkeys(
        "linear addmm conv1d conv2d conv3d conv_transpose2d grouped_mm _grouped_mm grouped_mm_fallback".split(),
        "linear",
    )
    | dict.fromkeys("matmul __matmul__ bmm einsum".split(), "product")
    | dict.fromkeys("add add_ __add__ __radd__ __iadd__ sub sub_ __sub__ __rsub__ __isub__".split(), "add")
    | dict.fromkeys("mul mul_ __mul__ __rmul__ __imul__ div div_ __truediv__ __itruediv__ true_divide".split(), "gate")
    | {"multiply": "gate", "divide": "gate", "subtract": "add"}
    | dict.fromkeys("neg __neg__ positive".split(), "scale")
    | dict.fromkeys("mean sum avg_pool2d adaptive_avg_pool2d avg_pool1d adaptive_avg_pool1d".split(), "share")
    | dict.fromkeys("interpolate upsample grid_sample index_add index_add_ scatter_add scatter_add_".split(), "share")
    | {"mix_values": "share"}  # a kernel that is linear in its values, all else constant (MambaLRP)
    | dict.fromkeys("layer_norm rms_norm group_norm batch_norm normalize".split(), "norm")
    | dict.fromkeys(
        "gelu relu silu tanh hardswish mish elu leaky_relu relu6 celu selu prelu softsign square expm1".split(),
        "activation",
    )
    | dict.fromkeys("hardtanh clamp clip clamp_min clamp_max threshold hardshrink softshrink".split(), "activation")
    | dict.fromkeys("relu_ hardtanh_ clamp_ clamp_min_ clamp_max_ elu_ leaky_relu_ selu_ tanh_".split(), "activation")
    | dict.fromkeys("sigmoid hardsigmoid sigmoid_ softplus logsigmoid".split(), "curve")  # not 0 at 0
    | {
        "softmax": "softmax",
        "scaled_dot_product_attention": "attention",
        "rerun_attention": "attention",
        "turn_pairs": "rotation",
    }
    # e^x, the decay of a state space, scales the state, as a denominator scales its numerator.
    | dict.fromkeys("rsqrt sqrt norm reciprocal __rdiv__ std var vector_norm exp exp_".split(), "denominator")
)
IS_SCALE = attrgetter("is_scale")
ELEMENTWISE = frozenset("pow __pow__ square tanh sigmoid erf exp abs".split())
SWITCHES = frozenset(name for name, kind in OPERATION_KINDS.items() if kind == "denominator") | {
    "sigmoid",
    "sigmoid_",
    "hardsigmoid",
}
SIGNS = dict.fromkeys("sub sub_ __sub__ __isub__ subtract".split(), (1.0, -1.0)) | {"__rsub__": (-1.0, 1.0)}


def operation_kind(
    facts: Facts, name: str, inputs: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The kind of an operation, and the details that its rule reads."""
    kind = OPERATION_KINDS[name]
    source = next(n for n, x in enumerate(inputs) if x.requires_grad)
    if kind == "product":
        return _product(facts, name, inputs, args)
    if kind == "linear":
        is_pixels = name in ("conv2d", "conv3d") and inputs[0].shape[1] == 3
        others = ["offs"] if "grouped" in name else ["stride", "padding", "dilation", "groups"]
        if name == "conv_transpose2d":
            others = ["stride", "padding", "output_padding", "groups", "dilation"]
        how = dict(zip(others, args[2 if "grouped" in name else 3 :], strict=False)) | {
            key: value for key, value in kwargs.items() if key not in ("input", "weight", "bias")
        }
        return "pixels" if is_pixels else "linear", {"form": linear_form(name, inputs, 1, how)}
    if kind == "add":
        if len(inputs) == 1:
            return "scale", {"source": source}
        first, second = SIGNS.get(name, (1.0, 1.0))
        signs = (first, second * kwargs.get("alpha", 1))
        return "rotation" if facts.origin(inputs[0]) is facts.origin(inputs[1]) else "add", {"signs": signs}
    if kind == "softmax":
        return kind, {"source": source, "axis": args[1] if len(args) > 1 else kwargs["dim"]}
    if kind == "attention":  # run by the fused kernels: its map is too large to keep
        return kind, {"source": 2}  # the values
    if kind == "gate":
        return _gate(facts, name, inputs, source)
    return kind, {"source": source}


def _product(facts: Facts, name: str, inputs: list[Tensor], args: tuple[Any, ...]) -> tuple[str, dict[str, Any]]:
    """Classify a matrix product: with a weight of the model it is linear, with a map it mixes tokens."""
    if len(inputs) != 2:
        raise UnsupportedModel(f"A product of {len(inputs)} tensors ({name}) has no relevance rule.")
    weight = next((n for n, x in enumerate(inputs) if not x.requires_grad and facts.is_of_the_model(x)), None)
    if weight is not None:
        how = {"equation": args[0]} if name == "einsum" else {}
        return "linear", {"form": linear_form(name, inputs, weight, how)}
    map_input = next((n for n, x in enumerate(inputs) if facts[x].is_map), None)
    return ("product", {}) if map_input is None else ("mixing", {"map": map_input})


def _gate(facts: Facts, name: str, inputs: list[Tensor], source: int) -> tuple[str, dict[str, Any]]:
    """Classify a product of two activations, or of one with a scale: a constant, a denominator, or a gate."""
    if len(inputs) == 2 and "div" in name:
        return "scale", {"source": 0}
    if len(inputs) == 1 or not all(x.requires_grad for x in inputs):
        return "scale", {"source": source}
    # The output of a softmax scales the other factor: a router's weight of an expert.
    scale = next((n for n, x in enumerate(inputs) if facts[x].is_scale or facts[x].is_map), None)
    if scale is None:
        (first, first_is_linear), (second, second_is_linear) = map(facts.root, inputs)
        if first is second and first_is_linear != second_is_linear:
            scale = 0 if second_is_linear else 1
    return ("gate", {}) if scale is None else ("scale", {"source": 1 - scale})


def note_result(
    facts: Facts, name: str, inputs: list[Tensor], result: Tensor, kind: str, operation: Operation | None = None
) -> None:
    """Set the facts that later operations need about a result, clearing those from before an in-place change."""
    live = [x for x in inputs if x.requires_grad]
    known, before = facts.of(live), facts[result]
    is_scale = name in SWITCHES or all(map(IS_SCALE, known))
    is_map = kind == "softmax" or (kind == "scale" and known[0].is_map)
    moved_from = facts.origin(live[0]) if kind in ("scale", "rotation") else None
    function_of = _function_of(name, kind, live, known)
    made_by = before.made_by if operation is None else operation
    if not (
        before is NOTHING_KNOWN
        and moved_from is None
        and function_of is None
        and made_by is None
        and not (is_scale or is_map)
    ):
        changes: dict[str, Any] = {"is_scale": is_scale, "is_map": is_map, "moved_from": moved_from, "made_by": made_by}
        facts.put(result, before._replace(function_of=function_of, **changes))
    if kind != "share" and facts.batch > 1:  # a share sums over rows
        facts.carry_rows(live, result)


def _function_of(name: str, kind: str, live: list[Tensor], known: list[TensorFact]) -> tuple[Tensor, bool] | None:
    """The tensor that the result of an operation is an elementwise function of, and whether that is linear."""
    if not (name in ELEMENTWISE or kind in ("scale", "add", "gate")):
        return None
    (root, is_linear), *others = (fact.function_of or (x, True) for x, fact in zip(live, known, strict=True))
    if name in ELEMENTWISE:
        return root, False
    return (root, is_linear and not others) if all(other is root for other, _ in others) else None


def note_unruled(facts: Facts, name: str, args: tuple[Any, ...], result: Tensor) -> None:
    """Note whether the result of an operation without a rule is a scale, or an elementwise function."""
    if name in ("pow", "__pow__") and not (isinstance(args[1], (int, float)) and args[1] >= 1):
        facts.note(result, is_scale=True)
    elif name in ELEMENTWISE:
        facts.note(result, function_of=(facts.root(args[0])[0], False))


def baddbmm(
    run: RunOperation, bias: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Any:
    """BLOOM's scores: β times a bias by position, plus α times the product."""
    product = run(torch.mul, run(torch.bmm, batch1, batch2), alpha)
    return run(torch.add, product, run(torch.mul, bias, beta))


def glu(run: RunOperation, x: Tensor, dim: int = -1) -> Any:
    """Gate one half of the channels by the other."""
    value, gate = run(torch.chunk, x, 2, dim)
    return run(torch.mul, value, run(torch.sigmoid, gate))


def is_rotation(args: tuple[Any, ...]) -> bool:
    """Whether it is a product of complex numbers, one of them constant, as in Llama 4's rotary embedding."""
    is_complex = [isinstance(x, Tensor) and x.is_complex() for x in args[:2]]
    return all(is_complex) and len(args) == 2 and args[0].requires_grad != args[1].requires_grad


def complex_product(run: RunOperation, x: Tensor, y: Tensor) -> Any:
    """The product of complex numbers as a linear operation on pairs of real ones."""
    pairs, constant = (x, y) if x.requires_grad else (y, x)
    return run(torch.view_as_complex, run(turn_pairs, run(torch.view_as_real, pairs), constant))


def turn_pairs(x: Tensor, factor: Tensor) -> Tensor:
    """Multiply pairs of real numbers by complex ones."""
    return torch.view_as_real(torch.view_as_complex(x) * factor)


# Composite operations, decomposed so that each part has its rule.
COMPOSED: dict[str, Callable[..., Any]] = {"baddbmm": baddbmm, "glu": glu, "complex product": complex_product}

"""Every relevance rule on every operation, against the dense twins of tests/naive.py, and what the papers promise.

A new rule is one entry of `naive.TWINS`; a new operation, or a new way to spell one, is one line of `ROWS`.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.activations import NewGELUActivation, QuickGELUActivation
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, rotate_half
from transformers.pytorch_utils import Conv1D

from naive import TWINS
from tiny_models import FAMILIES, IMAGE, STREAM_FAMILIES, built, inputs_of
from whyformer import METHODS, WhyformerError, attribute, contrast
from whyformer.backward import attention_rules as attention
from whyformer.backward.kinds import OPERATION_KINDS
from whyformer.backward.operations import replace_tensors
from whyformer.backward.rule_graph import NoRule, RuleGraph
from whyformer.backward.rules import ATTN_LRP, LIBRA, RULES
from whyformer.errors import UnsupportedModel
from whyformer.tracing.build import trace
from whyformer.tracing.reads import Reads
from whyformer.watching.watcher import Watcher, WatchPlan

BATCH = 2
Spelled = Callable[..., Tensor]
Twins = dict[str, Callable[..., list[Tensor]]]
SETS = {**RULES, "libra": LIBRA, "attn_lrp as a gradient": ATTN_LRP}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Model(nn.Module):
    """A model that is nothing but one operation, its weights the model's."""

    def __init__(self, spelled: Spelled, weights: Sequence[Tensor] = (), parts: Sequence[nn.Module] = ()):
        super().__init__()
        self.spelled = spelled
        self.weights = nn.ParameterList([nn.Parameter(weight) for weight in weights])
        self.parts = nn.ModuleList(parts)
        self.unused = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.spelled(*inputs, *self.weights, *self.parts)


@dataclass(frozen=True)
class Row:
    """An operation as a model spells it, on inputs in the graph, and by which kind of rule it goes back.

    `twin` puts several kinds together; `plain` says the operation, where the spelling is in several or in place.
    """

    spelled: Spelled
    inputs: tuple[Tensor, ...]
    kind: str = ""
    weights: tuple[Tensor, ...] = ()
    twin: Callable[..., Sequence[Tensor]] | None = None
    plain: Spelled | None = None
    silent: Tensor | None = None  # where nothing arrives
    parts: tuple[nn.Module, ...] = ()

    def model(self) -> Model:
        return Model(self.spelled, self.weights, self.parts).double().eval()

    def expected(self, twins: Twins, arrived: Tensor) -> Sequence[Tensor]:
        if self.twin is not None:
            return self.twin(twins, arrived, *self.inputs)
        plain = self.plain or self.spelled
        found = twins[self.kind](arrived, lambda *x: plain(*x, *self.weights, *self.parts), *self.inputs)
        return found[: len(self.inputs)]


def handed(
    model: Model,
    inputs: Sequence[Tensor],
    rules: Any,
    arrived: Tensor | None = None,
    *,
    strict: bool = True,
    fold: bool = False,
    known: bool = False,
) -> tuple[Tensor, list[Tensor], RuleGraph]:
    """The model's output, what arrives at its inputs by the rules, and the mode, which may have known them."""
    mode = RuleGraph(model, len(inputs[0]), rules=rules if known else None)
    leaves = [x.clone().requires_grad_() for x in inputs]
    plan = WatchPlan("folded" if fold else "kept", graph=True)
    output = Watcher(len(inputs[0]), plan, rules=mode).run(model, *leaves)
    arrived = random(*output.shape, seed=9) if arrived is None else arrived
    with mode.using(rules, strict=strict):
        found = torch.autograd.grad(output, leaves, arrived, allow_unused=True)
    whole = [torch.zeros_like(x) if part is None else part for part, x in zip(found, leaves, strict=True)]
    return output.detach(), whole, mode


X, Y = random(2, 3, 4), random(2, 3, 4, seed=1)
W, BIAS = random(5, 4, seed=2), random(5, seed=3)
POSITIONS = random(1, 3, 4, seed=4)
GAMMA, BETA = random(4, seed=5), random(4, seed=6)
U, V = random(2, 2, 3, seed=7), random(2, 3, 2, seed=8)
PIXELS = random(2, 3, 4, 4)
SHUT = torch.tensor([[False, False, True], [False, True, False], [False, False, False]])
MASK = torch.zeros(3, 3, dtype=torch.float64).masked_fill(SHUT, -math.inf)
SCORES = random(2, 2, 3, 3, seed=11)
QUERY, KEY, VALUE = (random(2, 2, 3, 2, seed=seed) for seed in (12, 13, 14))
ANGLES = random(1, 3, 4, seed=15)
TURNS = torch.polar(torch.ones(3, 2, dtype=torch.float64), random(3, 2, seed=16))
ALIBI = random(1, 2, 2, seed=17)
PLACES = torch.tensor([2, 0, 2])
TOKENS, EXPERTS = random(6, 4, seed=18), random(3, 4, 5, seed=19)
ENDS, CHOSEN = torch.tensor([2, 2, 6], dtype=torch.int32), torch.tensor([0, 2, 2, 1, 0, 1])
REAL = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], dtype=torch.float64)[:, :, None]


def layer_norm(x: Tensor, at: Tensor | None = None) -> Tensor:
    """By the formula, divided by the spread of `at`."""
    at = x if at is None else at
    spread = ((at - at.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / (spread + 1e-5).sqrt() * GAMMA + BETA


def rms_norm(x: Tensor, at: Tensor | None = None) -> Tensor:
    at = x if at is None else at
    return x / ((at**2).mean(-1, keepdim=True) + 1e-5).sqrt() * GAMMA


def unit(x: Tensor, at: Tensor | None = None) -> Tensor:
    at = x if at is None else at
    return x / (at**2).sum(-1, keepdim=True).sqrt()


def in_place(change: Callable[[Tensor, Tensor], Any]) -> Spelled:
    """An operation that changes its first operand."""

    def spelled(x: Tensor, y: Tensor) -> Tensor:
        x = x.clone()
        result = change(x, y)
        return x if result is None else result

    return spelled


def plus(x: Tensor, y: Tensor) -> Tensor:
    x += y
    return x


def times(x: Tensor, y: Tensor) -> Tensor:
    x *= y
    return x


def through_attention(mask: Tensor | None = None) -> Callable[..., list[Tensor]]:
    """Half of the way to the values, half to the scores, and of these half to each of queries and keys."""

    def twin(twins: Twins, arrived: Tensor, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        scaled = query / math.sqrt(query.shape[-1])
        scores = torch.einsum("bhqd,bhkd->bhqk", scaled, key)
        shifted = scores if mask is None else scores + mask
        weights = shifted.softmax(-1)
        to_map, to_value = twins["mixing"](arrived, lambda a, v: torch.einsum("bhqk,bhkd->bhqd", a, v), weights, value)
        (to_scores,) = twins["softmax"](to_map, lambda s: s.softmax(-1), shifted)
        if mask is not None:
            to_scores = twins["add"](to_scores, torch.add, scores, mask.masked_fill(mask.isinf(), 0.0))[0]
        to_scaled, to_key = twins["product"](to_scores, lambda q, k: torch.einsum("bhqd,bhkd->bhqk", q, k), scaled, key)
        (to_query,) = twins["scale"](to_scaled, lambda q: q / math.sqrt(q.shape[-1]), query)
        return [to_query, to_key, to_value]

    return twin


def mixed(twins: Twins, arrived: Tensor, scores: Tensor, value: Tensor) -> list[Tensor]:
    weights = scores.softmax(-1)
    to_map, to_value = twins["mixing"](arrived, lambda a, v: torch.einsum("bhqk,bhkd->bhqd", a, v), weights, value)
    return [*twins["softmax"](to_map, lambda s: s.softmax(-1), scores), to_value]


def rotated(twins: Twins, arrived: Tensor, x: Tensor) -> list[Tensor]:
    """The sum of x·cos and of its turned halves ·sin, each scaled by a constant."""
    kept, turned = twins["rotation"](arrived, torch.add, x * ANGLES.cos(), rotate_half(x) * ANGLES.sin())
    (kept,) = twins["scale"](kept, lambda y: y * ANGLES.cos(), x)
    (turned,) = twins["scale"](turned, lambda y: y * ANGLES.sin(), rotate_half(x))
    (second,) = twins["scale"](turned[..., :2], torch.neg, x[..., 2:])
    return [kept + torch.cat([turned[..., 2:], second], dim=-1)]


def swish_gated(twins: Twins, arrived: Tensor, gate: Tensor, up: Tensor) -> list[Tensor]:
    to_gate, to_up = twins["gate"](arrived, torch.mul, F.silu(gate), up)
    return [*twins["activation"](to_gate, F.silu, gate), to_up]


def two_layers(twins: Twins, arrived: Tensor, x: Tensor) -> list[Tensor]:
    """A residual MLP: what both paths hand back to x is added up."""
    before = F.linear(x, W, BIAS)
    to_x, to_output = twins["add"](arrived, torch.add, x, F.linear(F.gelu(before), W.T))
    (to_hidden,) = twins["linear"](to_output, lambda h: F.linear(h, W.T), F.gelu(before))
    (to_before,) = twins["activation"](to_hidden, F.gelu, before)
    return [to_x + twins["linear"](to_before, lambda y: F.linear(y, W, BIAS), x)[0]]


def masked_mean(twins: Twins, arrived: Tensor, x: Tensor) -> list[Tensor]:
    total = (x * REAL).sum(dim=1)
    (to_sum,) = twins["scale"](arrived, lambda y: y / REAL.sum(dim=1), total)
    (to_kept,) = twins["share"](to_sum, lambda y: y.sum(dim=1), x * REAL)
    return twins["scale"](to_kept, lambda y: y * REAL, x)


def with_a_bias(twins: Twins, arrived: Tensor, u: Tensor, v: Tensor) -> Sequence[Tensor]:
    product = 2.0 * (u @ v)
    (to_product, _) = twins["add"](arrived, torch.add, product, 0.5 * ALIBI)
    (to_plain,) = twins["scale"](to_product, lambda x: 2.0 * x, u @ v)
    return twins["product"](to_plain, torch.matmul, u, v)


def added_twice(twins: Twins, arrived: Tensor, x: Tensor, y: Tensor) -> list[Tensor]:
    first = torch.index_add(torch.zeros_like(x), 1, PLACES, x)
    to_first, to_y = twins["rotation"](arrived, lambda a, b: torch.index_add(a, 1, PLACES.flip(0), b), first, y)
    return [twins["share"](to_first, lambda b: torch.index_add(torch.zeros_like(x), 1, PLACES, b), x)[0], to_y]


def gated_half(twins: Twins, arrived: Tensor, x: Tensor) -> list[Tensor]:
    """The gate only scales: all that arrives is for the half that is gated."""
    (to_value,) = twins["scale"](arrived, lambda value: value * x[..., 2:].sigmoid(), x[..., :2])
    return [torch.cat([to_value, torch.zeros_like(to_value)], dim=-1)]


def routed(twins: Twins, arrived: Tensor, x: Tensor) -> list[Tensor]:
    """So does the router's weight."""
    weight = F.linear(x, W).softmax(-1).amax(-1, keepdim=True)
    return twins["scale"](arrived, lambda y: y * weight, x)


def decayed(twins: Twins, arrived: Tensor, x: Tensor) -> list[Tensor]:
    return twins["scale"](arrived, lambda y: y * torch.exp(X.mean() - x.mean(-1, keepdim=True)), x)


ROWS: dict[str, Row] = {
    # Linear
    "linear": Row(F.linear, (X,), "linear", (W, BIAS)),
    "linear without bias": Row(F.linear, (X,), "linear", (W,)),
    "linear, weight and bias by name": Row(lambda x, w, b: F.linear(x, weight=w, bias=b), (X,), "linear", (W, BIAS)),
    "addmm": Row(lambda x, c: c(x), (X,), "linear", parts=(Conv1D(5, 4).double(),)),
    "matmul with a weight": Row(torch.matmul, (X,), "linear", (W.T.clone(),)),
    "matmul with a transposed weight": Row(lambda x, w: x @ w.T, (X,), "linear", (W,)),
    "matmul, the weight first": Row(lambda x, w: w @ x.mT, (X,), "linear", (W,)),
    "matmul with a vector of weights": Row(torch.matmul, (X,), "linear", (GAMMA,)),
    "einsum with a weight": Row(lambda x, w: torch.einsum("bnd,ed->bne", x, w), (X,), "linear", (W,)),
    "conv2d of pixels": Row(
        lambda x, w, b: F.conv2d(x, w, b, 2), (PIXELS,), "pixels", (random(4, 3, 2, 2, seed=2), random(4, seed=3))
    ),
    "conv2d of features": Row(
        lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=2),
        (PIXELS[:, :2, :3, :3].contiguous(),),
        "linear",
        (random(4, 1, 2, 2, seed=2), random(4, seed=3)),
    ),
    "conv_transpose2d": Row(
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1, 2),
        (PIXELS.repeat(1, 2, 1, 1)[:, :4],),
        "linear",
        (random(4, 3, 3, 3, seed=2), random(6, seed=3)),
    ),
    "conv1d": Row(
        lambda x, w, b: F.conv1d(x, w, b, 2, 1), (X,), "linear", (random(2, 3, 2, seed=2), random(2, seed=3))
    ),
    "grouped_mm": Row(
        lambda x, w: torch.ops.transformers.grouped_mm_fallback(x, w, ENDS),  # PyTorch's own has no float64
        (TOKENS,),
        "linear",
        (EXPERTS,),
        plain=lambda x, w: torch.cat([x[:2] @ w[0], x[2:] @ w[2]]),
    ),
    "the weights of the chosen experts": Row(
        lambda x, w: torch.bmm(w[CHOSEN].mT, x[:, :, None])[:, :, 0],
        (TOKENS,),
        "linear",
        (EXPERTS,),
        plain=lambda x, w: torch.stack([row @ w[n] for row, n in zip(x, CHOSEN, strict=True)]),
    ),
    # Products
    "matmul": Row(torch.matmul, (U, V), "product"),
    "@": Row(lambda u, v: u @ v, (U, V), "product"),
    "bmm": Row(torch.bmm, (U, V), "product"),
    "einsum": Row(lambda u, v: torch.einsum("bik,bkj->bji", u, v), (U, V), "product"),
    "softmax and matmul": Row(lambda s, v: torch.softmax(s, -1) @ v, (SCORES, VALUE), twin=mixed),
    "attention": Row(F.scaled_dot_product_attention, (QUERY, KEY, VALUE), twin=through_attention()),
    "attention, causal": Row(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (QUERY, KEY, VALUE),
        twin=through_attention(torch.zeros(3, 3).double().masked_fill(torch.ones(3, 3).triu(1).bool(), -math.inf)),
    ),
    "attention, masked by −∞": Row(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, MASK), (QUERY, KEY, VALUE), twin=through_attention(MASK)
    ),
    "attention, with a bias": Row(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, SCORES),
        (QUERY, KEY, VALUE),
        twin=through_attention(SCORES),
    ),
    "baddbmm": Row(
        lambda u, v: ALIBI.baddbmm(u, v, beta=0.5, alpha=2.0),
        (U, V),
        twin=with_a_bias,
    ),
    "a product of complex numbers": Row(
        lambda x: torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (2, 2))) * TURNS),
        (X,),
        "share",
    ),
    "a product of complex numbers, the constant first": Row(
        lambda x: torch.view_as_real(TURNS * torch.view_as_complex(x.unflatten(-1, (2, 2)))),
        (X,),
        "share",
    ),
    # Sums
    "add": Row(torch.add, (X, Y), "add"),
    "+": Row(lambda x, y: x + y, (X, Y), "add"),
    "add_": Row(in_place(Tensor.add_), (X, Y), "add", plain=torch.add),
    "+=": Row(in_place(plus), (X, Y), "add", plain=torch.add),
    "add, twice of one": Row(lambda x, y: torch.add(x, y, alpha=2), (X, Y), "add"),
    "−": Row(lambda x, y: x - y, (X, Y), "add"),
    "sub_": Row(in_place(Tensor.sub_), (X, Y), "add", plain=torch.sub),
    "add, broadcast": Row(torch.add, (X, Y[:, :1]), "add"),
    "add, broadcast over the examples": Row(torch.add, (X, Y[0]), "add"),
    "add positions": Row(
        torch.add,
        (X,),
        weights=(POSITIONS,),
        twin=lambda twins, arrived, x: twins["add"](arrived, torch.add, x, POSITIONS)[:1],
    ),
    "add an embedding": Row(
        lambda x, w: x + F.embedding(torch.tensor([[0, 1, 2]]), w),
        (X,),
        weights=(POSITIONS[0],),
        twin=lambda twins, arrived, x: twins["add"](arrived, torch.add, x, POSITIONS)[:1],
    ),
    "add a mask of −∞": Row(
        lambda s: s + MASK,
        (SCORES,),
        silent=SHUT,
        twin=lambda twins, arrived, s: twins["add"](arrived, torch.add, s, torch.zeros_like(MASK))[:1],
    ),
    "add a number": Row(lambda x: 1.0 + x, (X,), "scale"),
    "less a number": Row(lambda x: x - 1.0, (X,), "scale"),
    "index_add": Row(lambda x, y: torch.index_add(x, 1, PLACES, y), (X, Y), "rotation"),
    "index_add_": Row(
        in_place(lambda x, y: x.index_add_(1, PLACES, y)),
        (X, Y),
        "rotation",
        plain=lambda x, y: torch.index_add(x, 1, PLACES, y),
    ),
    "index_add_ to nothing, twice": Row(
        lambda x, y: torch.zeros_like(x).index_add_(1, PLACES, x).index_add_(1, PLACES.flip(0), y),
        (X, Y),
        twin=added_twice,
    ),
    "scatter_add": Row(lambda x, y: torch.scatter_add(x, 1, PLACES[None, :, None].expand_as(y), y), (X, Y), "rotation"),
    "interpolate": Row(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (PIXELS,), "share"),
    # Scales
    "times a number": Row(lambda x: 0.5 * x, (X,), "scale"),
    "times a constant": Row(torch.mul, (X,), "scale", (GAMMA,)),
    "*= a constant": Row(lambda x, c: in_place(times)(x, c), (X,), "scale", (GAMMA,), plain=torch.mul),
    "times a mask": Row(lambda x: x * REAL, (X,), "scale"),
    "divided by a number": Row(lambda x: x / 3.0, (X,), "scale"),
    "div_": Row(lambda x: x.clone().div_(3.0), (X,), "scale", plain=lambda x: x / 3.0),
    "minus": Row(lambda x: -x, (X,), "scale"),
    # Normalisations
    "layer_norm": Row(
        lambda x, w, b: F.layer_norm(x, (4,), w, b),
        (X,),
        weights=(GAMMA, BETA),
        twin=lambda twins, arrived, x: twins["norm"](arrived, layer_norm, x),
    ),
    "rms_norm": Row(
        lambda x, w: F.rms_norm(x, (4,), w, 1e-5),
        (X,),
        weights=(GAMMA,),
        twin=lambda twins, arrived, x: twins["norm"](arrived, rms_norm, x),
    ),
    "normalize": Row(
        lambda x: F.normalize(x, dim=-1), (X,), twin=lambda twins, arrived, x: twins["norm"](arrived, unit, x)
    ),
    "RMSNorm in Python": Row(
        lambda x, w: w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)),
        (X,),
        weights=(GAMMA,),
        twin=lambda twins, arrived, x: twins["scale"](arrived, lambda y: rms_norm(y, x), x),
    ),
    "length divided out in Python": Row(
        lambda x: x / x.norm(dim=-1, keepdim=True),
        (X,),
        twin=lambda twins, arrived, x: twins["scale"](arrived, lambda y: unit(y, x), x),
    ),
    "length divided out by 1 / length": Row(
        lambda x: x * (1.0 / x.norm(dim=-1, keepdim=True)),
        (X,),
        twin=lambda twins, arrived, x: twins["scale"](arrived, lambda y: unit(y, x), x),
    ),
    # Activations
    **{
        name: Row(function, (X,), "activation")
        for name, function in {
            "gelu": F.gelu,
            "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
            "relu": F.relu,
            "silu": F.silu,
            "tanh": torch.tanh,
            "hardtanh": F.hardtanh,
            "clamp": lambda x: x.clamp(-0.5, 0.7),
            "clamp from above": lambda x: torch.clamp(x, max=0.7),
        }.items()
    },
    "relu_": Row(lambda x: x.clone().relu_(), (X,), "activation", plain=F.relu),
    "hardtanh_": Row(lambda x: F.hardtanh_(x.clone()), (X,), "activation", plain=F.hardtanh),
    "clamp_": Row(lambda x: x.clone().clamp_(min=-0.5), (X,), "activation", plain=lambda x: x.clamp(min=-0.5)),
    "glu": Row(lambda x: F.glu(x, dim=-1), (X,), twin=gated_half),
    "an expert weighed by its router": Row(
        lambda x, w: x * torch.topk(torch.softmax(F.linear(x, w), -1), 1).values, (X,), weights=(W,), twin=routed
    ),
    "exp": Row(lambda x: x * torch.exp(X.mean() - x.mean(-1, keepdim=True)), (X,), twin=decayed),
    "sigmoid": Row(torch.sigmoid, (X,), "curve"),
    "gelu_new": Row(lambda x, gelu: gelu(x), (X,), "self-gate", parts=(NewGELUActivation(),)),
    "quick_gelu": Row(lambda x, gelu: gelu(x), (X,), "self-gate", parts=(QuickGELUActivation(),)),
    "silu in Python": Row(lambda x: x * torch.sigmoid(x), (X,), "self-gate"),
    "a product": Row(torch.mul, (U, V.mT.contiguous()), "gate"),
    "gated MLP": Row(lambda g, u: F.silu(g) * u, (U, V.mT.contiguous()), twin=swish_gated),
    "residual MLP": Row(
        lambda x, w, b: x + F.linear(F.gelu(F.linear(x, w, b)), w.T), (X,), weights=(W, BIAS), twin=two_layers
    ),
    # Softmax
    "softmax": Row(lambda s: s.softmax(-1), (SCORES,), "softmax"),
    "softmax over another axis": Row(
        lambda s: s.softmax(1),
        (SCORES,),
        twin=lambda twins, arrived, s: [
            twins["softmax"](arrived.movedim(1, -1), lambda y: y.softmax(-1), s.movedim(1, -1))[0].movedim(-1, 1)
        ],
    ),
    # Moves
    **{
        name: Row(spelled, (X,), "moving")
        for name, spelled in {
            "dropout": lambda x: F.dropout(x, 0.5, training=False),
            "the first token": lambda x: x[:, 0],
            "a slice": lambda x: x[:, 1:, ::2],
            "indices": lambda x: x[torch.arange(2), torch.tensor([2, 0])],
            "gather": lambda x: x.gather(1, torch.tensor([[[0, 0, 2, 1]], [[1, 2, 2, 0]]])),
            "index_select": lambda x: x.index_select(1, torch.tensor([2, 2, 0])),
            "split": lambda x: x.split(2, dim=-1)[1],
            "chunk": lambda x: x.chunk(2, dim=-1)[0],
            "unbind": lambda x: x.unbind(1)[2],
            "view": lambda x: x.view(2, 3, 2, 2),
            "transpose": lambda x: x.transpose(1, 2),
            "permute and reshape": lambda x: x.permute(0, 2, 1).reshape(2, -1),
            "expand": lambda x: x[:, :1].expand(-1, 5, -1),
            "repeat_interleave": lambda x: x.repeat_interleave(2, dim=1),
            "masked_fill": lambda x: x.masked_fill(SHUT[0][None, :, None], 0.0),
            "roll": lambda x: x.roll(1, dims=1),
            "pad": lambda x: F.pad(x, (1, 0)),
        }.items()
    },
    "cat": Row(lambda x, y: torch.cat([x, y], dim=1), (X, Y), "moving"),
    "stack": Row(lambda x, y: torch.stack([x, y]), (X, Y), "moving"),
    "where": Row(lambda x, y: torch.where(SHUT[0][None, :, None], x, y), (X, Y), "moving"),
    "cat with a class token": Row(
        lambda x, c: torch.cat([c.expand(2, 1, 4), x], dim=1), (X,), "moving", (POSITIONS[:, :1],)
    ),
    "rotary embedding": Row(
        lambda x: apply_rotary_pos_emb(x[:, None], x[:, None], ANGLES.cos(), ANGLES.sin())[0][:, 0], (X,), twin=rotated
    ),
    # Means
    "mean over tokens": Row(lambda x: x.mean(dim=1), (X,), "share"),
    "sum": Row(lambda x: x.sum(dim=1), (X,), "share"),
    "mean over real tokens": Row(lambda x: (x * REAL).sum(dim=1) / REAL.sum(dim=1), (X,), twin=masked_mean),
    "adaptive_avg_pool1d": Row(lambda x: F.adaptive_avg_pool1d(x, 2), (X,), "share"),
}


@pytest.mark.parametrize("name", ROWS)
def test_an_operation_goes_back_like_its_dense_twin_whether_its_rules_are_known_beforehand_or_not(name):
    for rules in TWINS:
        check_twin(name, rules)
    for rules in ("libra", "attn_lrp as a gradient"):
        check_twin(name, rules, known=True)


@pytest.mark.parametrize("function", [F.gelu, F.silu, F.relu, torch.tanh, torch.sigmoid])
def test_at_zero_the_gate_is_the_slope(function):
    x = torch.tensor([[[0.0, 1.5, -0.5, 0.0]]], dtype=torch.float64)
    _, (found,), _ = handed(Model(function), (x,), ATTN_LRP, torch.ones_like(x), known=True)
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(function(leaf).sum(), leaf)
    torch.testing.assert_close(found, torch.where(x == 0, slope, function(x) / x))


def test_a_mode_that_knows_its_rules_follows_no_others():
    _, _, mode = handed(Model(lambda x: F.linear(x, W) + BIAS), (X,), LIBRA, known=True)
    with pytest.raises(AssertionError), mode.using(RULES["z_plus"]):
        pass


def check_twin(name: str, rules: str, *, known: bool = False) -> None:
    """What an operation hands back by these rules is what its twin does."""
    row = ROWS[name]
    model = row.model()
    with torch.no_grad():
        plain = model(*row.inputs)
    arrived = random(*plain.shape, seed=9)
    if row.silent is not None:
        arrived = arrived.masked_fill(row.silent, 0.0)
    output, found, _ = handed(model, row.inputs, SETS[rules], arrived, known=known)
    assert torch.equal(output, plain) or (output - plain).abs().max() <= 1e-12, rules
    for got, expected in zip(found, row.expected(TWINS[rules], arrived), strict=True):
        expected = expected.detach()
        assert (got - expected).abs().max() <= 1e-9 * max(1.0, float(expected.abs().max())), rules


KEYS_OF_PAIRS, VALUES_OF_PAIRS = (random(2, 2, 5, 2, seed=seed) for seed in (21, 22))  # each for two heads
HEARD = torch.tensor([[True, True, True, True, True], [False, False, True, True, True]])[:, None, None]  # left padding
ATTENTION: dict[str, tuple[Spelled, tuple[Tensor, ...]]] = {
    name: (row.spelled, row.inputs) for name, row in ROWS.items() if name.startswith("attention")
} | {
    name: (partial(F.scaled_dot_product_attention, **how), (random(2, 4, 5, 2, seed=20), *of_keys))
    for name, how, of_keys in [
        ("of grouped queries, causal", {"is_causal": True, "enable_gqa": True}, (KEYS_OF_PAIRS, VALUES_OF_PAIRS)),
        ("of grouped queries, padded", {"attn_mask": HEARD, "enable_gqa": True}, (KEYS_OF_PAIRS, VALUES_OF_PAIRS)),
        (
            "of queries that see no key",
            {"attn_mask": HEARD & torch.ones(5, 5).tril().bool(), "scale": 0.7},
            (random(2, 4, 5, 2, seed=21), random(2, 4, 5, 3, seed=22)),
        ),
        (
            "with a bias for all examples",
            {"attn_mask": random(4, 1, 5, seed=23)},
            (random(2, 4, 5, 2, seed=21), random(2, 4, 5, 2, seed=22)),
        ),
    ]
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_as_one_operation_goes_back_like_its_parts(name, monkeypatch):
    monkeypatch.setattr(attention, "TILE_ENTRIES", 40)  # a query or two at a time
    spelled, inputs = ATTENTION[name]
    for rules in SETS.values():
        check_as_one(spelled, inputs, rules, 1e-9)


# On positive numbers: a rule divides by sums, and those that nearly cancel out have no digits left in float32.
@pytest.mark.parametrize("name", [name for name in ATTENTION if "bias" not in name and "∞" not in name])
def test_attention_as_one_operation_goes_back_like_its_parts_in_float32(name, monkeypatch):
    monkeypatch.setattr(attention, "TILE_ENTRIES", 40)
    spelled, inputs = ATTENTION[name]
    for rules in SETS.values():
        check_as_one(spelled, [x.float().abs() + 0.5 for x in inputs], rules, 1e-5)


@pytest.mark.parametrize("rules", ["z_plus", "dtd", "lrp", "attn_lrp"])
def test_a_bias_that_depends_on_the_input_has_its_share_of_attention_as_one_operation(rules, monkeypatch):
    monkeypatch.setattr(attention, "TILE_ENTRIES", 40)
    check_as_one(F.scaled_dot_product_attention, (QUERY, KEY, VALUE, SCORES[:1]), RULES[rules], 1e-9)


def check_as_one(spelled: Spelled, inputs: Sequence[Tensor], rules: Any, tolerance: float) -> None:
    """What attention hands back as one operation is what its parts do."""
    arrived = random(*inputs[0].shape[:-1], inputs[2].shape[-1], seed=9).to(inputs[0].dtype)
    _, parts, _ = handed(Model(spelled), inputs, rules, arrived)
    _, whole, _ = handed(Model(spelled), inputs, rules, arrived, fold=True)
    for got, expected in zip(whole, parts, strict=True):
        assert (got - expected).abs().max() <= tolerance * float(expected.abs().max())


def test_pytorchs_own_grouped_product_goes_back_like_the_one_written_out():
    tokens, experts = random(6, 8, seed=18).float(), nn.Parameter(random(3, 8, 8, seed=19).float())
    spelled = [
        lambda x, w: F.grouped_mm(x, w.transpose(-2, -1), offs=ENDS),
        lambda x, w: torch.ops.transformers.grouped_mm_fallback(x, w.transpose(-2, -1), ENDS),
    ]
    for rules in SETS.values():
        (_, found, _), (_, expected, _) = (handed(Model(one, (experts,)), (tokens,), rules) for one in spelled)
        torch.testing.assert_close(found, expected)


def test_what_has_no_rule_may_be_changed_in_place_afterwards():
    def spelled(x: Tensor, y: Tensor) -> Tensor:
        whole = x.cumsum(dim=1)
        whole.add_(y)
        whole[:, 0] = 0.0
        return whole

    _, found, mode = handed(Model(spelled), (X, Y), LIBRA, strict=False)
    leaves = [X.clone().requires_grad_(), Y.clone().requires_grad_()]
    output = spelled(*leaves)
    expected = torch.autograd.grad(output, leaves, random(*output.shape, seed=9))
    torch.testing.assert_close(found, list(expected))
    assert mode.without_rule == {"cumsum in the model itself"}
    with pytest.raises(NoRule, match="Relevance reached cumsum in the model itself, which has no rule"):
        handed(Model(spelled), (X, Y), RULES["attn_lrp"])


def test_every_rule_set_and_every_kind_of_operation_has_a_twin():
    assert set(TWINS) == set(SETS)
    for name, rules in RULES.items():
        assert set(rules) - {"attention"} <= set(TWINS[name])  # which has the twin of its parts
    never = {"denominator", "attention"}  # handed nothing; as one operation, like its parts
    assert set(OPERATION_KINDS.values()) - never <= set(TWINS["dtd"])


# What the papers promise


SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
SIZES = st.integers(min_value=1, max_value=5)
CONSERVING = ("z_plus", "dtd", "attn_lrp")


def sums(x: Tensor) -> Tensor:
    return x.flatten(1).sum(dim=1)


def assert_conserved(found: Sequence[Tensor], arrived: Tensor) -> None:
    """What reaches the inputs of an example is what arrived at it, up to what the divisions' stabilisers take."""
    size = arrived.abs().flatten(1).sum(dim=1) + sum(x.abs().flatten(1).sum(dim=1) for x in found)
    assert ((sum(sums(x) for x in found) - sums(arrived)).abs() <= 1e-4 * size).all()


@given(SEEDS, SIZES, SIZES, SIZES)
@settings(deadline=None, max_examples=40)
def test_tas_rule_for_linear_layers_hands_on_all_that_arrives_where_a_term_is_positive(seed, tokens, width, outputs):
    x, weight, bias = random(2, tokens, width, seed=seed), random(outputs, width, seed=seed + 1), random(outputs)
    terms = torch.einsum("bni,oi->bnoi", x, weight)
    arrived = random(2, tokens, outputs, seed=seed + 2) * (terms.amax(dim=-1) > 1e-3)
    _, found, _ = handed(Model(F.linear, (weight, bias)), (x,), RULES["dtd"], arrived)
    assert_conserved(found, arrived)


@given(SEEDS, SIZES, SIZES, SIZES)
@settings(deadline=None, max_examples=20)
def test_the_z_plus_rule_hands_on_all_that_arrives_where_a_weight_and_its_input_are_positive(
    seed, tokens, width, outputs
):
    x, weight, bias = random(2, tokens, width, seed=seed), random(outputs, width, seed=seed + 1), random(outputs)
    terms = torch.einsum("bni,oi->bnoi", x.clamp(min=0), weight.clamp(min=0))
    arrived = random(2, tokens, outputs, seed=seed + 2) * (terms.amax(dim=-1) > 1e-3)
    _, found, _ = handed(Model(F.linear, (weight, bias)), (x,), RULES["z_plus"], arrived)
    assert_conserved(found, arrived)


@given(SEEDS, SIZES, SIZES, SIZES)
@settings(deadline=None, max_examples=20)
def test_the_epsilon_rule_without_bias_loses_what_epsilon_takes_and_no_more(seed, tokens, width, outputs):
    x, weight = random(2, tokens, width, seed=seed), random(outputs, width, seed=seed + 1)
    arrived = random(2, tokens, outputs, seed=seed + 2)
    output, found, _ = handed(Model(F.linear, (weight,)), (x,), RULES["attn_lrp"], arrived)
    lost = arrived * 1e-6 * output.sign() / (output + 1e-6 * output.sign())
    torch.testing.assert_close(sums(found[0]), sums(arrived - lost), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rules", RULES)
@given(seed=SEEDS, rows=SIZES, inner=SIZES, columns=SIZES)
@settings(deadline=None, max_examples=10)
def test_a_product_of_activations_is_conserved_in_two_halves(rules, seed, rows, inner, columns):
    u, v = random(2, rows, inner, seed=seed), random(2, inner, columns, seed=seed + 1)
    arrived = random(2, rows, columns, seed=seed + 2) * ((u @ v).abs() > 1e-2)
    _, found, _ = handed(Model(torch.matmul), (u, v), RULES[rules], arrived)
    assert_conserved(found, arrived)
    assert_conserved([2 * found[0]], arrived)


@pytest.mark.parametrize("rules", CONSERVING)
@given(seed=SEEDS, tokens=SIZES, width=SIZES)
@settings(deadline=None, max_examples=10)
def test_a_sum_is_conserved(rules, seed, tokens, width):
    x, y = random(2, tokens, width, seed=seed), random(2, 1, width, seed=seed + 1)
    arrived = random(2, tokens, width, seed=seed + 2) * ((x + y).abs() > 1e-2)
    _, found, _ = handed(Model(torch.add), (x, y), RULES[rules], arrived)
    assert_conserved(found, arrived)


@given(SEEDS)
@settings(deadline=None, max_examples=20)
def test_in_tas_sum_each_side_gets_by_the_size_of_its_share_and_neither_more_than_there_is(seed):
    """TA Lemma 2: shares of opposite sign do not blow up."""
    x, y = random(2, 3, 4, seed=seed), random(2, 3, 4, seed=seed + 1)
    arrived = random(2, 3, 4, seed=seed + 2)
    _, found, _ = handed(Model(torch.add), (x, y), RULES["dtd"], arrived)
    for part in found:
        assert (sums(part).abs() <= sums(arrived).abs() * (1 + 1e-9)).all()
        assert (sums(part) * sums(arrived) >= -1e-12).all()


@pytest.mark.parametrize("rules", CONSERVING)
@given(seed=SEEDS, tokens=SIZES, width=SIZES)
@settings(deadline=None, max_examples=10)
def test_a_mean_is_conserved(rules, seed, tokens, width):
    x = random(2, tokens, width, seed=seed)
    arrived = random(2, width, seed=seed + 1) * (x.mean(dim=1).abs() > 1e-2)
    _, found, _ = handed(Model(lambda x: x.mean(dim=1)), (x,), RULES[rules], arrived)
    assert_conserved(found, arrived)


MOVES = [name for name, row in ROWS.items() if row.kind == "moving" and name != "cat with a class token"]


@pytest.mark.parametrize("name", [*MOVES, "times a constant", "gelu", "gelu_new", "RMSNorm in Python"])
@pytest.mark.parametrize("rules", ["z_plus", "dtd", "lrp", "attn_lrp"])
def test_what_moves_scales_or_bends_its_input_hands_on_all_that_arrives(name, rules):
    row = ROWS[name]
    output, _, _ = handed(row.model(), row.inputs, RULES[rules])
    arrived = random(*output.shape, seed=9).masked_fill(output == 0, 0.0)  # where a zero was put in, no input is
    _, found, _ = handed(row.model(), row.inputs, RULES[rules], arrived)
    assert float(sum(x.sum() for x in found)) == pytest.approx(float(arrived.sum()), rel=1e-12)


def test_the_worked_example_of_the_documentation_is_right():
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "relevance.md").read_text(encoding="utf-8")
    weight = torch.tensor([[2.0, -1.0, -1.0]], dtype=torch.float64)
    x, arrived = torch.tensor([[2.0, -3.0, 1.0]], dtype=torch.float64), torch.tensor([[6.0]], dtype=torch.float64)
    model = Model(F.linear, (weight,)).double().eval()
    for rule in (RULES["attn_lrp"], RULES["dtd"], RULES["z_plus"], RULES["lrp"]):
        _, (shares,), _ = handed(model, (x,), rule, arrived)
        figures = [f"{share:.2f}".removesuffix(".00") for share in [*shares[0].tolist(), shares.sum()]]
        row = " | ".join(figure.replace("-", "−").replace("−0", "0") for figure in figures)
        assert re.search(rf"\| `{rule['linear'].__name__}`: [^|]* \| {row} \|", page), (rule["linear"].__name__, row)


def test_the_codes_lrp_rule_hands_on_twice_what_arrives():
    """SPEC 1.4.1: the reason why it is no default."""
    x, weight = random(2, 3, 40), random(5, 40, seed=1)
    arrived = random(2, 3, 5, seed=2)
    _, found, _ = handed(Model(F.linear, (weight,)), (x,), RULES["lrp"], arrived)
    torch.testing.assert_close(sums(found[0]), 2 * sums(arrived), rtol=1e-6, atol=1e-9)


# Whose rows hold constants of one example each, or of which the first axis is not the examples
TOGETHER = {
    "times a mask",
    "mean over real tokens",
    "indices",
    "gather",
    "view",
    "permute and reshape",
    "stack",
    "add, broadcast over the examples",
    "attention, with a bias",
    "cat with a class token",
    "grouped_mm",
    "the weights of the chosen experts",
}


@pytest.mark.parametrize("name", sorted(ROWS.keys() - TOGETHER))
def test_a_batch_goes_back_like_its_examples_one_by_one(name):
    row = ROWS[name]
    with torch.no_grad():
        output = row.model()(*row.inputs)
    arrived = random(*output.shape, seed=9)
    arrived = arrived if row.silent is None else arrived.masked_fill(row.silent, 0.0)
    for rules in SETS.values():
        _, together, _ = handed(row.model(), row.inputs, rules, arrived)
        for number in range(BATCH):
            alone = [x[number : number + 1] for x in row.inputs]
            _, found, _ = handed(row.model(), alone, rules, arrived[number : number + 1])
            for part, whole in zip(found, together, strict=True):
                torch.testing.assert_close(part[0], whole[number], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("order", ["examples first", "tokens first", "folded into the tokens"])
def test_a_sum_is_balanced_per_example_wherever_the_examples_are(order):
    x, y, arrived = random(3, 4, 5), random(3, 4, 5, seed=1), random(3, 4, 5, seed=2)
    _, expected, _ = handed(Model(torch.add), (x, y), RULES["dtd"], arrived)
    turn, back = {
        "examples first": (lambda x: x, lambda x: x),
        "tokens first": (lambda x: x.transpose(0, 1), lambda x: x.transpose(0, 1)),
        "folded into the tokens": (lambda x: x.flatten(0, 1), lambda x: x.unflatten(0, (3, 4))),
    }[order]
    _, found, _ = handed(Model(lambda x, y: back(turn(x) + turn(y))), (x, y), RULES["dtd"], arrived)
    for part, whole in zip(found, expected, strict=True):
        torch.testing.assert_close(part, whole, rtol=1e-12, atol=1e-14)


class TokensFirst(nn.Module):
    """PyTorch's own encoder as it comes, tokens before examples."""

    def __init__(self, place: int):
        super().__init__()
        torch.manual_seed(0)
        self.place = place
        self.embed = nn.Embedding(30, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, input_ids: Tensor) -> Tensor:
        read: Tensor = self.head(self.encoder(self.embed(input_ids).transpose(0, 1))[self.place])
        return read


@pytest.mark.parametrize("examples", [2, 3, 4, 5])
@pytest.mark.parametrize("place", [0, -1])
def test_tokens_are_not_taken_for_examples_where_there_are_as_many(place, examples):
    model = TokensFirst(place).double().eval()
    ids = torch.randint(0, 30, (examples, 4), generator=torch.Generator().manual_seed(0))
    asked = {"target": 0, "method": "transformer_attribution", "readout": place % 4}
    found = attribute(model, {"input_ids": ids}, **asked)["text"]
    for number in range(examples):
        alone = attribute(model, {"input_ids": ids[number : number + 1]}, **asked)["text"]
        torch.testing.assert_close(found[number], alone[0], rtol=1e-7, atol=1e-12)


# Changes in place


def written_in_place(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    z = F.linear(x, weight)
    z += F.linear(y, weight)
    z.view(2, -1).mul_(1.5)
    return plus(z, x)


def written_anew(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    return (F.linear(x, weight) + F.linear(y, weight)) * 1.5 + x


@pytest.mark.parametrize("rules", SETS)
def test_what_an_operation_gave_is_remembered_when_the_model_changes_it_in_place(rules):
    outputs, found = zip(
        *(handed(Model(s, [W[:4]]), (X, Y), SETS[rules])[:2] for s in (written_in_place, written_anew)), strict=True
    )
    assert torch.equal(*outputs)
    for changed, expected in zip(*found, strict=True):
        torch.testing.assert_close(changed, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rules", SETS)
def test_what_is_changed_in_place_is_no_longer_what_it_was(rules):
    """A sigmoid says how much; multiplied by an activation it is one. A copy with something added is no copy."""

    def changed(x: Tensor, y: Tensor) -> Tensor:
        gate, copied = times(x.sigmoid(), y), plus(x.clone(), y)
        return gate * x + (copied + x)

    def anew(x: Tensor, y: Tensor) -> Tensor:
        return (x.sigmoid() * y) * x + ((x + y) + x)

    found = [handed(Model(spelled), (X, Y), SETS[rules])[1] for spelled in (changed, anew)]
    for part, expected in zip(*found, strict=True):
        torch.testing.assert_close(part, expected, rtol=1e-12, atol=1e-14)


def read_and_then_changed(x: Tensor, weight: Tensor) -> Tensor:
    x = x * 1.0
    z = x + weight
    x += 1.0
    return z + x


def test_what_an_operation_read_and_the_model_then_changes_in_place_is_refused():
    with pytest.raises(UnsupportedModel, match="changes a tensor in place that its relevance needs"):
        handed(Model(read_and_then_changed, [GAMMA]), (X,), RULES["dtd"])


# Where relevance starts


@pytest.mark.parametrize("rules", ["z_plus", "dtd", "attn_lrp", "cp_lrp"])
def test_a_contrast_is_the_difference_of_its_labels(rules):
    model, inputs = FAMILIES["bert"]().double(), inputs_of("bert")
    targets = (0, 1, contrast(0, 1))
    attributions = [attribute(model, inputs, target, "lrp", rules=rules) for target in targets]
    first, second, both = (attribution["text"] for attribution in attributions)
    assert float(both.abs().max()) > 1e-3 * float(first.abs().max())
    torch.testing.assert_close(both, first - second, rtol=1e-9, atol=1e-12)
    completeness = attributions[2].completeness
    assert rules in ("attn_lrp", "cp_lrp") or float(completeness.max()) < 1e-6


@dataclass
class Answered:
    logits: Tensor


class Answering(nn.Module):
    """A model whose output is a class of its own."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model, self.config = model, model.config

    def forward(self, **inputs: Tensor) -> Answered:
        return Answered(self.model(**inputs).logits)


@pytest.mark.parametrize("rules", ["dtd", "attn_lrp"])
def test_an_output_of_any_class_is_where_relevance_starts(rules):
    model, inputs = FAMILIES["bert"]().double(), inputs_of("bert")
    expected = attribute(model, inputs, 0, "partial_lrp", rules=rules)["text"]
    found = attribute(Answering(model).eval(), inputs, 0, "partial_lrp", rules=rules)["text"]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rules", ["z_plus", "dtd", "attn_lrp", "cp_lrp"])
def test_of_a_similarity_each_tower_starts_with_its_half(rules):
    """As if relevance went back through the product of the embeddings that the model computes itself."""
    made, inputs_made = STREAM_FAMILIES["clip"]
    model, inputs = made().double(), inputs_made()
    inputs["pixel_values"] = inputs["pixel_values"].double()
    found = attribute(model, inputs, method="lrp", rules=rules)
    with torch.no_grad():
        signs = model(**inputs).logits_per_image.diagonal().sign()[:, None]
    signs = signs if rules in ("z_plus", "dtd") else 1.0  # which start with 1, not with the score
    expected = attribute(model, inputs, lambda output: output.logits_per_image.diagonal(), "lrp", rules=rules)
    for stream in ("pixels", "text"):
        torch.testing.assert_close(found[stream], expected[stream] * signs, rtol=1e-3, atol=1e-6)


# Strictness


class Running(nn.Module):
    """An operation that no rule is known for."""

    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(dim=1)


def with_running_sums() -> nn.Module:
    model = built("ViTForImageClassification", "ViTConfig", **IMAGE).double()
    model.classifier = nn.Sequential(model.classifier, Running())
    return model.eval()


def test_an_operation_without_a_rule_is_named_with_its_module_and_the_way_out():
    model, inputs = with_running_sums(), {"pixel_values": random(2, 3, 32, 32)}
    message = (
        "Relevance reached cumsum in classifier.1, which has no rule. Use its gradient with strict=False, or add a "
        "rule with whyformer.backward.kinds.OPERATION_KINDS['cumsum'] = 'activation' (or another kind)."
    )
    for method in ("lrp", "partial_lrp", "transformer_attribution"):
        with pytest.raises(NoRule, match=re.escape(message)):
            attribute(model, inputs, 1, method)


def test_what_is_passed_for_want_of_a_rule_is_a_gradient_and_is_listed():
    model, inputs = with_running_sums(), {"pixel_values": random(2, 3, 32, 32)}
    attribution = attribute(model, inputs, 1, "lrp", strict=False)
    passed = attribution["pixels"]
    assert attribution.remarks == ("Backpropagated by gradient, without a rule: cumsum in classifier.1.",)
    plain = built("ViTForImageClassification", "ViTConfig", **IMAGE).double()
    single = [attribute(plain, inputs, label, "lrp")["pixels"] for label in (0, 1)]
    torch.testing.assert_close(passed, single[0] + single[1], rtol=1e-6, atol=1e-9)


def test_after_a_refusal_the_same_graph_still_gives_gradients():
    model, x = Model(lambda x, part: part(x), parts=[Running()]), random(2, 3)
    mode, leaf = RuleGraph(model, 2), x.clone().requires_grad_()
    output = Watcher(2, WatchPlan(graph=True), rules=mode).run(model, leaf)
    with pytest.raises(NoRule), mode.using(RULES["dtd"], strict=True):
        torch.autograd.grad(output, leaf, torch.ones(2, 3).double(), retain_graph=True)
    (gradient,) = torch.autograd.grad(output, leaf, torch.ones(2, 3).double())
    assert torch.equal(gradient, torch.tensor([[3.0, 2.0, 1.0]]).double().expand(2, 3))
    assert not mode.without_rule


def test_a_kind_given_to_an_operation_is_its_rule(monkeypatch):
    monkeypatch.setitem(OPERATION_KINDS, "cumsum", "share")
    x, arrived = random(2, 3), random(2, 3, seed=1)
    _, found, _ = handed(Model(lambda x: x.cumsum(dim=1)), (x,), RULES["dtd"], arrived)
    torch.testing.assert_close(found[0], TWINS["dtd"]["share"](arrived, lambda x: x.cumsum(dim=1), x)[0])


def test_an_operation_that_no_relevance_reaches_needs_no_rule():
    """Python's RMSNorm squares, which is in the denominator alone."""
    _, _, mode = handed(ROWS["RMSNorm in Python"].model(), (X,), RULES["dtd"])
    assert not mode.without_rule


# Precision


def halved(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """A model of bfloat16, and one of float32 with the very same weights."""
    half = model.bfloat16()
    return half, copy.deepcopy(half).float()


@pytest.mark.parametrize("rules", ["z_plus", "dtd", "attn_lrp", "cp_lrp"])
@pytest.mark.parametrize("family", ["vit", "bert", "modernbert"])
def test_a_model_of_half_precision_is_computed_in_float32_and_that_is_said(family, rules):
    half, single = halved(FAMILIES[family]())
    found = []
    for model in (half, single):
        attribution = attribute(model, inputs_of(family), 1, "lrp", rules=rules)
        (scores,) = attribution.values()
        found.append((scores, attribution.remarks))
    assert (found[0][0] - found[1][0]).abs().max() <= 1e-5 * found[1][0].abs().max()
    assert found[0][0].dtype == torch.float32
    assert found[0][1] == ("The model is in bfloat16; relevance was computed in float32.",)
    assert found[1][1] == ()


@pytest.mark.parametrize("method", ["partial_lrp", "transformer_attribution"])
def test_maps_of_a_model_of_half_precision_get_the_relevance_of_float32(method):
    half, single = halved(FAMILIES["vit"]())
    found = [attribute(model, inputs_of("vit"), 1, method, rules="dtd")["image"] for model in (half, single)]
    assert (found[0] - found[1]).abs().max() <= 1e-5 * found[1].abs().max()


@pytest.mark.parametrize(
    "name",
    ["matmul with a weight", "matmul with a transposed weight", "matmul, the weight first", "einsum with a weight"],
)
def test_a_weight_of_half_precision_is_a_weight(name):
    row = ROWS[name]
    half, single = halved(row.model())
    arrived = random(*single(X.float()).shape, seed=9).float()
    found = [handed(model, (X.float(),), RULES["dtd"], arrived)[1][0] for model in (half, single)]
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_an_output_whose_terms_are_all_negative_hands_on_no_rounding_in_float32():
    """Its sum of positive terms, computed as a difference, is rounding, and would be divided by."""
    for seed in range(40):
        x, weight, bias = random(2, 3, 4, seed=seed), random(5, 4, seed=seed + 1000), random(5, seed=seed + 2000)
        arrived = random(2, 3, 5, seed=seed + 3000)
        (expected,) = TWINS["dtd"]["linear"](arrived, lambda y, w=weight, b=bias: F.linear(y, w, b), x)
        model = Model(F.linear, (weight, bias)).float()
        _, found, _ = handed(model, (x.float(),), RULES["dtd"], arrived.float())
        assert (found[0] - expected).abs().max() <= 5e-3 * expected.abs().max()


@pytest.fixture
def tf32():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.usefixtures("tf32")
def test_tf32_is_refused_on_a_gpu(monkeypatch):
    model = Model(F.linear, (W,))
    RuleGraph(model, 2)  # on the CPU there is none
    monkeypatch.setattr("whyformer.backward.rule_graph.device_of", lambda model: torch.device("cuda"))
    with pytest.raises(
        WhyformerError,
        match=r"TF32 is on, which is too coarse for strict relevance: turn it off with torch\.backends\.cuda",
    ):
        RuleGraph(model, 2)
    RuleGraph(model, 2, precise=False)  # precision="fast" takes it as it is


@pytest.mark.parametrize("method", ["lrp", "partial_lrp"])
def test_autocast_around_it_changes_nothing(method):
    model, inputs = FAMILIES["bert"](), inputs_of("bert")
    expected = attribute(model, inputs, 0, method, rules="dtd")["text"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = attribute(model, inputs, 0, method, rules="dtd")["text"]
        assert torch.is_autocast_enabled("cpu")
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_masks_made_in_half_precision_are_what_they_would_be():
    kept = torch.tensor([[True, False, True]]).expand(2, 3)

    def spelled(x: Tensor) -> Tensor:
        shut = 1.0 - kept.to(torch.bfloat16) + torch.zeros_like(kept, dtype=torch.bfloat16)
        return x * shut[:, :, None]

    output, _, _ = handed(Model(spelled), (X,), RULES["dtd"])
    assert torch.equal(output, X * ~kept[:, :, None])


def test_a_score_that_does_not_depend_on_the_model_is_refused_in_so_many_words():
    model, inputs = FAMILIES["bert"](), inputs_of("bert")
    with pytest.raises(WhyformerError, match="the target does not depend on it"):
        attribute(model, inputs, lambda output: output.logits.detach()[:, 0], "lrp")


def test_relevance_taken_twice_from_one_trace_says_that_its_graph_is_used_up():
    asked = trace(FAMILIES["bert"](), inputs_of("bert"), 0, reads=Reads(inputs="relevances"))
    METHODS["lrp"](asked)
    with pytest.raises(WhyformerError, match="freed its graph: trace the model again"):
        METHODS["lrp"](asked)


@pytest.mark.parametrize("count", [1, 3])
def test_tensors_that_cannot_be_replaced_are_refused_by_the_name_of_the_operation(count):
    x = torch.zeros(2)
    assert replace_tensors([(x, 1), [x.long(), x]], [x + 1, x + 2], "cat")[1][1].tolist() == [2, 2]
    with pytest.raises(UnsupportedModel, match=f"replace {count} tensors of cat, and its arguments hold 2: pass"):
        replace_tensors([(x, 1), [x.long(), x]], [x] * count, "cat")

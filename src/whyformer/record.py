"""One seam into any model: a mode that watches its own forward pass and records every attention operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils.weak import WeakIdKeyDictionary

from whyformer import kernels
from whyformer.axes import HEAD, QUERY, AttentionMap, State, Values
from whyformer.errors import WhyformerError
from whyformer.provenance import KEEPING, MOVING, SWAPPING, Mixed, Move, Projection, Tag, Tap, Weights, Written

Function = Callable[..., Any]


@dataclass(frozen=True)
class AttentionRecord:
    """One attention operation: which tokens read which, how strongly, and what was read."""

    path: str
    block: int
    query_stream: str
    key_stream: str
    map: AttentionMap
    gradient: AttentionMap | None = None
    value: Values | None = None
    value_weight: Tensor | None = None
    output_weight: Tensor | None = None
    key_state: State | None = None


class Recorder(TorchFunctionMode):
    """Records the attention operations run inside its `with` block, from the `start`-th on.

    Earlier ones run on the model's own fused kernels without a graph. With `graph`, every map is in the graph of
    what follows it, also in a frozen model; parameters never are, so that no gradient of theirs can be computed.
    """

    def __init__(
        self,
        batch: int,
        *,
        graph: bool = False,
        start: int = 0,
        merge_heads: bool = False,
        states: bool = False,
    ):
        super().__init__()
        self.taps: list[Tap] = []
        self.seen = 0
        self._batch, self._graph, self._start = batch, graph, start
        self._merge_heads, self._states = merge_heads, states
        self._tags = WeakIdKeyDictionary()

    def __enter__(self) -> Self:
        if any(isinstance(mode, Recorder) for mode in _get_current_function_mode_stack()):
            raise WhyformerError("A model is already being explained here: explanations do not nest.")
        super().__enter__()
        return self

    def run(self, model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """The model's output, recorded. The caller's own gradient mode neither matters nor changes."""
        with torch.inference_mode(False), torch.set_grad_enabled(self._graph and self._start == 0), self:
            return model(*args, **kwargs)

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return func(*args, **kwargs)
        handler = HANDLERS.get(name)
        if handler is not None:
            return handler(self, func, args, kwargs)
        plain = _plain(args)
        result = func(*plain, **_plain_values(kwargs))
        if name in KEEPING and args:
            self._carry(self._tag(args[0]), result)
        elif name in MOVING and args:
            tag = self._tag(args[0])
            if isinstance(tag, Written) and name in SWAPPING:
                tag = replace(tag, is_swapped=not tag.is_swapped)
            self._carry(tag, result, lambda x: func(x, *plain[1:], **kwargs))
        return result

    def _tag(self, x: Any) -> Tag | None:
        tag: Tag | None = self._tags.get(x) if isinstance(x, Tensor) else None
        return tag

    def _carry(self, tag: Tag | None, result: Any, move: Function | None = None) -> None:
        if tag is None:
            return
        if not isinstance(result, Tensor):
            assert move is not None
            for number, part in enumerate(result):
                self._carry(tag, part, _part(move, number))
        elif isinstance(tag, Projection) and move is not None:
            self._tags[result] = replace(tag, moves=(*tag.moves, move))
        else:
            self._tags[result] = tag

    def _softmax(self, func: Function, args: Any, kwargs: Any) -> Any:
        result = func(*_plain(args), **kwargs)
        self._tags[result] = Weights()
        return result

    def _product(self, func: Function, args: Any, kwargs: Any) -> Any:
        operands = list(_plain(args))
        at = next((i for i, x in enumerate(operands) if isinstance(self._tag(x), Weights)), None)
        if at is None:
            return func(*operands, **_plain_values(kwargs))
        values = [x for i, x in enumerate(operands) if isinstance(x, Tensor) and i != at]
        operands[at] = self._tapped(operands[at])
        result = func(*operands, **kwargs)
        self._record(operands[at], values[0] if values else None, result)
        return result

    def _fused(self, func: Function, args: Any, kwargs: Any) -> Any:
        args, kwargs = _plain(args), _plain_values(kwargs)
        if self.seen < self._start:
            self.seen += 1
            return func(*args, **kwargs)
        tag = self._tag(args[2] if len(args) > 2 else kwargs["value"])
        weights, value = kernels.scaled_dot_product_attention(*args, **kwargs)
        self._carry(tag, value, lambda x: x.repeat_interleave(value.shape[-3] // x.shape[-3], dim=-3))
        weights = self._tapped(weights)
        result = weights @ value
        self._record(weights, value, result)
        return result

    def _packed(self, func: Function, args: Any, kwargs: Any) -> Any:
        # Calling it again would recurse: it asks for active modes itself. Re-entered, this mode sees each part of it.
        with self:
            return kernels.multi_head_attention(*args, **kwargs)

    def _tapped(self, weights: Tensor) -> Tensor:
        """The map as a tensor whose gradient can be asked for."""
        if not self._graph or self.seen < self._start:
            return weights
        if self._start:
            torch.set_grad_enabled(True)
        return weights if weights.requires_grad else weights.detach().requires_grad_()

    def _record(self, weights: Tensor, value: Tensor | None, mixed: Tensor) -> None:
        self.seen += 1
        if self.seen <= self._start:
            return
        precise = torch.promote_types(weights.dtype, torch.float32)
        kept = self._by_head(weights).mean(HEAD, keepdim=True, dtype=precise) if self._merge_heads else weights
        tap = Tap(kept)
        if self._states and value is not None:
            source = self._tag(value)
            tap.value, tap.value_source = value, source if isinstance(source, Projection) else None
        self.taps.append(tap)
        self._tags[mixed] = Mixed(tap, self._by_head(mixed.detach()) if self._states else None)

    def _by_head(self, x: Tensor) -> Tensor:
        return x if x.dim() == 4 else x.reshape(self._batch, -1, *x.shape[-2:])

    def _linear(self, func: Function, args: Any, kwargs: Any) -> Any:
        result = func(*_plain(args), **_plain_values(kwargs))
        if func.__name__ == "addmm":  # GPT-2's Conv1D: bias, input, transposed weight
            source, parameter = args[1:3]
            weight = parameter.detach().t()
        else:
            source, parameter = (*args, *kwargs.values())[:2]
            weight = parameter.detach()
        tag = self._tag(source)
        if isinstance(tag, Mixed):
            tag.tap.readers += 1
            if tag.tap.readers == 1:
                tag.tap.output_parameter, tag.tap.output_weight = parameter, weight
                self._tags[result] = Written(tag.tap)
                if tag.values is not None:
                    _compare_order(tag.tap, tag.values, source.reshape(-1, source.shape[-1]))
        elif self._states:
            self._tags[result] = Projection(weight, source, result.shape)
        return result

    def _add(self, func: Function, args: Any, kwargs: Any) -> Any:
        result = func(*_plain(args), **_plain_values(kwargs))
        for written, other in (args[:2], args[1::-1]) if self._states and len(args) > 1 else ():
            tag = self._tag(written)
            if not isinstance(tag, Written) or not isinstance(other, Tensor) or other.shape != written.shape:
                continue
            beside, source = self._tag(other), tag.tap.value_source
            if isinstance(beside, Projection) and (source is None or source.source is not other):
                self._tags[result] = tag  # another branch (a parallel MLP, an adapter): the residual is still to come
            elif tag.tap.query_state is None:
                tag.tap.query_state, tag.tap.state_is_swapped = other.detach(), tag.is_swapped
        return result

    def _scale(self, func: Function, args: Any, kwargs: Any) -> Any:
        result = func(*_plain(args), **_plain_values(kwargs))
        for tensor, factor in (args[:2], args[1::-1]) if len(args) > 1 else ():
            tag = self._tag(tensor)
            if isinstance(tag, Weights):
                self._tags[result] = tag
            elif isinstance(tag, Written) and _scales_channels(factor, tensor):
                if tag.tap.output_weight is not None:  # LayerScale belongs to W_o
                    tag.tap.output_weight = (tag.tap.output_weight.T * factor).T.detach()
                self._tags[result] = tag
            elif isinstance(tag, Projection) and not isinstance(factor, Tensor):
                self._tags[result] = replace(tag, weight=tag.weight * factor)
        return result


HANDLERS: dict[str, Callable[[Recorder, Function, Any, Any], Any]] = (
    {"scaled_dot_product_attention": Recorder._fused, "multi_head_attention_forward": Recorder._packed}
    | dict.fromkeys(["softmax"], Recorder._softmax)
    | dict.fromkeys(["matmul", "__matmul__", "bmm", "einsum"], Recorder._product)
    | dict.fromkeys(["linear", "addmm"], Recorder._linear)
    | dict.fromkeys(["add", "add_", "__add__", "__radd__", "__iadd__"], Recorder._add)
    | dict.fromkeys(["mul", "mul_", "__mul__", "__rmul__", "__imul__"], Recorder._scale)
)


def _plain(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with parameters cut off from the graph: their gradients are never wanted."""
    return tuple(
        x.detach() if isinstance(x, nn.Parameter) else type(x)(_plain(tuple(x))) if type(x) in (tuple, list) else x
        for x in args
    )


def _plain_values(kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(kwargs, _plain(tuple(kwargs.values())), strict=True)) if kwargs else kwargs


def _compare_order(tap: Tap, values: Values, rows: Tensor) -> None:
    """Whether heads lie side by side in W_o's input, and tokens before examples; not waited for here."""
    tap.heads_in_order = (rows[0] == values[0, :, 0].flatten()).all()
    if values.shape[QUERY] > 1:
        tap.tokens_first = (rows[1] != values[0, :, 1].flatten()).any()


def _part(move: Function, number: int) -> Move:
    return lambda x: move(x)[number]


def _scales_channels(factor: Any, tensor: Tensor) -> bool:
    return not isinstance(factor, Tensor) or factor.dim() == 0 or factor.shape == tensor.shape[-1:]

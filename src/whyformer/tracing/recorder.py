"""One seam into any model: a mode that watches its own forward pass and records every attention operation."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils.weak import WeakIdKeyDictionary

from whyformer.axes import HEAD, by_head
from whyformer.errors import WhyformerError
from whyformer.models.answering import run_model
from whyformer.models.weights import is_lending_weights, plain_weight, readable_weights
from whyformer.propagation.kinds import COPYING, KEEPING, MOVING
from whyformer.tracing import kernels
from whyformer.tracing.draws import drawn
from whyformer.tracing.frozen import Function, gradient_in_order, plain, plain_values
from whyformer.tracing.fused import is_faster_on_chip
from whyformer.tracing.kernels import KEPT, Attention
from whyformer.tracing.moves import PUTTING, check_fits, mixes, moved, part_of, projected, repeating, tag_of_all
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
from whyformer.tracing.tap import Tap


class Recorder(TorchFunctionMode):
    """Records the attention operations run inside its `with` block, from the `start`-th on.

    Earlier ones run on the model's own fused kernels without a graph. With `graph`, every map is in the graph of
    what follows it, also in a frozen model; parameters never are, so that no gradient of theirs can be computed.
    `mode` is entered beneath this one: it sees what this one lets run, and can take it back by other rules than the
    gradient's; `above` is entered last, and sees all that the model runs. `keep_maps` keeps every map, however large,
    `fold` none that can be made again; `shapes_only` notes what maps there are, and lets everything run as it is.
    `edges` also keeps the state that each attention adds up to.
    """

    def __init__(
        self,
        batch: int,
        *,
        graph: bool = False,
        start: int = 0,
        merge_heads: bool = False,
        states: bool = False,
        mode: AbstractContextManager[Any] | None = None,
        keep_maps: bool = False,
        fold: bool = False,
        shapes_only: bool = False,
        edges: bool = False,
        above: AbstractContextManager[Any] | None = None,
    ):
        super().__init__()
        self.taps: list[Tap] = []
        self.seen = 0
        self._batch, self._graph, self._start = batch, graph, start
        self._merge_heads, self._states, self._edges = merge_heads, states, edges
        self._mode, self._above = (nullcontext() if x is None else x for x in (mode, above))
        self._keep_maps, self._fold, self._shapes_only = keep_maps, fold, shapes_only
        self._tags: MutableMapping[Tensor, Tag] = WeakIdKeyDictionary()
        self._originals: MutableMapping[Tensor, Tensor] = WeakIdKeyDictionary()  # what copies were made of

    def __enter__(self) -> Self:
        if any(isinstance(mode, Recorder) for mode in _get_current_function_mode_stack()):
            raise WhyformerError("A model is already being explained here: explanations do not nest.")
        super().__enter__()
        return self

    def run(self, model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """The model's output, recorded. The caller's own gradient mode neither matters nor changes."""
        graph, ready = self._graph and self._start == 0, readable_weights(model)
        with torch.inference_mode(False), torch.set_grad_enabled(graph), ready, self._mode, self, self._above:
            return run_model(model, *args, **kwargs)

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if is_lending_weights():
            return func(*args, **kwargs)
        if name == "__get__":  # of a parameter, weight.T is as little in the graph as the weight
            value = func(*args, **kwargs)
            if isinstance(value, Tensor) and isinstance(args[0], nn.Parameter):
                value = value.detach()
                self._set(value, Transposed.of(args[0], value))
            return value
        if (handler := HANDLERS.get(name)) is not None:
            return handler(self, func, args, kwargs)
        constants = plain(args)
        tag = self._tag(args[0]) if args else None
        original = self._original(args[0]) if self._states and args and name in COPYING else None
        result = gradient_in_order(name, func(*constants, **plain_values(kwargs)))
        if name in KEEPING:
            self._carry(tag, result)
        elif name in MOVING or name in PUTTING:
            self._carry(moved(tag, name, args), result, lambda x: func(x, *constants[1:], **kwargs))
        elif name == "cat" and (tag := tag_of_all(constants, kwargs, self._tag)) is not None:
            self._carry(tag, result)
        elif name == "rsqrt" or (name == "pow" and type(constants[1]) is float and constants[1] < 0):
            self._set(result, Spread())
        else:
            tag = sampled(name, args, self._tag) if name in SAMPLING else None
            self._set(result, Scores() if name == "baddbmm" else tag or self._scores(args))
        if original is not None and original is not result:
            self._originals[result] = original
        return result

    def _tag(self, x: Any) -> Tag | None:
        return self._tags.get(x) if isinstance(x, Tensor) else None

    def _original(self, x: Tensor) -> Tensor:
        """What a tensor is a copy of; itself where it is none."""
        return self._originals.get(x, x)

    def _set(self, result: Any, tag: Tag | None) -> None:
        """Give the result its tag; after an operation in place, what was known of it no longer holds."""
        if isinstance(result, Tensor):
            self._originals.pop(result, None)
            self._tags.pop(result, None)
            if tag is not None:
                self._tags[result] = tag

    def _scores(self, args: tuple[Any, ...]) -> Scores | None:
        """Scores stay scores under biases, masks, scales and all else that is done to them before the softmax."""
        parts = [y for x in args for y in (x if type(x) in (tuple, list) else (x,))]
        return next((tag for tag in map(self._tag, parts) if isinstance(tag, Scores)), None)

    def _carry(self, tag: Tag | None, result: Any, move: Function | None = None) -> None:
        if isinstance(result, Tensor):
            if isinstance(tag, Projection) and move is not None:
                tag = replace(tag, moves=(*tag.moves, move))
            self._set(result, tag)
        elif tag is not None and isinstance(result, (tuple, list)) and move is not None:
            for number, part in enumerate(result):
                self._carry(tag, part, part_of(move, number))

    def _softmax(self, func: Function, args: Any, kwargs: Any) -> Any:
        result = func(*plain(args), **kwargs)
        over_keys = (args[1] if len(args) > 1 else kwargs.get("dim")) in (-1, result.dim() - 1)
        self._set(result, Weights() if over_keys and isinstance(self._tag(args[0]), Scores) else None)
        return result

    def _product(self, func: Function, args: Any, kwargs: Any) -> Any:
        at = 1 if func.__name__ == "einsum" else 0
        args = (*args[:1], *args[1]) if at and type(args[1]) in (tuple, list) else args  # both spellings of einsum
        operands = list(plain(args))
        if len(operands) < at + 2 or not isinstance(self._tag(operands[at]), Weights) or not mixes(operands):
            result = func(*operands, **plain_values(kwargs))
            factor = self._tag(args[1]) if len(args) > 1 else None
            if isinstance(factor, Transposed) and at == 0:  # a linear layer, as Falcon writes it
                self._project(args[0], factor.parameter, plain_weight(factor.parameter), result)
            else:
                self._set(result, None if any(isinstance(x, nn.Parameter) for x in args) else Scores())
            return result
        operands[at] = self._with_probe(operands[at])
        operands[at + 1] = operands[at + 1] if at else self._for_each_head(operands[1], operands[0])
        result = func(*operands, **kwargs)
        self._record(operands[at], operands[at + 1], result, probe=operands[at])
        return result

    def _fused(self, func: Function, args: Any, kwargs: Any) -> Any:
        args, kwargs = plain(args), plain_values(kwargs)
        if self.seen < self._start:
            self.seen += 1
            return func(*args, **kwargs)
        attention = Attention(*args, **kwargs)
        if (self._fold or self._shapes_only) and attention.dtype in (torch.float32, torch.float64):
            attention, tag = attention.with_own_keys(), self._tag(attention.value)
            self._carry(tag, attention.value, repeating(attention.value.shape))
        if self._shapes_only:
            result = attention.mixed()
            self._record(attention, attention.value, result, probe=result)
            return result
        is_kept = attention.shape.numel() <= KEPT * self._batch and not is_faster_on_chip(attention)
        if attention.can_be_repeated and not self._keep_maps and (self._fold or not is_kept):
            return self._run_fused(attention)
        weights, value = kernels.scaled_dot_product_attention(*args, **kwargs)
        self._carry(self._tag(attention.value), value, repeating(value.shape))
        value = self._for_each_head(value, weights)
        weights = self._with_probe(weights)
        result = weights @ value
        self._record(weights, value, result, probe=weights)
        return result

    def _sum(self, func: Function, args: Any, kwargs: Any) -> Any:
        result, tag = func(*plain(args), **plain_values(kwargs)), self._tag(args[0])
        if not isinstance(tag, Sampled) or tag.weights is None:
            self._set(result, self._scores(args))
            return result
        attention = SampledAttention.of(tag, self._batch)
        mixed = self._with_probe(result.unflatten(0, (self._batch, -1)).mT)
        self._record(attention, attention.value, mixed, probe=mixed, value_tag=value_tag(tag, self._batch))
        moved_back = mixed.mT.flatten(0, 1)
        self._carry(self._tag(mixed), moved_back)
        return moved_back

    def _for_each_head(self, value: Any, weights: Tensor) -> Any:
        """The values once for each head of the map, where all heads read the same ones; einsum names its axes."""
        if not isinstance(value, Tensor) or value.dim() != 4 or value.shape[1] == weights.shape[1]:
            return value
        by_head = value.expand(-1, weights.shape[1], -1, -1)
        self._carry(self._tag(value), by_head, lambda x: x.expand(-1, weights.shape[1], -1, -1))
        return by_head

    def _run_fused(self, attention: Attention) -> Tensor:
        """Attention left to the fused kernels: its map and gradient, too large to keep, are made when they are read."""
        tag = self._tag(attention.value)
        if isinstance(tag, Projection):  # each value head may be read by several query heads
            tag = replace(tag, moves=(*tag.moves, repeating(attention.query.shape)))
        mixed = self._with_probe(attention.mixed())
        result = mixed.clone() if self._graph else mixed  # the model may change it in place
        self._record(attention.detached(), attention.value, result, probe=mixed, value_tag=tag)
        return result

    def _packed(self, func: Function, args: Any, kwargs: Any) -> Any:
        # Calling it again would recurse: it asks for active modes itself. Re-entered, this mode sees each part of it.
        with self:
            return kernels.multi_head_attention(*args, **kwargs)

    def _with_probe(self, x: Tensor) -> Tensor:
        """A map, or the values it mixed, as a tensor whose gradient can be taken."""
        if not self._graph or self.seen < self._start or self._shapes_only:
            return x
        if self._start:
            torch.set_grad_enabled(True)
        return x if x.requires_grad else x.detach().requires_grad_()

    def _record(
        self,
        weights: Tensor | Attention | SampledAttention,
        value: Tensor,
        mixed: Tensor,
        *,
        probe: Tensor,
        value_tag: Tag | None = None,
    ) -> None:
        self.seen += 1
        if self.seen <= self._start:
            return
        is_folded = len(weights.shape) == 3 and self._batch > 1  # heads or examples first: compared later
        if is_folded:
            check_fits(weights.shape, self._batch)
        if isinstance(weights, Tensor) and self._merge_heads:
            precise = torch.promote_types(weights.dtype, torch.float32)
            weights = by_head(weights, self._batch).mean(HEAD, keepdim=True, dtype=precise)
        if self._shapes_only:
            weights = torch.empty(weights.shape, dtype=weights.dtype, device="meta")
        tap = Tap(weights, is_folded, probe if self._graph and not self._shapes_only else None)
        if self._states:
            source = self._tag(value) if value_tag is None else value_tag
            tap.value, tap.value_source = value, source if isinstance(source, Projection) else None
        self.taps.append(tap)
        keeps = (self._states or is_folded) and mixed.dim() in (3, 4)
        self._set(mixed, Mixed(tap, by_head(mixed.detach(), self._batch) if keeps else None))

    def _linear(self, func: Function, args: Any, kwargs: Any) -> Any:
        result = func(*plain(args), **plain_values(kwargs))
        is_transposed = func.__name__ == "addmm"  # GPT-2's Conv1D: bias, input, transposed weight
        source, parameter = args[1:3] if is_transposed else (*args, *kwargs.values())[:2]
        weight = plain_weight(parameter)
        self._project(source, parameter, weight.t() if is_transposed else weight, result)
        return result

    def _project(self, source: Tensor, parameter: Tensor, weight: Tensor, result: Any) -> None:
        """The result is a linear projection of the source."""
        tag = self._tag(source)
        if isinstance(tag, Mixed):
            self._set(result, projected(tag, source, parameter, weight, result if self._edges else None))
        elif isinstance(tag, Branch):
            self._set(result, replace(tag, weight=weight @ tag.weight))
        elif self._states:
            self._set(result, Projection.of(source, tag, weight, result.shape, self._original(source)))

    def _norm(self, func: Function, args: Any, kwargs: Any) -> Any:
        result = func(*plain(args), **plain_values(kwargs))
        if self._states:
            tag, original, centres = self._tag(args[0]), self._original(args[0]), func.__name__ == "layer_norm"
            self._set(result, normed(tag, args, kwargs, original, centres=centres, batch=self._batch))
        return result

    def _add(self, func: Function, args: Any, kwargs: Any) -> Any:
        first = args[0]
        kept = first.detach().clone() if self._states and func.__name__ in ("add_", "__iadd__") else first
        pairs = ((first, args[1]), (args[1], first)) if len(args) > 1 else ()
        tag: Tag | None = self._scores(args)
        sums: list[tuple[Written, Tensor]] = []  # what attention writes here, and the state that it is added to
        together = with_adapter(*map(self._tag, args[:2])) if self._states and pairs and not kwargs else None
        if together is not None:
            tag, pairs = together, ()
        for written, other in pairs if self._states else ():
            origin = self._tag(written)
            if isinstance(origin, Written) and isinstance(other, Tensor) and other.shape == written.shape:
                state = (kept if other is first else other).detach()
                addend = Addend(other, state, self._original(other), self._tag(other))
                is_residual = origin.tap.add_to(origin, written, addend)
                sums += [(origin, state)] if self._edges and (is_residual or may_be_state(addend.tag)) else []
                if is_residual:
                    tag = None
                    break
                tag = replace(origin, is_joined=True)  # by a parallel MLP, an adapter: the residual is still to come
            tag = tag or biased(origin, written, other)
        result = func(*plain(args), **plain_values(kwargs))
        for output, state in sums:
            output.tap.add_up(output, state, result)
        self._set(result, tag)
        return result

    def _scale(self, func: Function, args: Any, kwargs: Any) -> Any:
        tag: Tag | None = self._scores(args) or sampled("mul", args, self._tag)
        for tensor, factor in (args[:2], args[1::-1]) if len(args) > 1 else ():
            tag = scaled(self._tag(tensor), tensor, factor, self._tag(factor), self._batch) or tag
        result = func(*plain(args), **plain_values(kwargs))
        self._set(result, tag)
        return result


HANDLERS: dict[str, Callable[[Recorder, Function, Any, Any], Any]] = (
    {
        "scaled_dot_product_attention": Recorder._fused,
        "multi_head_attention_forward": Recorder._packed,
        "softmax": Recorder._softmax,
        "sum": Recorder._sum,
    }
    | dict.fromkeys(["matmul", "__matmul__", "bmm", "einsum"], Recorder._product)
    | dict.fromkeys(["multinomial", "randperm"], lambda _, func, args, kwargs: drawn(func, args, kwargs))
    | dict.fromkeys(["linear", "addmm"], Recorder._linear)
    | dict.fromkeys(["layer_norm", "rms_norm"], Recorder._norm)
    | dict.fromkeys(["add", "add_", "__add__", "__radd__", "__iadd__"], Recorder._add)
    | dict.fromkeys(["mul", "mul_", "__mul__", "__rmul__", "__imul__", "multiply"], Recorder._scale)
)

"""One seam into any model: a mode that watches its own forward pass and records every attention operation."""

from __future__ import annotations

from collections.abc import MutableMapping
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
from whyformer.models.calls import lends_weights
from whyformer.models.weights import is_lending_weights, readable_weights
from whyformer.tracing.biases import BiasTerms, added_bias
from whyformer.tracing.draws import even_choice
from whyformer.tracing.frozen import Function, plain, plain_values
from whyformer.tracing.handlers import HANDLERS, other_operation
from whyformer.tracing.mixing import LinearMixing
from whyformer.tracing.moves import check_fits, part_of
from whyformer.tracing.tags import (
    Mixed,
    Projection,
    Scores,
    Tag,
)
from whyformer.tracing.tap import Tap


class Recorder(TorchFunctionMode):
    """Records the attention operations run inside its `with` block, from the `start`-th on.

    Earlier ones run on the model's own fused kernels without a graph. With `graph`, every map is in the graph of
    what follows it, also in a frozen model; parameters never are, so that no gradient of theirs can be computed.
    `mode` is entered beneath this one: it sees what this one lets run, and can take it back by other rules than the
    gradient's; `biases` takes note of what is added. Unless it `watches`, parameters are constants, and that is all.
    `keep_maps` keeps every map, however large, `fold` none that can be made again; `shapes_only` notes what maps there
    are, and lets everything run as it is. `edges` also keeps the state that each attention adds up to.
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
        biases: BiasTerms | None = None,
        watches: bool = True,
    ):
        super().__init__()
        self.taps: list[Tap] = []
        self.seen = 0
        self.batch, self.graph, self.start = batch, graph, start
        self.merge_heads, self.states, self.edges = merge_heads, states, edges
        self._mode, self._biases = nullcontext() if mode is None else mode, biases
        self._watches, self.lends = watches, False
        self.keep_maps, self.fold, self.shapes_only = keep_maps, fold, shapes_only
        self._tags: MutableMapping[Tensor, Tag] = WeakIdKeyDictionary()
        self._originals: MutableMapping[Tensor, Tensor] = WeakIdKeyDictionary()  # what copies were made of

    def __enter__(self) -> Self:
        if any(isinstance(mode, Recorder) for mode in _get_current_function_mode_stack()):
            raise WhyformerError("A model is already being explained here: explanations do not nest.")
        super().__enter__()
        return self

    def run(self, model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """The model's output, recorded. The caller's own gradient mode neither matters nor changes."""
        self.lends = lends_weights(model)
        graph, ready = self.graph and self.start == 0, readable_weights(model)
        with torch.inference_mode(False), torch.set_grad_enabled(graph), ready, self._mode, self:
            return run_model(model, *args, **kwargs)

    def __torch_function__(
        self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.lends and is_lending_weights():
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if not self._watches:
            choice = even_choice(args, kwargs) if func is torch.multinomial else None
            return func(*plain(args), **plain_values(kwargs)) if choice is None else choice
        handler = HANDLERS.get(name, other_operation)
        if self._biases is None:
            return handler(self, func, args, kwargs)
        bias = added_bias(name, args, kwargs)
        result = handler(self, func, args, kwargs)
        self._biases.note(bias, result)
        return result

    def tag(self, x: Any) -> Tag | None:
        """What is known of a tensor."""
        return self._tags.get(x) if isinstance(x, Tensor) else None

    def original(self, x: Tensor) -> Tensor:
        """What a tensor is a copy of; itself where it is none."""
        return self._originals.get(x, x)

    def set_original(self, copy: Tensor, original: Tensor) -> None:
        """Note what a tensor is a copy of."""
        self._originals[copy] = original

    def set(self, result: Any, tag: Tag | None) -> None:
        """Give the result its tag; after an operation in place, what was known of it no longer holds."""
        if isinstance(result, Tensor):
            self._originals.pop(result, None)
            self._tags.pop(result, None)
            if tag is not None:
                self._tags[result] = tag

    def scores(self, args: tuple[Any, ...]) -> Scores | None:
        """Scores stay scores under biases, masks, scales and all else that is done to them before the softmax."""
        parts = [y for x in args for y in (x if type(x) in (tuple, list) else (x,))]
        return next((tag for tag in map(self.tag, parts) if isinstance(tag, Scores)), None)

    def carry(self, tag: Tag | None, result: Any, move: Function | None = None) -> None:
        """Give the result, or each part of it, the tag of what it was moved from."""
        if isinstance(result, Tensor):
            if isinstance(tag, Projection) and move is not None:
                tag = replace(tag, moves=(*tag.moves, move))
            self.set(result, tag)
        elif tag is not None and isinstance(result, (tuple, list)) and move is not None:
            for number, part in enumerate(result):
                self.carry(tag, part, part_of(move, number))

    def with_probe(self, x: Tensor) -> Tensor:
        """A map, or the values it mixed, as a tensor whose gradient can be taken."""
        if not self.graph or self.seen < self.start or self.shapes_only:
            return x
        if self.start:
            torch.set_grad_enabled(True)
        return x if x.requires_grad else x.detach().requires_grad_()

    def record(
        self,
        weights: Tensor | LinearMixing,
        value: Tensor,
        mixed: Tensor,
        *,
        probe: Tensor,
        value_tag: Tag | None = None,
    ) -> None:
        """Note an attention operation: its map, the values it mixed, and what came of them."""
        self.seen += 1
        if self.seen <= self.start:
            return
        is_folded = len(weights.shape) == 3 and self.batch > 1  # heads or examples first: compared later
        if is_folded:
            check_fits(weights.shape, self.batch)
        if isinstance(weights, Tensor) and self.merge_heads:
            precise = torch.promote_types(weights.dtype, torch.float32)
            weights = by_head(weights, self.batch).mean(HEAD, keepdim=True, dtype=precise)
        if self.shapes_only:
            weights = torch.empty(weights.shape, dtype=weights.dtype, device="meta")
        tap = Tap(weights, is_folded, probe if self.graph and not self.shapes_only else None)
        if self.states:
            source = self.tag(value) if value_tag is None else value_tag
            tap.value, tap.value_source = value, source if isinstance(source, Projection) else None
        self.taps.append(tap)
        keeps = (self.states or is_folded) and mixed.dim() in (3, 4)
        self.set(mixed, Mixed(tap, by_head(mixed.detach(), self.batch) if keeps else None))

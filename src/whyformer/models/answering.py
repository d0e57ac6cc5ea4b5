"""Run models whose own output hides the logits, so that these are returned."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from torch import nn

from whyformer.errors import misfits_in_one_line
from whyformer.models.calls import reroute_checkpoints

# The submodule that returns the logits, for models whose own output has none.
ANSWERING = {"BlipForQuestionAnswering": "text_decoder"}


def forward_arguments(model: nn.Module) -> frozenset[str]:
    """The names of the arguments of a model's forward pass."""
    return _parameters(getattr(model.forward, "__func__", model.forward))


@lru_cache(maxsize=256)
def _parameters(forward: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(forward).parameters)


def hides_logits(model: nn.Module) -> bool:
    """Whether the model's own output lacks the logits that a decoder within it returns."""
    return type(model).__name__ in ANSWERING


def run_model(model: nn.Module, *args: Any, **inputs: Any) -> Any:
    """Return the model's output, or that of the submodule with the logits; report its errors in one line."""
    with misfits_in_one_line(type(model).__name__), reroute_checkpoints(model):
        return _answer(model, *args, **inputs) if hides_logits(model) else model(*args, **inputs)


def _answer(model: nn.Module, *args: Any, **inputs: Any) -> Any:
    outputs: list[Any] = []
    own = threading.get_ident()

    def keep(module: nn.Module, arguments: Any, output: Any) -> None:
        if threading.get_ident() == own:  # a hook fires in every thread that runs the model
            outputs.append(output)

    handle = model.get_submodule(ANSWERING[type(model).__name__]).register_forward_hook(keep)
    try:
        model(*args, **inputs)
    finally:
        handle.remove()
    return outputs[-1]

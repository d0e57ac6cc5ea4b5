"""Weights that accelerate loads when a module runs, and offloads afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from whyformer.models.calls import Call
from whyformer.models.structure import modules_of, once_per_walk
from whyformer.models.substitutes import Substitution, substitute

_THREAD = threading.local()  # `activations` are the arguments of the hook that is running


@once_per_walk
def lends_weights(model: nn.Module) -> bool:
    """Whether accelerate loads the weights of a model when a module runs and offloads them afterwards."""
    return bool([module for module in modules_of(model).values() if "_hf_hook" in vars(module)])


def is_lending_weights(args: tuple[Any, ...]) -> bool:
    """Whether an operation with these arguments only loads or offloads a weight, within `hooks_noted`.

    Such a weight must stay a Parameter of its own dtype, because anything a mode returns would stay in the model.
    Hooks also move activations to the device of the module, which modes must see.
    """
    activations = getattr(_THREAD, "activations", None)
    return activations is not None and not any(id(x) in activations for x in args[:1])


def hooks_noted(model: nn.Module) -> AbstractContextManager[None]:
    """Within the context, `is_lending_weights` knows when a hook of accelerate runs in its thread."""
    return substitute(_entries(model))


def _entries(model: nn.Module) -> Iterator[Substitution]:
    for module in modules_of(model).values():
        hook = vars(module).get("_hf_hook")
        for name in () if hook is None else ("pre_forward", "post_forward"):
            yield vars(hook), name, partial(_noted, hook, name)


def _noted(hook: Any, name: str) -> Call:
    """A method of a hook that notes its arguments while it runs."""
    own: Call = getattr(hook, name)

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        before = getattr(_THREAD, "activations", None)
        _THREAD.activations = frozenset(id(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor))
        try:
            return own(module, *args, **kwargs)
        finally:
            _THREAD.activations = before

    return call

"""Reroute module calls for one thread, without affecting the passes of others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import nn

from whyformer.models.structure import modules_of

Call = Callable[..., Any]
# nn.Module.__call__ looks this up before hooks and forward; if present, it replaces all of them.
COMPILED_CALL = "_compiled_call_impl"
WRAPPED = "_checkpoint_wrapped_module"  # the name of the module inside a wrapper

_LOCK = threading.RLock()
_USERS: dict[nn.Module, tuple[Call | None, set[object]]] = {}  # the previous entry, and the users that reroute it
_THREAD = threading.local()


@contextmanager
def reroute_calls(modules: Sequence[nn.Module], make: Callable[[nn.Module, Call], Call]) -> Iterator[None]:
    """Within the context and this thread, calling a module calls `make(module, its own call)` instead.

    Its own call includes its hooks, but no wrapper that would rerun it for its gradient. Modules that are already
    rerouted stay so. Other threads are not affected.
    """
    user, before = object(), _calls()
    try:
        with _LOCK:
            for module in modules:
                _add_user(module, user)
        _THREAD.calls = {module: make(module, _wrapped(module) or _own_call(module)) for module in modules} | before
        yield
    finally:
        _THREAD.calls = before
        with _LOCK:
            for module in modules:
                _remove_user(module, user)


def lends_weights(model: nn.Module) -> bool:
    """Whether accelerate loads the weights of a model when a module runs and offloads them afterwards."""
    return any("_hf_hook" in vars(module) for module in modules_of(model).values())


def reroute_checkpoints(model: nn.Module) -> AbstractContextManager[None]:
    """Within the context and this thread, run modules without PyTorch's checkpoint wrappers, which hide their graph."""
    wrapped = [module for module in modules_of(model).values() if WRAPPED in module._modules]
    return reroute_calls(wrapped, lambda _, own_call: own_call)


def _wrapped(module: nn.Module) -> nn.Module | None:
    """The module inside a torch.distributed.algorithms._checkpoint wrapper; None for any other module."""
    return module._modules.get(WRAPPED)


def _add_user(module: nn.Module, user: object) -> None:
    _, users = _USERS.setdefault(module, (vars(module).get(COMPILED_CALL), set()))
    users.add(user)
    if len(users) == 1:
        own = _own_call(module)
        vars(module)[COMPILED_CALL] = lambda *args, **kwargs: _calls().get(module, own)(*args, **kwargs)


def _remove_user(module: nn.Module, user: object) -> None:
    """Restore the entry after its last user; an interrupt may have come before this user was added."""
    entry, users = _USERS.get(module, (None, {user}))
    users.discard(user)
    if not users and _USERS.pop(module, None) is not None:
        vars(module).pop(COMPILED_CALL, None)
        vars(module).update({} if entry is None else {COMPILED_CALL: entry})


def _own_call(module: nn.Module) -> Call:
    """The module's call without rerouting."""
    entry, _ = _USERS[module]
    call: Call = module._call_impl if entry is None else entry
    return call


def _calls() -> dict[nn.Module, Call]:
    calls: dict[nn.Module, Call] = getattr(_THREAD, "calls", {})
    return calls

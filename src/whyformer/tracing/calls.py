"""Calls of modules rerouted for one thread: its own pass goes another way, every other thread's runs as ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

Call = Callable[..., Any]
# Where nn.Module.__call__ looks before it runs hooks and forward: what it finds stands for all of them.
ENTRY = "_compiled_call_impl"

_LOCK = threading.RLock()
_USERS: dict[nn.Module, tuple[Call | None, set[object]]] = {}  # what was at the entry, and who has it rerouted
_THREAD = threading.local()


@contextmanager
def reroute_calls(modules: Sequence[nn.Module], make: Callable[[nn.Module, Call], Call]) -> Iterator[None]:
    """While inside, and in this thread, calling a module calls what `make` makes of it and of its own call.

    Its own call includes its hooks. Passes of other threads through the same modules are not affected.
    """
    user, before = object(), getattr(_THREAD, "calls", {})
    try:
        with _LOCK:
            for module in modules:
                _add_user(module, user)
        _THREAD.calls = before | {module: make(module, _own_call(module)) for module in modules}
        yield
    finally:
        _THREAD.calls = before
        with _LOCK:
            for module in modules:
                _remove_user(module, user)


def _add_user(module: nn.Module, user: object) -> None:
    _, users = _USERS.setdefault(module, (vars(module).get(ENTRY), set()))
    users.add(user)
    if len(users) == 1:
        own = _own_call(module)
        vars(module)[ENTRY] = lambda *args, **kwargs: _calls().get(module, own)(*args, **kwargs)


def _remove_user(module: nn.Module, user: object) -> None:
    """Restore the entry once nobody uses it; an interrupt may have come before this user was added."""
    entry, users = _USERS.get(module, (None, {user}))
    users.discard(user)
    if not users and _USERS.pop(module, None) is not None:
        vars(module).pop(ENTRY, None)
        vars(module).update({} if entry is None else {ENTRY: entry})


def _own_call(module: nn.Module) -> Call:
    """The module's call as it is without rerouting."""
    entry, _ = _USERS[module]
    call: Call = module._call_impl if entry is None else entry
    return call


def _calls() -> dict[nn.Module, Call]:
    calls: dict[nn.Module, Call] = getattr(_THREAD, "calls", {})
    return calls

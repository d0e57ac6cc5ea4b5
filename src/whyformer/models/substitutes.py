"""Functions that stand in for those of a model while it is explained, and are removed after their last user."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Substitution = tuple[dict[str, Any], str, Callable[[], Any]]  # a namespace, a name in it, and what makes the substitute

_LOCK = threading.RLock()
_SUBSTITUTES: dict[tuple[int, str], _Substitute] = {}  # by the namespace and the name


@dataclass(eq=False)
class _Substitute:
    namespace: dict[str, Any]
    own: dict[str, Any]  # the entry it replaces; empty without one, such as for a method of the class
    users: set[object] = field(default_factory=set)


@contextmanager
def substitute(entries: Iterable[Substitution]) -> Iterator[None]:
    """Within the context, entries of namespaces are replaced: of a module, of a hook, of a file.

    All threads see a substitute, so it must act for the threads that want it only. Contexts may overlap, also in other
    threads: the first one makes a substitute, and the last one restores the original.
    """
    user, used = object(), []
    try:
        with _LOCK:
            for namespace, name, make in entries:
                used.append((namespace, name))
                if (id(namespace), name) not in _SUBSTITUTES:
                    value, own = make(), {name: namespace[name]} if name in namespace else {}
                    _SUBSTITUTES[id(namespace), name] = _Substitute(namespace, own)
                    namespace[name] = value
                _SUBSTITUTES[id(namespace), name].users.add(user)
        yield
    finally:
        with _LOCK:
            for namespace, name in used:
                _leave(namespace, name, user)


def _leave(namespace: dict[str, Any], name: str, user: object) -> None:
    """Restore an entry after its last user; an interrupt may have come before it was replaced."""
    known = _SUBSTITUTES.get((id(namespace), name))
    if known is None:
        return
    known.users.discard(user)
    if not known.users:
        namespace.pop(name, None)
        namespace.update(known.own)
        del _SUBSTITUTES[id(namespace), name]

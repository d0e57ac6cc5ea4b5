"""Reroute calls of modules and of kernels for one thread, without affecting the passes of others."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function

from whyformer.models.structure import modules_of, once_per_walk, walk
from whyformer.models.substitutes import substitute

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


class KernelCall:
    """A function in place of a model's kernel: function modes of its thread see the call as one operation.

    Without a mode, as in all other threads, it is the kernel itself.
    """

    def __init__(self, name: str, own: Call):
        self.__name__, self.own = name, own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch._C._len_torch_function_stack():
            return self.own(*args, **kwargs)
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        return handle_torch_function(self, tensors, *args, **kwargs)


def reroute_kernels(model: nn.Module, owners: Mapping[str, str]) -> AbstractContextManager[None]:
    """Within the context, kernels are called as one operation each, which function modes see.

    Kernels, given by their names, are functions of the file that defines a module's class, whose name ends as said, or
    methods of the module.
    """
    kernels = _kernels_of(model, owners)
    return substitute((namespace, name, partial(KernelCall, name, own)) for namespace, name, own in kernels)


def _kernels_of(model: nn.Module, owners: Mapping[str, str]) -> Iterator[tuple[dict[str, Any], str, Call]]:
    """The namespace, the name and the function of each kernel."""
    kinds = [kind for kind in walk(model).kinds if not kind.__module__.startswith("torch.")]
    for file in sorted({kind.__module__ for kind in kinds} & sys.modules.keys()):
        functions, names = vars(sys.modules[file]), [kind.__name__ for kind in kinds if kind.__module__ == file]
        for name, owner in owners.items():
            if callable(functions.get(name)) and any(map(str.endswith, names, repeat(owner))):
                yield functions, name, functions[name]
    methods = {kind: names for kind in kinds if (names := [name for name in owners if hasattr(kind, name)])}
    for module in walk(model).own_modules:
        if type(module) in methods or not owners.keys().isdisjoint(vars(module)):
            own = dict.fromkeys([*methods.get(type(module), ()), *(vars(module).keys() & owners.keys())])
            yield from ((vars(module), name, getattr(module, name)) for name in own)


def reroute_checkpoints(model: nn.Module) -> AbstractContextManager[None]:
    """Within the context and this thread, run modules without PyTorch's checkpoint wrappers, which hide their graph."""
    return reroute_calls(_wrappers(model), lambda _, own_call: own_call)


@once_per_walk
def _wrappers(model: nn.Module) -> list[nn.Module]:
    return [module for module in modules_of(model).values() if WRAPPED in module._modules]


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

"""The modules that are running, innermost last, for one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any

from torch import nn

from whyformer.models.structure import walk


@contextmanager
def module_stack(model: nn.Module, *, every: bool) -> Iterator[list[nn.Module]]:
    """Within the context, a list of the model's modules that are running in this thread, innermost last.

    PyTorch's own layers are left out, since their operations are known, unless something runs before them. Unless
    `every` is set, so are modules that no weight without a name can belong to.
    """
    stack, thread = [model], get_ident()

    def enter(module: nn.Module, _: Any) -> None:
        if get_ident() == thread:
            stack.append(module)

    def leave(module: nn.Module, *_: Any) -> None:
        if get_ident() == thread:
            while stack.pop() is not module:  # one that raised, which its caller caught
                pass

    with ExitStack() as hooks:
        for module in _watched(model, every):
            hooks.callback(module.register_forward_pre_hook(enter).remove)
            hooks.callback(module.register_forward_hook(leave).remove)
        yield stack


def _watched(model: nn.Module, every: bool) -> list[nn.Module]:
    modules, own = walk(model).modules.values(), walk(model).own_modules
    changed = [module for module in modules if module._forward_pre_hooks or "_hf_hook" in vars(module)]
    if not every:
        own = [module for module in own if (module._parameters or module._buffers) and _has_matrix(module)]
    return list(dict.fromkeys([*changed, *own]))


def _has_matrix(module: nn.Module) -> bool:
    tensors = (*module._parameters.values(), *module._buffers.values())
    return bool([x for x in tensors if x is not None and x.dim() > 1])

"""Parameters as constants: their gradients are never wanted, and whether they are being trained changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

Function = Callable[..., Any]


def plain(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with parameters cut off from the graph: their gradients are never wanted."""
    changed = None
    for number, x in enumerate(args):
        kind = type(x)
        if kind is tuple or kind is list:
            constant: Any = kind(plain(tuple(x)))
        elif kind is nn.Parameter or (kind is not Tensor and isinstance(x, nn.Parameter)):
            constant = x.detach()
        else:
            continue
        changed = list(args) if changed is None else changed
        changed[number] = constant
    return args if changed is None else tuple(changed)


def plain_values(kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(kwargs, plain(tuple(kwargs.values())), strict=True)) if kwargs else kwargs


def gradient_in_order(name: str, result: Any) -> Any:
    """What batch norm gave, its gradient to come laid out as its shape says.

    For a batch of one, PyTorch's backward pass of batch norm on a CPU misreads a gradient that is a transposed view.
    """
    if name == "batch_norm" and result.requires_grad:
        result.register_hook(lambda gradient: None if gradient is None else gradient.contiguous())
    return result

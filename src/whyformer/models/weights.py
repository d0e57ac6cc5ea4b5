"""Weights as they are kept: brought to the device when a module runs, or stored in fewer bits."""

from __future__ import annotations

import sys

from torch import Tensor, nn

# Where accelerate puts weights that it keeps elsewhere into a module before it runs, and takes them out again.
LENDING = ("accelerate.utils.modeling", "accelerate.utils.offload")


def is_lending_weights() -> bool:
    """Whether the operation that a torch function mode is asked about only brings a weight, or takes it away.

    Call it from `__torch_function__`. Such a weight must stay the Parameter it is, in its own dtype: what a mode makes
    of it would stay in the model.
    """
    return sys._getframe(2).f_globals.get("__name__") in LENDING


def plain_weight(weight: Tensor) -> Tensor:
    """The weight's values outside the graph, whatever it is stored in."""
    values = weight.detach()
    return values if type(values) is Tensor else values.dequantize()


def module_here() -> nn.Module | None:
    """The module whose forward pass is running, read off the stack."""
    frame = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            return owner
        frame = frame.f_back  # type: ignore[assignment]
    return None

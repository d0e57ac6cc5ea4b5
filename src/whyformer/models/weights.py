"""Weights that are offloaded, quantised, or hidden in a kernel."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from whyformer.models.structure import device_of, dtype_of, modules_of, once_per_walk, walk
from whyformer.models.substitutes import Substitution, substitute

_THREAD = threading.local()  # `is_reading` is set in threads that read opaque weights


def is_packed(weight: Tensor) -> bool:
    """Whether a tensor stores its values in fewer bits, as torchao's and quanto's do."""
    return type(weight) not in (Tensor, nn.Parameter) and is_traceable_wrapper_subclass(weight)


def plain_weight(weight: Tensor) -> Tensor:
    """The weight's values, detached and dequantised."""
    return weight.detach().dequantize() if is_packed(weight) else weight.detach()


@once_per_walk
def opaque_layers(model: nn.Module) -> list[nn.Module]:
    """Linear layers with a custom kernel that can be dequantised: bitsandbytes, HQQ."""
    kinds = {kind for kind in walk(model).kinds if _is_bitsandbytes(kind) or hasattr(kind, "dequantize")}
    modules = [module for module in modules_of(model).values() if type(module) in kinds] if kinds else []
    return [module for module in modules if _is_bitsandbytes(type(module)) or _dequantises(module)]


def hidden_layer(model: nn.Module) -> nn.Module | None:
    """A linear layer with a custom kernel that cannot be dequantised (GPTQ, AWQ …).

    A head composed of layers (ESM's contact prediction) does not count, even if it has `in_features`.
    """
    own = walk(model).own_modules  # in the module's own attributes: a failing lookup in a module is slow
    sized = (module for module in own if "in_features" in vars(module) or hasattr(type(module), "in_features"))
    hidden = (layer for layer in sized if not isinstance(getattr(layer, "weight", None), Tensor))
    return next((x for x in hidden if next(x.children(), None) is None and not _dequantises(x)), None)


@once_per_walk
def quantised_layers(model: nn.Module) -> list[nn.Module]:
    """PyTorch's quantised layers, which have no gradient."""
    kinds = tuple(kind for kind in walk(model).kinds if kind.__module__.startswith("torch.ao.nn.quantized"))
    return [module for module in modules_of(model).values() if type(module) in kinds] if kinds else []


def has_gradient(model: nn.Module) -> bool:
    """Whether gradients can flow through all layers of a model."""
    layer = hidden_layer(model)
    return not quantised_layers(model) and (layer is None or passes_gradients(layer, model))


def passes_gradients(layer: Any, model: nn.Module) -> bool:
    """Whether a layer propagates gradients to its input; otherwise only its skip connections would count."""
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.ones(1, layer.in_features, dtype=dtype_of(model), device=device_of(model), requires_grad=True)
        score = layer(x).sum()
        return bool(score.requires_grad) and torch.autograd.grad(score, x, allow_unused=True)[0] is not None


@contextmanager
def readable_weights(model: nn.Module) -> Iterator[None]:
    """Within the context and this thread, opaque layers run as linear operations with dequantised weights.

    Modes can observe these and rules propagate through them. Values remain those of the model's own kernel.
    """
    layers = opaque_layers(model)
    if not layers:
        yield
        return
    before, _THREAD.is_reading = getattr(_THREAD, "is_reading", False), True
    try:
        with substitute([_readable(layer) for layer in layers]):
            yield
    finally:
        _THREAD.is_reading = before


def _is_bitsandbytes(kind: type[nn.Module]) -> bool:
    return issubclass(kind, nn.Linear) and kind.__module__.startswith("bitsandbytes.")


def _dequantises(module: nn.Module) -> bool:
    is_layer = not isinstance(module, nn.Linear) and not any(True for _ in module.children())
    return is_layer and hasattr(module, "in_features") and callable(getattr(module, "dequantize", None))


def _readable(layer: nn.Module) -> Substitution:
    """The entry of a layer's forward function; accelerate's hooks call the one that they saved."""
    name = "_old_forward" if "_old_forward" in vars(layer) else "forward"
    return vars(layer), name, lambda: _readable_forward(layer, getattr(layer, name))


def _readable_forward(layer: Any, own: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        if not getattr(_THREAD, "is_reading", False):
            return own(x)
        is_exact = type(layer).__name__ == "Linear4bit"  # which dequantises itself and uses a plain product
        with torch.no_grad(), torch._C.DisableTorchFunction():
            values = None if is_exact else own(x.detach())
            weight = _dequantised(layer, own)
        dtype = (getattr(layer, "compute_dtype", None) if is_exact else None) or x.dtype
        bias = None if layer.bias is None else layer.bias.detach().to(dtype)
        result = F.linear(x.to(dtype), weight.to(dtype), bias).to(x.dtype)
        if values is not None:
            with torch._C.DisableTorchFunction():
                result.data.copy_(values)
        return result

    return forward


def _dequantised(layer: Any, own: Callable[[Tensor], Tensor]) -> Tensor:
    if not _is_bitsandbytes(type(layer)):
        return cast(Tensor, layer.dequantize())
    if getattr(getattr(layer.weight, "quant_state", None), "packing_format_for_cpu", False):
        basis = torch.eye(layer.in_features, device=layer.weight.device)  # the packed form only supports multiplication
        return (own(basis) - (0.0 if layer.bias is None else layer.bias)).t()
    from transformers.integrations.bitsandbytes import dequantize_bnb_weight

    return cast(Tensor, dequantize_bnb_weight(layer.weight, getattr(layer, "state", None)))

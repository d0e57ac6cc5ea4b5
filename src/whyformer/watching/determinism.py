"""Deterministic replacements for random choices of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from whyformer.errors import UnsupportedModel


def drawn(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Replace a random draw; raise if that would leave tokens without fixed positions."""
    choice = even_choice(args, kwargs) if func is torch.multinomial else None
    if choice is None:
        raise UnsupportedModel(
            f"The model shuffles its tokens at random on every pass (torch.{func.__name__}): a score would not belong "
            "to any particular token."
        )
    return choice


def even_choice(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """Replace `torch.multinomial` over equal weights by evenly spaced indices, in order.

    ViLT samples its patches this way, in a new order each time, and its padding. None if the weights differ: then the
    draw itself is part of the computation.
    """
    names = ("input", "num_samples", "replacement")
    arguments: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
    weights, count = arguments["input"], int(arguments["num_samples"])
    if weights.dim() != 1 or not bool((weights == weights[0]).all()):
        return None
    total = len(weights)
    order = torch.arange(count, device=weights.device)
    return order % total if arguments.get("replacement") else order * total // count

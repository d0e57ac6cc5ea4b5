"""Choices that a model leaves to chance, made the same way every time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from whyformer.errors import UnsupportedModel


def drawn(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """What stands in the place of a draw; without it tokens have no places of their own."""
    choice = even_choice(args, kwargs) if func is torch.multinomial else None
    if choice is None:
        raise UnsupportedModel(
            f"The model draws by lot which token stands where (torch.{func.__name__}), anew at every pass: a score "
            "would be of no token in particular."
        )
    return choice


def even_choice(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """In the place of `torch.multinomial` among equals: as many as asked for, evenly spaced and in order.

    ViLT draws its patches this way, all of them in another order each time, and padding to fill up with. None where
    not all are equally likely: then the draw itself is what the model computes.
    """
    names = ("input", "num_samples", "replacement")
    given: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
    weights, count = given["input"], int(given["num_samples"])
    if weights.dim() != 1 or not bool((weights == weights[0]).all()):
        return None
    total = len(weights)
    order = torch.arange(count, device=weights.device)
    return order % total if given.get("replacement") else order * total // count

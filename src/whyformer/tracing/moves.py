"""What moving the entries of a tensor about does to what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from whyformer.tracing.tags import Mixed, Move, Normed, Projection, Tag, Weights, Written

# Moves that change the order of axes.
SWAPPING = frozenset("transpose permute movedim swapaxes swapdims".split())


def moved(tag: Tag | None, name: str, args: tuple[Any, ...]) -> Tag | None:
    """The tag after a move: swapped axes matter to what is written, and undo what a map is."""
    if name not in SWAPPING:
        return tag
    if isinstance(tag, Written):
        return replace(tag, is_swapped=tag.is_swapped != _swaps_first_axes(name, args))
    return None if isinstance(tag, Weights) else tag


def _swaps_first_axes(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a move puts tokens before examples, or back; those of windows change the order of others."""
    if name in ("transpose", "swapaxes", "swapdims") and len(args) == 3:
        return {axis % args[0].dim() for axis in args[1:]} == {0, 1}
    return True


def put_elsewhere(tag: Tag | None, tensor: Tensor) -> Tag | None:
    """The tag after a roll or a padding, which leave each token's channels as they are."""
    if isinstance(tag, Projection) and tag.state is not None:
        return Normed(tag.state, origin=tensor)
    if isinstance(tag, Normed) and tag.origin is None:
        return replace(tag, origin=tensor)
    return tag if isinstance(tag, (Written, Normed)) else None


def mixes(operands: list[Any]) -> bool:
    """Whether the product contracts the map's keys: always for a matrix product, by its letters for einsum."""
    if not isinstance(operands[0], str):
        return isinstance(operands[1], Tensor)
    terms, _, result = operands[0].replace(" ", "").partition("->")
    weights = terms.split(",")[0]
    return len(weights) > 1 and weights[-2] in result and weights[-1] not in result


def repeating(shape: torch.Size) -> Move:
    """The move to as many heads as this shape has, where each of fewer is read by several."""
    return lambda x: x.repeat_interleave(shape[-3] // x.shape[-3], dim=-3)


def part_of(move: Callable[..., Any], number: int) -> Move:
    """A move of which only one of several results is taken."""
    return lambda x: move(x)[number]


def tag_of_all(parts: Any, tag_of: Callable[[Any], Tag | None]) -> Tag | None:
    """The tag of tensors put together: that of the only one that is not empty, or of attention run in parts."""
    tags = [tag_of(x) for x in parts if isinstance(x, Tensor) and x.numel()]
    if len(tags) == 1:
        return tags[0]
    mixed = [tag for tag in tags if isinstance(tag, Mixed)]
    if not mixed or len(mixed) < len(tags):
        return None
    for other in mixed[1:]:  # what becomes of all of them is noted at the first
        other.tap.first = mixed[0].tap
    return mixed[0]

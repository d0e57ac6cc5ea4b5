"""What moving the entries of a tensor about does to what is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.errors import UnsupportedModel
from whyformer.tracing.tags import Branch, Mixed, Move, Normed, Projection, Tag, Weights, Written

# Moves that change the order of axes.
SWAPPING = frozenset("transpose permute movedim swapaxes swapdims".split())
# Moves that put tokens elsewhere, or others beside them.
PUTTING = frozenset("roll pad".split())


def moved(tag: Tag | None, name: str, args: tuple[Any, ...]) -> Tag | None:
    """The tag after a move: swapped axes matter to what is written, and undo what a map is."""
    if name in PUTTING:
        return _put_elsewhere(tag, args[0])
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


def _put_elsewhere(tag: Tag | None, tensor: Tensor) -> Tag | None:
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


def tag_of_all(args: tuple[Any, ...], kwargs: dict[str, Any], tag_of: Callable[[Any], Tag | None]) -> Tag | None:
    """The tag of tensors put together: that of the only one that is not empty, or of attention run in parts.

    Those are parts of the tokens, one after the other; heads beside others (ConvBERT) are something else.
    """
    parts, axis = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    tags = [tag_of(x) for x in parts if isinstance(x, Tensor) and x.numel()]
    if len(tags) == 1:
        return tags[0]
    mixed = [tag for tag in tags if isinstance(tag, Mixed)]
    if not mixed or len(mixed) < len(tags) or axis != 1:
        return None
    for other in mixed[1:]:  # what becomes of all of them is one
        other.tap.outcome = mixed[0].tap.outcome
    return mixed[0]


def projected(
    tag: Mixed, source: Tensor, parameter: Tensor, weight: Tensor, output: Tensor | None, module: nn.Module | None
) -> Written | Branch:
    """What a linear layer makes of mixed values: the first is their output projection, others may be its adapter."""
    tap, outcome = tag.tap, tag.tap.outcome
    outcome.readers += 1
    if outcome.readers > 1:
        return Branch(tap, weight)
    outcome.output_parameter, outcome.output_weight, outcome.output_module = parameter, weight, module
    outcome.output = None if output is None else output.detach().clone()
    if tag.values is not None:
        tap.compare_order(tag.values, source.reshape(-1, source.shape[-1]))
    return Written(tap)


def check_fits(shape: torch.Size, batch: int) -> None:
    """Refuse maps whose heads and examples share an axis, and which are not as many for each example."""
    if shape[0] % batch:
        raise UnsupportedModel(f"An attention map of shape {tuple(shape)} does not fit {batch} examples.")

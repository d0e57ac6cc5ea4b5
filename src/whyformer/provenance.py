"""Where a tensor of the forward pass comes from, as far as attention is concerned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Move = Callable[[Tensor], Tensor]


@dataclass(eq=False)
class Tap:
    """What the recorder has seen so far of one attention operation."""

    map: Tensor
    value: Tensor | None = None
    value_source: Projection | None = None
    output_weight: Tensor | None = None
    output_parameter: Tensor | None = None
    readers: int = 0
    heads_in_order: Tensor | None = None
    tokens_first: Tensor | None = None
    query_state: Tensor | None = None
    state_is_swapped: bool = False

    def state(self) -> Tensor | None:
        """The residual state as [example, token, channel]; what was compared on the device is waited for only here."""
        if self.query_state is None or self.tokens_first is None:
            return self.query_state
        swapped = bool(self.tokens_first) != self.state_is_swapped
        return self.query_state.transpose(0, 1) if swapped else self.query_state

    def projection(self) -> Tensor | None:
        """W_o, if it is the one reader of the mixed values and finds their heads side by side."""
        is_plain = self.readers == 1 and (self.heads_in_order is None or bool(self.heads_in_order))
        return self.output_weight if is_plain else None


@dataclass(frozen=True)
class Projection:
    """A tensor that is a linear projection of `source`, rearranged by `moves`."""

    weight: Tensor
    source: Tensor
    shape: torch.Size
    moves: tuple[Move, ...] = ()

    def rows(self, batch: int) -> Tensor:
        """The rows of the weight behind each (head, feature) of the tensor, found by moving their numbers along."""
        numbers = torch.arange(self.shape[-1], device=self.weight.device).expand(self.shape)
        for move in self.moves:
            numbers = move(numbers)
        by_head = numbers.reshape(batch, -1, *numbers.shape[-2:])[0, :, 0, :].flatten()
        first, last = int(by_head[0]), int(by_head[-1]) + 1
        if last - first == len(by_head) and bool((by_head.diff() == 1).all()):
            return self.weight[first:last]
        return self.weight[by_head]


@dataclass(frozen=True)
class Weights:
    """The output of a softmax, on its way to a product with values."""


@dataclass(frozen=True)
class Mixed:
    """Values mixed by the attention of `tap`, on their way to its output projection; kept where states are wanted."""

    tap: Tap
    values: Tensor | None


@dataclass(frozen=True)
class Written:
    """The output projection of `tap`, on its way to the residual stream; its first two axes may be swapped there."""

    tap: Tap
    is_swapped: bool = False


Tag = Projection | Weights | Mixed | Written

# Operations that only move entries about, and those that leave every entry in its place.
MOVING = frozenset(
    "view view_as reshape reshape_as transpose permute flatten unflatten squeeze unsqueeze expand expand_as repeat "
    "repeat_interleave split tensor_split chunk unbind __getitem__ narrow select movedim swapaxes swapdims t "
    "contiguous clone".split()
)
SWAPPING = frozenset("transpose permute movedim swapaxes swapdims".split())
KEEPING = frozenset("to type type_as float half bfloat16 double dropout dropout_ masked_fill masked_fill_".split())

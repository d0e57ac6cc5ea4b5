"""Roles of tensors in attention: where a tensor of the forward pass comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from whyformer.axes import by_head

if TYPE_CHECKING:
    from whyformer.watching.tap import Tap

Move = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Projection:
    """A tensor that is a linear projection of `source`, rearranged by `moves`."""

    weight: Tensor
    source: Tensor
    source_norm: Tensor | None
    shape: torch.Size
    moves: tuple[Move, ...] = ()
    before: Projection | None = None  # the source's own projection: a latent, or a low-rank adapter
    is_normed: bool = False  # divided by its spread, which is not part of the weight
    state: Tensor | None = None  # the tensor before its norm, if known
    source_bias: Tensor | None = None  # the bias that the norm added to every token of the source
    origin: Tensor | None = None  # the source before it was copied, or its tokens moved into windows

    @classmethod
    def of(cls, source: Tensor, role: Role | None, weight: Tensor, shape: torch.Size, original: Tensor) -> Projection:
        """Build the projection of a source or its copy: the normalisation of a state, or a projection itself."""
        norm = role.state if isinstance(role, (Normed, Projection)) else None
        before = role if isinstance(role, Projection) else None
        bias = role.bias if isinstance(role, Normed) else None
        origin = role.origin if isinstance(role, Normed) and role.origin is not None else original
        return cls(weight, source, norm, shape, before=before, source_bias=bias, origin=origin)

    def rows(self, batch: int, width: int | None = None) -> Tensor | None:
        """The rows of the weight for each (head, feature) of the tensor, found by applying its moves to their indices.

        If the source is a latent, itself projected from a state of `width` channels, the product of both projections.
        """
        numbers = self._moved_numbers()
        if numbers.dim() not in (3, 4, 5):
            return None
        order = by_head(numbers, batch)[0, :, 0, :].flatten()
        first, last = int(order[0]), int(order[-1]) + 1
        is_run = last - first == len(order) and bool((order.diff() == 1).all())
        rows = self.weight[first:last] if is_run else self.weight[order]
        if self.before is None or width in (None, rows.shape[-1]):
            return rows
        latent = self.before.rows(batch, width)
        return rows if latent is None or len(latent) != rows.shape[-1] else rows @ latent

    def scaled(self, factor: Tensor, batch: int) -> Projection | None:
        """The projection with each of its channels scaled."""
        rows, shape = self.rows(batch), self._moved_numbers().shape
        if rows is None or len(rows) != len(factor):
            return None
        return replace(self, weight=rows * factor[:, None].to(rows.dtype), shape=shape, moves=())

    def moved(self, move: Move) -> Projection:
        """The projection rearranged once more; the values of most attention are, several times."""
        rearranged = object.__new__(Projection)
        rearranged.__dict__.update(self.__dict__, moves=(*self.moves, move))
        return rearranged

    def plus(self, other: Projection) -> Projection | None:
        """Add another projection of the same tensor, such as an adapter's; None if it is not one."""
        adapter = other
        first = other.before
        if first is not None and not (self.projects_with(other) or other.moves or first.moves or first.is_normed):
            adapter = replace(first, weight=other.weight @ first.weight)
        if not self.projects_with(adapter) or other.moves or len(self.weight) != len(adapter.weight):
            return None
        numbers = self._moved_numbers()  # a view may have split the tokens, but not the channels
        is_plain = bool((numbers == torch.arange(self.shape[-1], device=numbers.device)).all())
        weight = (self.weight + adapter.weight).to(self.weight.dtype)
        return replace(self, weight=weight, shape=numbers.shape, moves=(), before=None) if is_plain else None

    def projects_with(self, other: Projection) -> bool:
        """Whether both project one tensor, or casts of it."""
        is_cast = self.source_norm is not None and self.source_norm is other.source_norm
        first, second = (x.source if x.origin is None else x.origin for x in (self, other))
        return self.weight.shape[1:] == other.weight.shape[1:] and (is_cast or is_same(first, second))

    def _moved_numbers(self) -> Tensor:
        numbers = torch.arange(self.shape[-1], device=self.weight.device).expand(self.shape)
        for move in self.moves:
            numbers = move(numbers)
        return numbers

    def reads(self, state: Tensor) -> bool | None:
        """Whether it projects this state or its normalisation; None if unknown."""
        if any(x is not None and is_same(x, state) for x in (self.source, self.source_norm, self.origin)):
            return True
        return None if self.source_norm is None else False


def is_same(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are one, or views of all of it."""
    return first is second or (first.data_ptr() == second.data_ptr() and first.numel() == second.numel())


@dataclass(frozen=True)
class Normed:
    """The normalisation of `state`, and the bias that it adds."""

    state: Tensor
    bias: Tensor | None = None
    origin: Tensor | None = None  # the tensor before its tokens were moved into windows


@dataclass(frozen=True)
class Scores:
    """A product of two activations before its softmax, [query, key]."""


@dataclass(frozen=True)
class Weights:
    """The softmax of scores over their keys, before the product with values."""


@dataclass(frozen=True)
class Mixed:
    """Values mixed by the attention of `tap`, before its output projection; kept if their order is compared."""

    tap: Tap
    values: Tensor | None
    is_gated: bool = False  # multiplied by something: a gate, a norm


@dataclass(frozen=True)
class Written:
    """The output projection of `tap`, before the residual add; its first two axes may be swapped."""

    tap: Tap
    is_swapped: bool = False
    is_joined: bool = False  # by another branch, such as a parallel MLP
    beside: tuple[Tap, ...] = ()  # other operations that were added to it: attention and a state space in parallel

    @property
    def is_branch(self) -> bool:
        """Whether nothing but other operations was added to it yet: it is not a state."""
        return not self.is_joined or bool(self.beside)

    @property
    def branches(self) -> list[Written]:
        """Itself, and the operations next to it."""
        return [replace(self, tap=tap) for tap in (self.tap, *self.beside)]

    def join(self, other: Written) -> Written:
        """The role of the sum of two branches."""
        for tap, beside in ((self.tap, other.tap), (other.tap, self.tap)):
            tap.outcome.beside.add(beside)
        return replace(self, is_joined=True, beside=(*self.beside, other.tap, *other.beside))


@dataclass(frozen=True)
class Branch:
    """A second projection of the values mixed by `tap`: an adapter's, if it is added to the first."""

    tap: Tap
    weight: Tensor


@dataclass(frozen=True)
class Spread:
    """The reciprocal spread of each token's channels, the factor of a norm written in Python."""


@dataclass(frozen=True)
class Sampled:
    """Values sampled at points of feature maps (deformable attention); `weights` is set once they are weighted."""

    levels: tuple[Tensor, ...]
    grids: tuple[Tensor, ...]
    source: Role | None  # where the values come from
    weights: Tensor | None = None


@dataclass(frozen=True)
class Transposed:
    """The transpose of a weight."""

    parameter: Tensor

    @classmethod
    def of(cls, parameter: Tensor, view: Tensor) -> Transposed | None:
        """Build the role of a view if it is a weight's transpose."""
        is_transpose = view.dim() == 2 and view.stride() == parameter.stride()[::-1]
        return cls(parameter) if is_transpose else None


Role = Projection | Normed | Scores | Weights | Mixed | Written | Branch | Spread | Sampled | Transposed


@dataclass(frozen=True)
class Addend:
    """A tensor that attention's output is added to: its values before, the tensor it is a copy of, and its role."""

    place: Tensor
    state: Tensor
    original: Tensor
    role: Role | None


def two_branches(first: Role | None, second: Role | None) -> tuple[Written, Written] | None:
    """Two roles, if they are those of the outputs of different branches of one block."""
    if not (isinstance(first, Written) and isinstance(second, Written)) or first.tap is second.tap:
        return None
    return (first, second) if first.is_branch and second.is_branch else None


def may_be_state(role: Role | None) -> bool:
    """Whether a tensor may be a residual state, not merely the output of a linear layer."""
    return role.is_joined if isinstance(role, Written) else not isinstance(role, (Projection, Branch))


def with_adapter(first: Role | None, second: Role | None) -> Role | None:
    """The role of the sum of a projection and its adapter (LoRA), in either order; None for any other tensors."""
    for role, adapter in ((first, second), (second, first)):
        if isinstance(role, Projection) and isinstance(adapter, Projection) and (together := role.plus(adapter)):
            return together
        if isinstance(role, Written) and isinstance(adapter, Branch) and adapter.tap is role.tap:
            weight = role.tap.outcome.output_weight
            if weight is not None and weight.shape == adapter.weight.shape:
                role.tap.outcome.output_weight = (weight + adapter.weight).to(weight.dtype)
                role.tap.outcome.readers -= 1
                return role
    return None

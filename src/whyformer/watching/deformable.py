"""Deformable attention: values sampled between the tokens of feature maps, expressed as a sparse map."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from whyformer.axes import AttentionMap, Positions, TokenMask, Values
from whyformer.watching.mixing import repeat_examples
from whyformer.watching.roles import Projection, Sampled

Points = Float[Tensor, "batch head query point 2"]


@dataclass(frozen=True)
class SampledAttention:
    """Attention to a few points of feature maps. Calling it returns its map: weight of a point × bilinear weights."""

    points: Points  # in pixels of their feature map
    weights: Float[Tensor, "batch head query point"]
    sizes: tuple[tuple[int, int], ...]  # height and width of each feature map
    counts: tuple[int, ...]  # the number of points in each, in order
    value: Values

    @classmethod
    def of(cls, role: Sampled, batch: int) -> SampledAttention:
        """Build the attention from weighted samples, [example · head, …] each."""
        assert role.weights is not None
        sizes = tuple((level.shape[-2], level.shape[-1]) for level in role.levels)
        # PyTorch's grid has −1 and 1 at the outer edges of the outermost pixels.
        grids = zip(role.grids, sizes, strict=True)
        points = [((grid + 1) * grid.new_tensor((width, height)) - 1) / 2 for grid, (height, width) in grids]
        by_head = (batch, -1)
        return cls(
            torch.cat(points, dim=-2).unflatten(0, by_head),
            role.weights[:, 0].unflatten(0, by_head),
            sizes,
            tuple(grid.shape[-2] for grid in role.grids),
            torch.cat([level.detach().flatten(2).mT for level in role.levels], dim=1).unflatten(0, by_head),
        )

    @property
    def shape(self) -> torch.Size:
        """The shape of its map."""
        return torch.Size((*self.weights.shape[:3], self.value.shape[2]))

    @property
    def is_token(self) -> TokenMask:
        """Which keys have a value: the model sets padding to 0."""
        return self.value.ne(0).any(dim=3).any(dim=1)

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        return self.value.device

    def __call__(self) -> AttentionMap:
        dense = self.weights.new_zeros(self.shape)
        first, by_level = (
            0,
            zip(self.points.split(self.counts, dim=-2), self.weights.split(self.counts, -1), strict=True),
        )
        for (height, width), (points, weights) in zip(self.sizes, by_level, strict=True):
            corner = points.floor()
            for step in ((0, 0), (0, 1), (1, 0), (1, 1)):
                x, y = (corner + corner.new_tensor(step)).unbind(dim=-1)
                near = (1 - (points - torch.stack([x, y], dim=-1)).abs()).prod(dim=-1)
                is_inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
                token = first + (y * width + x).where(is_inside, 0).long()
                dense = dense.scatter_add(-1, token, (weights * near).where(is_inside, 0))
            first += height * width
        return dense.masked_fill(~self.is_token[:, None, None], 0.0).to(self.dtype)

    def pick(self, rows: slice | Positions) -> SampledAttention:
        """Select queries: a slice, or positions for each example."""
        if isinstance(rows, slice):
            return replace(self, points=self.points[:, :, rows], weights=self.weights[:, :, rows])
        points = self.points.take_along_dim(rows[:, None, :, None, None], dim=2)
        return replace(self, points=points, weights=self.weights.take_along_dim(rows[:, None, :, None], dim=2))

    def repeat(self, times: int) -> SampledAttention:
        """Repeat the examples, without a copy if there is a single one."""
        points, weights, value = (repeat_examples(x, times) for x in (self.points, self.weights, self.value))
        return replace(self, points=points, weights=weights, value=value)

    def gradient(self, of_mixed: Values) -> AttentionMap:
        """The gradient of its map, given that of the mixed values."""
        return of_mixed @ self.value.mT.to(of_mixed)


def value_role(role: Sampled, batch: int) -> Projection | None:
    """The projection that the values come from, as [example, head, token, feature]."""
    source = role.source
    if not isinstance(source, Projection):
        return None
    return replace(source, moves=(*source.moves, lambda x: x.flatten(2).mT.unflatten(0, (batch, -1))))

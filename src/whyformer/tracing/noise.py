"""Gaussian noise on inputs, the same for an example in any batch."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Noise:
    """Noise on the inputs of a model.

    Attributes:
        size: Its standard deviation, as a share of the range max − min of each example's values (Smilkov et al. 2017).
        draw: The number of the draw, from 0.
    """

    size: float
    draw: int = 0

    def on(self, stream: str, values: Tensor, examples: Tensor, is_real: Tensor | None = None) -> Tensor:
        """Add noise to the real values of a stream's input; `examples` is the example of each row.

        Numbers are drawn for an example's real values in order, so that padding and other examples do not change them.
        """
        real = (torch.ones_like(values) if is_real is None else is_real.expand_as(values)).bool()
        noise = torch.zeros_like(values, dtype=torch.float64)
        for example in examples.unique():
            rows = examples == example
            own, own_real = values[rows], real[rows]
            known = own[own_real].double()
            if len(known):
                numbers = _numbers(self.draw, stream, len(known)).to(known)
                noise[rows] = noise[rows].masked_scatter(own_real, numbers * self.size * (known.max() - known.min()))
        return values + noise.to(values.dtype)


def _numbers(draw: int, stream: str, count: int) -> Tensor:
    """Draw standard normal numbers, from a separate sequence for each draw and stream."""
    generator = np.random.default_rng((draw, zlib.crc32(stream.encode())))
    return torch.from_numpy(generator.standard_normal(count))

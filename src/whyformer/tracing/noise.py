"""Gaussian noise on inputs, the same for an example whatever else is in its batch."""

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
        size: Its standard deviation, as a share of the range of each example's own values, max − min (Smilkov et al.
            2017).
        draw: Which draw it is, counted from 0.
    """

    size: float
    draw: int = 0

    def on(self, stream: str, values: Tensor, examples: Tensor, is_real: Tensor | None = None) -> Tensor:
        """The values of a stream's input with noise on those that are real, `examples` saying whose each row is.

        Numbers are drawn for an example's real values in their order, so that padding and other examples change none.
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
    """So many standard normal numbers: the first of a sequence that each draw and stream has of its own."""
    generator = np.random.default_rng((draw, zlib.crc32(stream.encode())))
    return torch.from_numpy(generator.standard_normal(count))

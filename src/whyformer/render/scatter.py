"""Whether a map looks like noise: its strong patches lie scattered, as independent values would.

The test is Moran's I of neighbouring patches, with its mean and variance over all permutations of the map in closed
form (Cliff & Ord 1981). It holds for noise of any distribution, unlike a threshold on the largest score.
"""

from __future__ import annotations

import math

import numpy as np

from whyformer.inputs.layouts import Layout, Patches
from whyformer.render.colour import PIXELS, STANDS_OUT, Scale, score_scale

# Standard deviations above the mean over permutations: about 1 in 10,000 maps of noise gets there.
LEAST_Z = 4.0
LEAST_PATCHES = 36  # too few permutations of fewer patches differ
# A score this many average sizes above ln(number of patches) is an outlier even of exponential or Laplace noise: of
# 1,000 such maps one or two have one.
OUTLIER = 6.5
NEIGHBOURS = ((0, 1), (0, -1), (1, 0), (-1, 0))  # rows and columns away
PALEST = 0.6 * STANDS_OUT  # of a full colour: the strongest patch of a map of noise


def layout_scale(layout: Layout, scores: np.ndarray) -> Scale:
    """The displayed range of scores; where they look like noise, none of them stands out."""
    scale = score_scale(scores)
    if not isinstance(layout, Patches) or not is_scattered(scores.reshape(layout.rows, layout.columns)):
        return scale
    high = max(scale.high, float(np.abs(scores).max()) / PALEST)
    return Scale(-high if scale.is_diverging else 0.0, high, scale.average)


def is_scattered(grid: np.ndarray) -> bool:
    """Whether neighbouring patches are no more alike than by chance, and no patch is an outlier."""
    size = np.abs(np.asarray(grid, np.float64))
    if not LEAST_PATCHES <= size.size < PIXELS or not size.max() > 0 or np.ptp(grid) == 0:
        return False
    is_outlier = size.max() > (math.log(size.size) + OUTLIER) * size.mean()
    return not is_outlier and moran_z(grid) < LEAST_Z


def moran_z(grid: np.ndarray) -> float:
    """Moran's I of the four neighbours, in standard deviations above its mean over permutations of the grid."""
    rows, columns = grid.shape
    count, pairs = grid.size, (rows - 1) * columns + rows * (columns - 1)
    centred = np.asarray(grid, np.float64) / np.abs(grid).max()
    centred = centred - centred.mean()
    variance = (centred**2).mean()
    kurtosis = (centred**4).mean() / variance**2
    alike = (centred[1:] * centred[:-1]).sum() + (centred[:, 1:] * centred[:, :-1]).sum()
    inside = np.pad(np.ones(grid.shape), 1)
    counts = [inside[1 + down : rows + 1 + down, 1 + across : columns + 1 + across] for down, across in NEIGHBOURS]
    weight, s1, s2 = 2 * pairs, 4 * pairs, float((4 * np.sum(counts, axis=0) ** 2).sum())
    mean = -1 / (count - 1)
    free = count * ((count**2 - 3 * count + 3) * s1 - count * s2 + 3 * weight**2)
    tied = kurtosis * ((count**2 - count) * s1 - 2 * count * s2 + 6 * weight**2)
    spread = (free - tied) / ((count - 1) * (count - 2) * (count - 3) * weight**2) - mean**2
    return float((alike / pairs / variance - mean) / math.sqrt(spread))

"""ROAD (Rong et al., ICML 2022): removed pixels are imputed, so that the shape of what is gone tells nothing."""

from __future__ import annotations

import numpy as np
import torch

from whyformer.axes import ImageArray, MaskArray, PixelRemoval, Pixels, StepPixels
from whyformer.extras import extra

NOISE = 0.01
NEIGHBOURS = tuple(
    (down, across, 1 / 6 if down * across == 0 else 1 / 12)
    for down in (-1, 0, 1)
    for across in (-1, 0, 1)
    if (down, across) != (0, 0)
)


def imputed(pixels: Pixels, gone: PixelRemoval, *, noise: float = NOISE, seed: int = 0) -> StepPixels:
    """The images at every step, each pixel that is gone being the weighted mean of its neighbours, plus noise.

    Every image gets the same noise, so that batches change nothing.
    """
    steps = [
        [_filled(image, mask) for image, mask in zip(_arrays(pixels), marks, strict=True)]
        for marks in gone.cpu().numpy()
    ]
    filled = torch.from_numpy(np.array(steps)).to(pixels)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(len(gone), 1, *pixels.shape[1:], generator=generator).to(pixels)
    return torch.where(gone[:, :, None], filled + noise * drawn, pixels)


def _arrays(pixels: Pixels) -> np.ndarray:
    return pixels.detach().cpu().double().numpy()


def _filled(image: ImageArray, gone: MaskArray) -> ImageArray:
    """The image with the pixels that are gone solved for: one sparse linear system, a row for each of them.

    At the border the weights of the neighbours that exist count alone. Where nothing is left, all is 0.
    """
    filled = np.where(gone, 0.0, image)
    if not gone.any() or gone.all():
        return filled
    sparse, linalg = extra("scipy.sparse"), extra("scipy.sparse.linalg")
    height, width = gone.shape
    rows, columns = np.nonzero(gone)
    count, number = len(rows), np.full(gone.shape, -1)
    number[rows, columns] = np.arange(count)
    diagonal, known = np.zeros(count), np.zeros((count, len(image)))
    entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for down, across, weight in NEIGHBOURS:
        y, x = rows + down, columns + across
        inside = np.flatnonzero((y >= 0) & (y < height) & (x >= 0) & (x < width))
        y, x = y[inside], x[inside]
        diagonal[inside] += weight
        is_gone = gone[y, x]
        known[inside[~is_gone]] += weight * image[:, y[~is_gone], x[~is_gone]].T
        entries.append((inside[is_gone], number[y[is_gone], x[is_gone]], np.full(is_gone.sum(), -weight)))
    entries.append((np.arange(count), np.arange(count), diagonal))
    at, of, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    system = sparse.csc_matrix((values, (at, of)), shape=(count, count))
    filled[:, rows, columns] = linalg.splu(system).solve(known).T
    return filled

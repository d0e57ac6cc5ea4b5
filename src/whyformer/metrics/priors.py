"""Maps that ignore the model, the baselines of localisation."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import torch
from torch import Tensor
from torch.nn import functional as F

from whyformer.axes import PatchScores, Pixels, RegionBoxes, RegionScores

SPREAD = 0.25  # standard deviation of the centre prior, as a share of the image's side


def centre_prior(pixels: Pixels, rows: int, columns: int) -> PatchScores:
    """A Gaussian blob in the centre, the same for every image."""
    down, across = ((torch.arange(n, device=pixels.device) + 0.5) / n for n in (rows, columns))
    return _blob(down[:, None], across).expand(len(pixels), -1, -1)


def edge_prior(pixels: Pixels, rows: int, columns: int) -> PatchScores:
    """Mean magnitude of the image's gradient (Sobel) over each patch."""
    return F.adaptive_avg_pool2d(_steepness(pixels), (rows, columns))


def centre_prior_of_regions(pixels: Pixels, boxes: RegionBoxes) -> RegionScores:
    """The centre prior at each region's centre; boxes are in shares of the picture's sides."""
    across, down = (boxes[:, :2] + boxes[:, 2:]).T / 2
    return _blob(down, across)


def edge_prior_of_regions(pixels: Pixels, boxes: RegionBoxes) -> RegionScores:
    """Mean magnitude of the picture's gradient over each region."""
    steep = _steepness(pixels)[0]
    height, width = steep.shape
    means = []
    for left, top, right, bottom in (boxes * torch.tensor([width, height, width, height])).tolist():
        x, y = min(int(left), width - 1), min(int(top), height - 1)  # a box on the border still has a pixel
        means.append(steep[y : max(ceil(bottom), y + 1), x : max(ceil(right), x + 1)].mean())
    return torch.stack(means)


def _blob(down: Tensor, across: Tensor) -> Tensor:
    return torch.exp(-(((down - 0.5) / SPREAD).square() + ((across - 0.5) / SPREAD).square()) / 2)


def _steepness(pixels: Pixels) -> Tensor:
    """[batch height width] by Sobel's kernels."""
    grey = F.pad(pixels.float().mean(dim=1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    slope = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]], device=pixels.device)
    return F.conv2d(grey, torch.stack([slope, slope.T])[:, None]).square().sum(dim=1).sqrt()


PRIORS: dict[str, Callable[[Pixels, int, int], PatchScores]] = {"centre_prior": centre_prior, "edge_prior": edge_prior}
REGION_PRIORS: dict[str, Callable[[Pixels, RegionBoxes], RegionScores]] = {
    "centre_prior": centre_prior_of_regions,
    "edge_prior": edge_prior_of_regions,
}

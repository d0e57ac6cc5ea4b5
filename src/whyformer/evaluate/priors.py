"""Maps that look at no model: what an explanation must beat before its localisation means anything."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from whyformer.axes import PatchScores, Pixels

SPREAD = 0.25  # standard deviation of the centre prior, as a share of the image's side


def centre_prior(pixels: Pixels, rows: int, columns: int) -> PatchScores:
    """A Gaussian blob in the middle, the same for every image."""
    down, across = (((torch.arange(n, device=pixels.device) + 0.5) / n - 0.5) / SPREAD for n in (rows, columns))
    blob = torch.exp(-(down[:, None].square() + across.square()) / 2)
    return blob.expand(len(pixels), -1, -1)


def edge_prior(pixels: Pixels, rows: int, columns: int) -> PatchScores:
    """The magnitude of the image's gradient (Sobel), mean over each patch."""
    grey = F.pad(pixels.float().mean(dim=1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    slope = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]], device=pixels.device)
    steep = F.conv2d(grey, torch.stack([slope, slope.T])[:, None]).square().sum(dim=1).sqrt()
    return F.adaptive_avg_pool2d(steep, (rows, columns))


PRIORS: dict[str, Callable[[Pixels, int, int], PatchScores]] = {"centre_prior": centre_prior, "edge_prior": edge_prior}

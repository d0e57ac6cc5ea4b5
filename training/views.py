"""Random views of photographs, made on the GPU in batches: one view for the teacher and the student alike."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

GRID = 16  # patches per side, of the student at 128 pixels and of the teacher at 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as DINOv2 was trained with
LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class View:
    """What happens to each photograph of a batch, before a size in pixels is chosen."""

    crop: Tensor | None  # photo, 2, 3: affine map from the view to the photograph; None keeps the whole photograph
    colour: Tensor  # photo, 3: gains of brightness, contrast, saturation
    blend: Tensor  # photo, GRID, GRID: the share of the photograph itself in each patch; the rest is its partner's

    @property
    def share(self) -> Tensor:
        """The photograph's own share of its view."""
        return self.blend.mean(dim=(1, 2))


def uniform(count: int, low: float, high: float, rng: Generator) -> Tensor:
    return low + (high - low) * torch.rand(count, generator=rng, device=rng.device)


def plain_view(count: int, device: torch.device) -> View:
    """The photograph as it is."""
    return View(None, torch.ones(count, 3, device=device), torch.ones(count, GRID, GRID, device=device))


def random_view(count: int, rng: Generator, *, mixed: float) -> View:
    """Random crops, flips and colours; the last `mixed` share of the batch is blended with partners."""
    colour = torch.stack([uniform(count, 0.65, 1.35, rng) for _ in range(3)], dim=1)
    colour[:, 2] *= uniform(count, 0, 1, rng) > 0.05  # some views are grey
    blend = torch.ones(count, GRID, GRID, device=rng.device)
    blended = int(count * mixed)
    if blended:
        half = blended // 2
        blend[count - blended : count - half] = uniform(blended - half, 0, 1, rng)[:, None, None]
        blend[count - half :] = 1 - random_boxes(half, rng)
    return View(random_crops(count, rng), colour, blend)


def random_crops(count: int, rng: Generator, *, whole: float = 0.25, least_area: float = 0.35) -> Tensor:
    """Crops of random area and aspect, flipped half of the time; a share `whole` keeps the whole photograph."""
    area = uniform(count, least_area, 1, rng)
    aspect = torch.exp(uniform(count, -math.log(4 / 3), math.log(4 / 3), rng))
    keep = uniform(count, 0, 1, rng) < whole
    size = torch.stack([(area * aspect).sqrt(), (area / aspect).sqrt()], dim=1).clamp(max=1)
    size = torch.where(keep[:, None], torch.ones_like(size), size)
    centre = (1 - size) * torch.stack([uniform(count, -1, 1, rng) for _ in range(2)], dim=1)
    flip = torch.where(uniform(count, 0, 1, rng) < 0.5, -1.0, 1.0)
    crop = torch.zeros(count, 2, 3, device=rng.device)
    crop[:, 0, 0], crop[:, 1, 1], crop[:, :, 2] = size[:, 0] * flip, size[:, 1], centre
    return crop


def random_boxes(count: int, rng: Generator) -> Tensor:
    """Boxes of whole patches (CutMix): on the patch grid each patch of a view has one photograph only."""
    side = (uniform(count, 0.1, 0.7, rng).sqrt() * GRID).round()
    first = [(uniform(count, 0, 1, rng) * (GRID - side + 1)).floor() for _ in range(2)]
    place = torch.arange(GRID, device=rng.device)
    rows, columns = ((place >= start[:, None]) & (place < (start + side)[:, None]) for start in first)
    return (rows[:, :, None] & columns[:, None, :]).float()


def pixels(images: Tensor, view: View, *, size: int) -> Tensor:
    """The normalised views, `size` pixels a side; partners are the batch in reverse."""
    values = resampled(images.float() / 255, view.crop, size=size)
    brightness, contrast, saturation = (gain[:, None, None, None] for gain in view.colour.unbind(dim=1))
    values = values * brightness
    grey = (values * torch.tensor(LUMA, device=images.device)[:, None, None]).sum(dim=1, keepdim=True)
    values = grey + saturation * (values - grey)
    middle = grey.mean(dim=(2, 3), keepdim=True)
    values = (middle + contrast * (values - middle)).clamp(0, 1)
    own = F.interpolate(view.blend[:, None], size=size, mode="nearest")
    values = own * values + (1 - own) * values.flip(0)
    mean, std = (torch.tensor(stat, device=images.device)[:, None, None] for stat in (MEAN, STD))
    return (values - mean) / std


def resampled(values: Tensor, crop: Tensor | None, *, size: int) -> Tensor:
    # Bicubic keeps enlarged views about as sharp as the photographs that the model is tested on.
    if crop is None:
        return F.interpolate(values, size=size, mode="bicubic").clamp(0, 1) if size != values.shape[-1] else values
    grid = F.affine_grid(crop, [len(values), 3, size, size], align_corners=False)
    return F.grid_sample(values, grid, mode="bicubic", padding_mode="reflection", align_corners=False).clamp(0, 1)

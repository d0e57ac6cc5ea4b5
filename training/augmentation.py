"""Random crops, colours and blends of photos, applied on the GPU in batches.

Teacher and student see the same random view of a photo at different sizes.
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

GRID = 16  # patches per side, of the student at 128 pixels and of the teacher at 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as DINOv2 was trained with
LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Augmentation:
    """The crop, colour change and blend of each photo of a batch; independent of the size in pixels."""

    crop: Tensor | None  # photo, 2, 3: affine map from the view to the photo; None keeps the whole photo
    colour: Tensor  # photo, 3: gains of brightness, contrast, saturation
    blend: Tensor  # photo, GRID, GRID: the share of the photo itself in each patch; the rest is its partner's

    @property
    def share(self) -> Tensor:
        """The photo's own share of its view, as opposed to its partner's."""
        return self.blend.mean(dim=(1, 2))


def uniform(count: int, low: float, high: float, rng: Generator) -> Tensor:
    """`count` random numbers between `low` and `high`."""
    return low + (high - low) * torch.rand(count, generator=rng, device=rng.device)


def no_augmentation(count: int, device: torch.device) -> Augmentation:
    """Photos as they are."""
    return Augmentation(None, torch.ones(count, 3, device=device), torch.ones(count, GRID, GRID, device=device))


def random_augmentation(count: int, rng: Generator, *, mixed: float) -> Augmentation:
    """Random crops, flips and colours; the last `mixed` share of the batch is blended with partners.

    Half of the blends mix whole photos (mixup), half paste a box of patches (CutMix).
    """
    colour = torch.stack([uniform(count, 0.65, 1.35, rng) for _ in range(3)], dim=1)
    colour[:, 2] *= uniform(count, 0, 1, rng) > 0.05  # some views are grey
    blend = torch.ones(count, GRID, GRID, device=rng.device)
    blends = int(count * mixed)
    if blends:
        half = blends // 2
        blend[count - blends : count - half] = uniform(blends - half, 0, 1, rng)[:, None, None]
        blend[count - half :] = 1 - random_boxes(half, rng)
    return Augmentation(random_crops(count, rng), colour, blend)


def random_crops(count: int, rng: Generator, *, whole: float = 0.25, least_area: float = 0.35) -> Tensor:
    """Crops of random area and aspect, flipped half of the time; a share `whole` keeps the whole photo."""
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
    """Boxes of whole patches (CutMix): on the patch grid each patch of a view has one photo only."""
    side = (uniform(count, 0.1, 0.7, rng).sqrt() * GRID).round()
    first = [(uniform(count, 0, 1, rng) * (GRID - side + 1)).floor() for _ in range(2)]
    place = torch.arange(GRID, device=rng.device)
    rows, columns = ((place >= start[:, None]) & (place < (start + side)[:, None]) for start in first)
    return (rows[:, :, None] & columns[:, None, :]).float()


def augment(images: Tensor, augmentation: Augmentation, *, size: int) -> Tensor:
    """The normalised views, `size` pixels a side; the partner of a photo is its mirror in the batch, last for first."""
    values = resample(images.float() / 255, augmentation.crop, size=size)
    brightness, contrast, saturation = (gain[:, None, None, None] for gain in augmentation.colour.unbind(dim=1))
    values = values * brightness
    grey = (values * torch.tensor(LUMA, device=images.device)[:, None, None]).sum(dim=1, keepdim=True)
    values = grey + saturation * (values - grey)
    middle = grey.mean(dim=(2, 3), keepdim=True)
    values = (middle + contrast * (values - middle)).clamp(0, 1)
    own = F.interpolate(augmentation.blend[:, None], size=size, mode="nearest")
    values = own * values + (1 - own) * values.flip(0)
    mean, std = (torch.tensor(stat, device=images.device)[:, None, None] for stat in (MEAN, STD))
    return (values - mean) / std


def resample(values: Tensor, crop: Tensor | None, *, size: int) -> Tensor:
    """The crops, `size` pixels a side."""
    # Bicubic keeps enlarged views about as sharp as the photos that the model is tested on.
    if crop is None:
        return F.interpolate(values, size=size, mode="bicubic").clamp(0, 1) if size != values.shape[-1] else values
    grid = F.affine_grid(crop, [len(values), 3, size, size], align_corners=False)
    return F.grid_sample(values, grid, mode="bicubic", padding_mode="reflection", align_corners=False).clamp(0, 1)

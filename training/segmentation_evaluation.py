"""How well generic_attention of a classifier segments its object: mIoU with the masks of Oxford Pets."""

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import ViTForImageClassification

from augmentation import augment, no_augmentation
from photos import BACKGROUND, FOREGROUND, UNKNOWN, Photos


def generic_attention(model: ViTForImageClassification, inputs: Tensor) -> Tensor:
    """The [CLS] row of the relevance for the predicted class, per patch (Chefer et al. 2021, eq. 5 and 6)."""
    output = model(inputs, output_attentions=True)
    target = output.logits.max(dim=-1).values.sum()
    gradients = torch.autograd.grad(target, output.attentions)
    tokens = output.attentions[0].shape[-1]
    relevance = torch.eye(tokens, device=inputs.device).repeat(len(inputs), 1, 1)
    for attention, gradient in zip(output.attentions, gradients, strict=True):
        block = (gradient * attention).relu().mean(dim=1).detach().float()
        relevance = relevance + block @ relevance
    return relevance[:, 0, 1:]


def foreground(maps: Tensor, *, size: int) -> Tensor:
    """Where a map, enlarged to `size` pixels, lies above its mean."""
    side = round(maps.shape[-1] ** 0.5)
    enlarged = F.interpolate(maps.view(-1, 1, side, side), size=size, mode="bilinear", align_corners=False)[:, 0]
    return enlarged > enlarged.mean(dim=(1, 2), keepdim=True)


class Overlap:
    """Intersections and unions of foreground and background, counted over a data set."""

    def __init__(self) -> None:
        self.intersection = dict.fromkeys((BACKGROUND, FOREGROUND), 0)
        self.union = dict.fromkeys((BACKGROUND, FOREGROUND), 0)

    def add(self, predicted: Tensor, masks: Tensor) -> None:
        """Count predicted foreground against masks; pixels marked UNKNOWN do not count."""
        known = masks != UNKNOWN
        for kind in (BACKGROUND, FOREGROUND):
            ours, theirs = (predicted == bool(kind)) & known, masks == kind
            self.intersection[kind] += int((ours & theirs).sum())
            self.union[kind] += int((ours | theirs).sum())

    @property
    def miou(self) -> float:
        """The mean IoU of foreground and background, in percent."""
        shares = [self.intersection[kind] / max(self.union[kind], 1) for kind in self.intersection]
        return 100 * sum(shares) / len(shares)


def miou_of_generic_attention(model: ViTForImageClassification, photos: Photos, *, batch: int = 128) -> float:
    """In percent; a pixel is foreground where the enlarged map lies above its mean."""
    overlap = Overlap()
    for masks, owners in zip(photos.masks.split(batch), photos.mask_owners.split(batch), strict=True):
        size = masks.shape[-1]
        inputs = augment(photos.images[owners], no_augmentation(len(owners), masks.device), size=size)
        overlap.add(foreground(generic_attention(model, inputs), size=size), masks)
    return overlap.miou


def miou_of_centre_blob(photos: Photos) -> float:
    """A baseline that ignores the photo: a Gaussian in the middle, a quarter of the photo wide; in percent."""
    size = photos.masks.shape[-1]
    place = (torch.arange(16, device=photos.masks.device) - 7.5) / 16
    bump = torch.exp(-(place**2) / (2 * 0.25**2))
    blob = foreground((bump[:, None] * bump).view(1, -1), size=size)
    overlap = Overlap()
    for masks in photos.masks.split(512):
        overlap.add(blob.expand_as(masks), masks)
    return overlap.miou

"""Batches of photos for the recipes: random views, soft labels, and what the teacher says about each view."""

import argparse
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import Dinov2Model

from augmentation import Augmentation, augment, random_augmentation
from distillation_targets import (
    OBJECT_SHARE,
    TEACHER_PIXELS,
    DistillationTargets,
    Teacher,
    fit_teacher,
    log_prior,
    predict_with_probe,
)
from photo_classification import PIXELS, accuracies
from photos import load_photos
from training_loop import compile_if_possible, log, mixed_precision


class DistillationBatch(NamedTuple):
    inputs: Tensor  # view, rgb, row, column: as the student sees them
    targets: DistillationTargets
    labels: Tensor  # view, label: shares of the photos in it
    is_unmixed: Tensor  # view: 1 if it shows one photo only, else 0


class PhotoSampler:
    """The photos of both splits, and random views of the training photos."""

    def __init__(self, options: argparse.Namespace, *, with_masks: bool = False) -> None:
        self.options, self.device = options, torch.device(options.device)
        self.rng = torch.Generator(self.device).manual_seed(options.seed)
        self.train = load_photos(options.data, "train", limit=options.limit).to(self.device)
        self.val = load_photos(options.data, "val", with_masks=with_masks, limit=options.limit).to(self.device)
        counts = self.train.labels.bincount(minlength=len(self.train.names)).clamp(min=1)
        self.sampling = counts.float().rsqrt()[self.train.labels]  # dogs are many; the metric weighs classes equally
        self.prior = log_prior(self.train, self.sampling)
        sizes = {"train": len(self.train), "val": len(self.val), "masks": len(self.val.masks)}
        log({"event": "data loaded", **sizes}, options.out)

    def mixed_precision(self) -> torch.autocast:
        return mixed_precision(self.device)

    def sample(self, *, mixed: float) -> tuple[Tensor, Augmentation, Tensor]:
        """Random photos, an augmentation of each, and the shares of the labels in each view.

        The share `mixed` of the views is blended with others.
        """
        count = self.options.batch
        photos = torch.multinomial(self.sampling, count, replacement=True, generator=self.rng)
        augmentation = random_augmentation(count, self.rng, mixed=mixed)
        one_hot = F.one_hot(self.train.labels[photos], len(self.train.names)).float()
        share = augmentation.share[:, None]
        return self.train.images[photos], augmentation, share * one_hot + (1 - share) * one_hot.flip(0)


class DistillationSampler(PhotoSampler):
    """Random views with the teacher's targets for them."""

    def __init__(
        self, options: argparse.Namespace, *, with_masks: bool = False, object_share: float = OBJECT_SHARE
    ) -> None:
        super().__init__(options, with_masks=with_masks)
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        backbone = Dinov2Model.from_pretrained(options.teacher, dtype=dtype)
        self.teacher = Teacher(backbone, len(self.train.names), object_share=object_share).to(self.device)
        self.teacher_channels = backbone.config.hidden_size
        self.targets_of = self.teacher.forward

    def fit_teacher(self) -> None:
        """Fit the teacher's probe and scales, and log how well the probe classifies."""
        torch.set_float32_matmul_precision("highest")  # the probe's line search needs it
        fit = fit_teacher(self.teacher, self.train, self.sampling, self.rng, views=self.options.probe_views)
        parts = [predict_with_probe(self.teacher, part) for part in self.val.images.split(256)]
        scores = accuracies(torch.cat(parts), self.val)
        log({"event": "teacher ready", **fit, "probe": scores}, self.options.out)
        torch.set_float32_matmul_precision("high")

    def compile_teacher(self) -> None:
        size = (self.options.batch, 3, TEACHER_PIXELS, TEACHER_PIXELS)
        views = torch.zeros(size, device=self.device, dtype=self.teacher.dtype)
        with torch.no_grad():
            self.targets_of = compile_if_possible(self.teacher.forward, lambda forward: forward(views), self.options)

    def batch(self, *, mixed: float) -> DistillationBatch:
        """A random batch; teacher and student see the same views, each at its own size."""
        images, augmentation, labels = self.sample(mixed=mixed)
        with torch.no_grad():
            targets = self.targets_of(augment(images, augmentation, size=TEACHER_PIXELS).to(self.teacher.dtype))
        inputs = augment(images, augmentation, size=PIXELS)
        return DistillationBatch(inputs, targets, labels, (augmentation.share == 1).float())


def add_photo_options(parser: argparse.ArgumentParser) -> None:
    """The options of a recipe that reads photos."""
    parser.add_argument("--data", type=Path, required=True, help="folder with the photo tars and index.csv")
    parser.add_argument("--limit", type=int, help="photographs per split, for trials")


def add_distillation_options(parser: argparse.ArgumentParser) -> None:
    """The options of a recipe that reads photos and has a teacher."""
    add_photo_options(parser)
    parser.add_argument("--teacher", type=Path, required=True, help="folder that training/convert_teacher.py wrote")
    parser.add_argument("--probe-views", type=int, default=40_000, help="on which the teacher's probe is fitted")

"""What the recipes on photographs share: batches a teacher comments on, errors against it, accuracies, the folder."""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Dinov2Model, PreTrainedModel

import course
from lessons import OBJECT_SHARE, SIZE, Lesson, Teacher, log_prior, prepare, probe_predictions
from photos import Photos, photos
from views import MEAN, STD, View, pixels, plain_view, random_view

PIXELS = 128
TEMPERATURE = 2.0
PROCESSOR = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": PIXELS, "width": PIXELS},
    "resample": 3,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": list(MEAN),
    "image_std": list(STD),
}


class Batch(NamedTuple):
    inputs: Tensor  # view, rgb, row, column: as the student sees them
    lesson: Lesson
    labels: Tensor  # view, label: shares of the photographs in it
    clean: Tensor  # view: 1 if it shows one photograph only


class Album:
    """The photographs and random views of them."""

    def __init__(self, options: argparse.Namespace, *, with_masks: bool = False) -> None:
        self.options, self.device = options, torch.device(options.device)
        self.rng = torch.Generator(self.device).manual_seed(options.seed)
        self.train = photos(options.data, "train", limit=options.limit).to(self.device)
        self.val = photos(options.data, "val", with_masks=with_masks, limit=options.limit).to(self.device)
        counts = self.train.labels.bincount(minlength=len(self.train.names)).clamp(min=1)
        self.sampling = counts.float().rsqrt()[self.train.labels]  # dogs are many; the metric weighs classes equally
        self.prior = log_prior(self.train, self.sampling)
        sizes = {"train": len(self.train), "val": len(self.val), "masks": len(self.val.masks)}
        course.say({"event": "data loaded", **sizes}, options.out)

    def half_precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda")

    def draw(self, *, mixed: float) -> tuple[Tensor, View, Tensor]:
        """Random photographs, a random view of each, and the shares of the labels in it.

        The share `mixed` of the views is blended with others.
        """
        count = self.options.batch
        chosen = torch.multinomial(self.sampling, count, replacement=True, generator=self.rng)
        view = random_view(count, self.rng, mixed=mixed)
        one_hot = F.one_hot(self.train.labels[chosen], len(self.train.names)).float()
        share = view.share[:, None]
        return self.train.images[chosen], view, share * one_hot + (1 - share) * one_hot.flip(0)


class Classroom(Album):
    """An album, and a teacher who comments on the views."""

    def __init__(
        self, options: argparse.Namespace, *, with_masks: bool = False, object_share: float = OBJECT_SHARE
    ) -> None:
        super().__init__(options, with_masks=with_masks)
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        backbone = Dinov2Model.from_pretrained(options.teacher, dtype=dtype)
        self.teacher = Teacher(backbone, len(self.train.names), object_share=object_share).to(self.device)
        self.teacher_channels = backbone.config.hidden_size
        self.lesson = self.teacher.forward

    def prepare_teacher(self) -> None:
        """Fit the teacher's probe and scales."""
        torch.set_float32_matmul_precision("highest")  # the probe's line search needs it
        found = prepare(self.teacher, self.train, self.sampling, self.rng, views=self.options.probe_views)
        parts = [probe_predictions(self.teacher, part) for part in self.val.images.split(256)]
        scores = accuracies(torch.cat(parts), self.val)
        course.say({"event": "teacher ready", **found, "probe": scores}, self.options.out)
        torch.set_float32_matmul_precision("high")

    def compile_teacher(self) -> None:
        views = torch.zeros(self.options.batch, 3, SIZE, SIZE, device=self.device, dtype=self.teacher.dtype)
        with torch.no_grad():
            self.lesson = course.compiled(self.teacher.forward, lambda lesson: lesson(views), self.options)

    def batch(self, *, mixed: float) -> Batch:
        images, view, labels = self.draw(mixed=mixed)
        with torch.no_grad():
            lesson = self.lesson(pixels(images, view, size=SIZE).to(self.teacher.dtype))
        return Batch(pixels(images, view, size=PIXELS), lesson, labels, (view.share == 1).float())


def class_errors(logits: Tensor, taught: Tensor, labels: Tensor, prior: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy with the labels and the divergence from the teacher's logits."""
    return F.cross_entropy(logits + prior, labels, label_smoothing=0.1), divergence(logits, taught)


def divergence(logits: Tensor, taught: Tensor) -> Tensor:
    """Of the softened logits from the teacher's (Hinton et al. 2015)."""
    target, ours = (F.log_softmax(values.float() / TEMPERATURE, dim=-1) for values in (taught, logits))
    return TEMPERATURE**2 * F.kl_div(ours, target, reduction="batchmean", log_target=True)


@torch.no_grad()
def predictions(model: nn.Module, images: Tensor, *, batch: int = 512) -> Tensor:
    device = images.device
    parts = [model(pixels(part, plain_view(len(part), device), size=PIXELS)).logits for part in images.split(batch)]
    return torch.cat(parts).argmax(dim=-1)


def accuracies(predicted: Tensor, val: Photos) -> dict[str, float]:
    """In percent, of the first photographs, as many as are predicted."""
    labels = val.labels[: len(predicted)]
    correct = (predicted == labels).float()
    per_label = [float(correct[labels == label].mean()) for label in labels.unique()]
    return {"balanced_accuracy": 100 * sum(per_label) / len(per_label), "accuracy": 100 * float(correct.mean())}


def save(model: PreTrainedModel, folder: Path, others: Iterable[Any] = (), **settings: Any) -> None:
    """The model's folder with its image processor's file, which loads without torchvision."""
    course.save(model, folder, others)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR | settings, indent=2) + "\n")


def add_album_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="folder with the photo tars and index.csv")
    parser.add_argument("--limit", type=int, help="photographs per split, for trials")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_album_options(parser)
    parser.add_argument("--teacher", type=Path, required=True, help="folder that training/teacher.py wrote")
    parser.add_argument("--probe-views", type=int, default=40_000, help="on which the teacher's probe is fitted")

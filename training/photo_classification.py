"""Losses, accuracies and the model folder of the recipes that classify photos."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from augmentation import MEAN, STD, augment, no_augmentation
from checkpoints import save_model
from photos import Photos

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


def classification_losses(
    logits: Tensor, teacher_logits: Tensor, labels: Tensor, log_prior: Tensor
) -> tuple[Tensor, Tensor]:
    """The cross-entropy with the labels and the distillation loss with the teacher's logits.

    Labels are as frequent as they are sampled, `log_prior`; the logits themselves are for labels equally frequent.
    """
    cross_entropy = F.cross_entropy(logits + log_prior, labels, label_smoothing=0.1)
    return cross_entropy, distillation_loss(logits, teacher_logits)


def distillation_loss(logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """The divergence of the softened logits from the teacher's (Hinton et al. 2015)."""
    target, ours = (F.log_softmax(values.float() / TEMPERATURE, dim=-1) for values in (teacher_logits, logits))
    return TEMPERATURE**2 * F.kl_div(ours, target, reduction="batchmean", log_target=True)


@torch.no_grad()
def predict_labels(model: nn.Module, images: Tensor, *, batch: int = 512) -> Tensor:
    """The label of each photo by the model, without augmentation."""
    device = images.device
    parts = [
        model(augment(part, no_augmentation(len(part), device), size=PIXELS)).logits for part in images.split(batch)
    ]
    return torch.cat(parts).argmax(dim=-1)


def accuracies(predictions: Tensor, val: Photos) -> dict[str, float]:
    """In percent, of the first photos, as many as there are predictions."""
    labels = val.labels[: len(predictions)]
    correct = (predictions == labels).float()
    per_label = [float(correct[labels == label].mean()) for label in labels.unique()]
    return {"balanced_accuracy": 100 * sum(per_label) / len(per_label), "accuracy": 100 * float(correct.mean())}


def save_image_model(model: PreTrainedModel, folder: Path, processors: Iterable[Any] = (), **settings: Any) -> None:
    """The model's folder with its image processor's file, which loads without torchvision."""
    save_model(model, folder, processors)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR | settings, indent=2) + "\n")

"""What the student learns from the teacher about a view: patch features, an attention map, and class logits.

No mask is read here. The attention map says where the object is and comes from the teacher alone: from its [CLS]
attention, and from the first principal component of its last patch features (in a backbone tuned for saliency, the
saliency) with the sign that its [CLS] attends to. The component covers whole objects; the attention adds what the
component leaves out.
"""

from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from transformers import Dinov2Model

from augmentation import augment, no_augmentation, random_augmentation
from backbones import BackboneOutput, dinov2_backbone
from photos import Photos

TEACHER_PIXELS = 224  # a side: 16 x 16 patches of 14
FEATURE_BLOCKS = (6, 9, 11, 12)  # blocks whose tokens the student's blocks of the same number predict
PROBE_BLOCKS = (9, 10, 11, 12)  # blocks whose tokens the linear probe reads
ATTENTION_BLOCKS = (11, 12)  # blocks whose [CLS] attention is read
OBJECT_SHARE = 0.7  # of the principal component in the attention map; the rest is the [CLS] attention's
CONTRAST = 1.5  # of the object against its surroundings, in standard deviations of the component


class DistillationTargets(NamedTuple):
    features: list[Tensor]  # per block of FEATURE_BLOCKS: view, token, channel; standardised
    attention: Tensor  # view, patch: a distribution
    logits: Tensor  # view, label: of a linear probe, for classes that are equally likely


class Teacher(nn.Module):
    """A frozen DINOv2 with a linear probe; `fit_teacher` fits the probe and the scales."""

    def __init__(self, model: Dinov2Model, labels: int, *, object_share: float = OBJECT_SHARE) -> None:
        super().__init__()
        self.object_share = object_share
        self.backbone = dinov2_backbone(model).eval().requires_grad_(False)
        channels = model.config.hidden_size
        self.register_buffer("mean", torch.zeros(len(FEATURE_BLOCKS), 2, channels))  # of [CLS] and of patches
        self.register_buffer("std", torch.ones(len(FEATURE_BLOCKS), 2, channels))
        self.register_buffer("component", torch.zeros(channels))
        self.probe = nn.Linear(2 * len(PROBE_BLOCKS) * channels, labels).requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.backbone.parameters()).dtype

    def forward(self, inputs: Tensor) -> DistillationTargets:
        output = self.backbone(inputs, cls_attention_of=ATTENTION_BLOCKS)
        features = [self.standardise(output.tokens[block - 1], place) for place, block in enumerate(FEATURE_BLOCKS)]
        attention = self.attention_target(output, features[-1])
        return DistillationTargets(features, attention, self.probe(probe_inputs(output)))

    def standardise(self, tokens: Tensor, place: int) -> Tensor:
        """Tokens with mean 0 and variance 1, [CLS] and patches each by their own statistics."""
        mean, std = ((stat[place, :1], stat[place, 1:]) for stat in (self.mean, self.std))
        parts = zip((tokens[:, :1], tokens[:, 1:]), mean, std, strict=True)
        return torch.cat([(part - m) / s for part, m, s in parts], dim=1).to(tokens.dtype)

    def attention_target(self, output: BackboneOutput, last_features: Tensor) -> Tensor:
        """The object component, as a distribution over the patches, mixed with the [CLS] attention."""
        component = (CONTRAST * (last_features[:, 1:].float() @ self.component)).softmax(dim=-1)
        return self.object_share * component + (1 - self.object_share) * patch_attention(output)


def patch_attention(output: BackboneOutput) -> Tensor:
    """The [CLS] attention to the patches, mean over heads and the last blocks."""
    rows = torch.stack([output.cls_attention[block][:, :, 1:] for block in ATTENTION_BLOCKS]).mean(dim=(0, 2))
    return rows / rows.sum(dim=-1, keepdim=True)


def probe_inputs(output: BackboneOutput) -> Tensor:
    """[CLS] and the mean patch token of each of PROBE_BLOCKS, side by side."""
    tokens = [output.tokens[block - 1].float() for block in PROBE_BLOCKS]
    return torch.cat([part for state in tokens for part in (state[:, 0], state[:, 1:].mean(dim=1))], dim=-1)


@torch.no_grad()
def fit_scales(teacher: Teacher, batches: list[Tensor]) -> dict[str, float]:
    """Fit the standardisation of the features and the object component to a few batches of views."""
    outputs = [teacher.backbone(batch, cls_attention_of=ATTENTION_BLOCKS) for batch in batches]
    for place, block in enumerate(FEATURE_BLOCKS):
        tokens = torch.cat([output.tokens[block - 1] for output in outputs]).float()
        for kind, part in enumerate((tokens[:, 0], tokens[:, 1:].flatten(0, 1))):
            teacher.mean[place, kind], teacher.std[place, kind] = part.mean(dim=0), part.std(dim=0) + 1e-4
    patches = teacher.standardise(torch.cat([output.tokens[-1] for output in outputs]), len(FEATURE_BLOCKS) - 1)
    patches = patches[:, 1:].flatten(0, 1).float()
    shares, components = torch.linalg.eigh(patches.T @ patches / len(patches))
    scores = patches @ components[:, -1]
    log_attention = torch.cat([patch_attention(output) for output in outputs]).clamp(min=1e-8).log().flatten()
    agreement = torch.corrcoef(torch.stack([scores, log_attention]))[0, 1]
    teacher.component.copy_(components[:, -1] * agreement.sign() / scores.std())
    return {"component_share": float(shares[-1] / shares.sum()), "agreement_with_attention": float(agreement.abs())}


def fit_probe(teacher: Teacher, features: Tensor, labels: Tensor, log_prior: Tensor, *, decay: float = 2e-3) -> None:
    """A ridge-penalised softmax regression, standardisation folded into its weights."""
    mean, std = features.mean(dim=0), features.std(dim=0) + 1e-4
    inputs = (features - mean) / std
    weight = torch.zeros(len(log_prior), inputs.shape[1], device=inputs.device, requires_grad=True)
    bias = torch.zeros(len(log_prior), device=inputs.device, requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=100, history_size=10, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(inputs @ weight.T + bias + log_prior, labels, label_smoothing=0.05)
        loss = loss + decay / 2 * weight.square().sum()
        loss.backward()
        return loss

    solver.step(objective)
    with torch.no_grad():
        teacher.probe.weight.copy_(weight / std)
        teacher.probe.bias.copy_(bias - (weight / std) @ mean)


def fit_teacher(teacher: Teacher, train: Photos, sampling: Tensor, rng: Generator, *, views: int) -> dict[str, float]:
    """Fit probe, scales and object component on `views` random views of the training photos.

    `sampling` is the weight with which each photo is drawn. Returns the component's share of the variance and
    its agreement with the attention.
    """
    batch = min(256, len(train))
    inputs, features, labels = [], [], []
    for _ in range(max(views // batch, 1)):
        photos = torch.multinomial(sampling, batch, replacement=True, generator=rng)
        augmentation = random_augmentation(batch, rng, mixed=0)
        views_now = augment(train.images[photos], augmentation, size=TEACHER_PIXELS).to(teacher.dtype)
        inputs = [*inputs[-7:], views_now]  # the scales are fitted to the last eight batches
        with torch.no_grad():
            features.append(probe_inputs(teacher.backbone(views_now)))
        labels.append(train.labels[photos])
    fit_probe(teacher, torch.cat(features), torch.cat(labels), log_prior(train, sampling))
    return fit_scales(teacher, inputs)


def log_prior(train: Photos, sampling: Tensor) -> Tensor:
    """The log share of each label among views sampled with these weights."""
    share = torch.zeros(len(train.names), device=sampling.device).index_add_(0, train.labels, sampling)
    return (share / share.sum()).clamp(min=1e-6).log()


@torch.no_grad()
def predict_with_probe(teacher: Teacher, images: Tensor) -> Tensor:
    """The label of each photo by the teacher's linear probe."""
    inputs = augment(images, no_augmentation(len(images), images.device), size=TEACHER_PIXELS).to(teacher.dtype)
    return teacher.probe(probe_inputs(teacher.backbone(inputs))).argmax(dim=-1)

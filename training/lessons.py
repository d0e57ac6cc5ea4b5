"""What the teacher says about a view: patch features, where the object is, and class logits.

No mask is read here. Where the object is comes from the teacher alone: its [CLS] attention, and the first principal
component of its last patch features (in a backbone tuned for saliency, the saliency) with the sign that its [CLS]
attends to. The component covers whole objects, the attention finds what the component leaves out.
"""

from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from transformers import Dinov2Model

from photos import Photos
from streams import Reading, dinov2_stream
from views import pixels, plain_view, random_view

SIZE = 224  # pixels: 16 x 16 patches of 14
MATCHED = (6, 9, 11, 12)  # blocks whose tokens the student's blocks of the same number predict
PROBED = (9, 10, 11, 12)
GAZED = (11, 12)  # blocks whose [CLS] attention is read
OBJECT_SHARE = 0.7  # of the gaze; the rest is the attention's
CONTRAST = 1.5  # of the object against its surroundings, in standard deviations of the component


class Lesson(NamedTuple):
    features: list[Tensor]  # per matched block: view, token, channel; standardised
    gaze: Tensor  # view, patch: a distribution
    logits: Tensor  # view, label: of a linear probe, for classes that are equally likely


class Teacher(nn.Module):
    def __init__(self, model: Dinov2Model, labels: int, *, object_share: float = OBJECT_SHARE) -> None:
        super().__init__()
        self.object_share = object_share
        self.stream = dinov2_stream(model).eval().requires_grad_(False)
        channels = model.config.hidden_size
        self.register_buffer("mean", torch.zeros(len(MATCHED), 2, channels))  # of [CLS] and of patches
        self.register_buffer("std", torch.ones(len(MATCHED), 2, channels))
        self.register_buffer("component", torch.zeros(channels))
        self.probe = nn.Linear(2 * len(PROBED) * channels, labels).requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.stream.parameters()).dtype

    def forward(self, inputs: Tensor) -> Lesson:
        reading = self.stream(inputs, rows_of=GAZED)
        features = [self.standardised(reading.tokens[block - 1], place) for place, block in enumerate(MATCHED)]
        return Lesson(features, self.gaze_of(reading, features[-1]), self.probe(probed(reading)))

    def standardised(self, tokens: Tensor, place: int) -> Tensor:
        mean, std = ((stat[place, :1], stat[place, 1:]) for stat in (self.mean, self.std))
        parts = zip((tokens[:, :1], tokens[:, 1:]), mean, std, strict=True)
        return torch.cat([(part - m) / s for part, m, s in parts], dim=1).to(tokens.dtype)

    def gaze_of(self, reading: Reading, last: Tensor) -> Tensor:
        found = (CONTRAST * (last[:, 1:].float() @ self.component)).softmax(dim=-1)
        return self.object_share * found + (1 - self.object_share) * attention_gaze(reading)


def attention_gaze(reading: Reading) -> Tensor:
    """The [CLS] attention to the patches, mean over heads and the last blocks."""
    rows = torch.stack([reading.rows[block][:, :, 1:] for block in GAZED]).mean(dim=(0, 2))
    return rows / rows.sum(dim=-1, keepdim=True)


def probed(reading: Reading) -> Tensor:
    tokens = [reading.tokens[block - 1].float() for block in PROBED]
    return torch.cat([part for state in tokens for part in (state[:, 0], state[:, 1:].mean(dim=1))], dim=-1)


@torch.no_grad()
def learn_scales(teacher: Teacher, batches: list[Tensor]) -> dict[str, float]:
    """Standardise the matched features and find the object component, from a few batches of views."""
    readings = [teacher.stream(batch, rows_of=GAZED) for batch in batches]
    for place, block in enumerate(MATCHED):
        tokens = torch.cat([reading.tokens[block - 1] for reading in readings]).float()
        for kind, part in enumerate((tokens[:, 0], tokens[:, 1:].flatten(0, 1))):
            teacher.mean[place, kind], teacher.std[place, kind] = part.mean(dim=0), part.std(dim=0) + 1e-4
    patches = teacher.standardised(torch.cat([reading.tokens[-1] for reading in readings]), len(MATCHED) - 1)
    patches = patches[:, 1:].flatten(0, 1).float()
    shares, components = torch.linalg.eigh(patches.T @ patches / len(patches))
    score = patches @ components[:, -1]
    attended = torch.cat([attention_gaze(reading) for reading in readings]).clamp(min=1e-8).log().flatten()
    agreement = torch.corrcoef(torch.stack([score, attended]))[0, 1]
    teacher.component.copy_(components[:, -1] * agreement.sign() / score.std())
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


def prepare(teacher: Teacher, train: Photos, sampling: Tensor, rng: Generator, *, views: int) -> dict[str, float]:
    """Fit what the teacher lacks (scales, object component, linear probe) on `views` random views of train."""
    batch = min(256, len(train))
    inputs, features, labels = [], [], []
    for _ in range(max(views // batch, 1)):
        chosen = torch.multinomial(sampling, batch, replacement=True, generator=rng)
        view = random_view(batch, rng, mixed=0)
        inputs = [*inputs[-7:], pixels(train.images[chosen], view, size=SIZE).to(teacher.dtype)]
        with torch.no_grad():
            features.append(probed(teacher.stream(inputs[-1], rows_of=())))
        labels.append(train.labels[chosen])
    fit_probe(teacher, torch.cat(features), torch.cat(labels), log_prior(train, sampling))
    return learn_scales(teacher, inputs)


def log_prior(train: Photos, sampling: Tensor) -> Tensor:
    """The log share of each label among sampled views."""
    share = torch.zeros(len(train.names), device=sampling.device).index_add_(0, train.labels, sampling)
    return (share / share.sum()).clamp(min=1e-6).log()


@torch.no_grad()
def probe_predictions(teacher: Teacher, images: Tensor) -> Tensor:
    inputs = pixels(images, plain_view(len(images), images.device), size=SIZE).to(teacher.dtype)
    return teacher.probe(probed(teacher.stream(inputs, rows_of=()))).argmax(dim=-1)

"""mini-vit-mae: a stock BeitForImageClassification, pre-trained as a masked autoencoder (He et al. 2022).

    python training/mini_vit_mae.py --data DIR --teacher DIR --out DIR --minutes 9.5 --seed 0

Pre-training hides three quarters of the patches; the encoder sees the others, and a light decoder, thrown away
afterwards, predicts the hidden ones: their normalised pixels and, since 13,149 photos are few, the features that
DINOv2 ViT-S/14 has there. Fine-tuning learns the labels, the logits of the teacher's linear probe and its patch
features. Attention is never supervised. BEiT with `use_mean_pooling` and without layer scale or relative positions
classifies as MAE's global pool does: LayerNorm(mean of the patch tokens), then a linear layer.
The schedule follows the clock, so a run ends on time on any machine and its length in steps may differ between runs.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BeitConfig, BeitForImageClassification

from augmentation import GRID
from backbones import beit_backbone
from checkpoints import load_model
from distillation_targets import FEATURE_BLOCKS
from optimization import Trainer, WeightAverage
from photo_batches import DistillationBatch, DistillationSampler, add_distillation_options
from photo_classification import PIXELS, accuracies, classification_losses, predict_labels, save_image_model
from training_loop import compile_if_possible, log, new_parser, seconds_left, start_run, train_for, write_metrics

PATCH = PIXELS // GRID
VISIBLE = GRID * GRID // 4  # patches
WIDTH, DECODER_WIDTH = 144, 128
RESERVE = 15.0  # seconds for saving and the evaluation


class Autoencoder(nn.Module):
    """The encoder of the model and a decoder for hidden patches, used in pre-training only."""

    def __init__(self, model: BeitForImageClassification, teacher_channels: int) -> None:
        super().__init__()
        self.backbone = beit_backbone(model)
        self.decoder_input = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, DECODER_WIDTH))
        self.hidden_token = nn.Parameter(0.02 * torch.randn(DECODER_WIDTH))
        self.register_buffer("positions", sinusoidal_positions(DECODER_WIDTH))
        block = nn.TransformerEncoderLayer(
            DECODER_WIDTH, 4, 4 * DECODER_WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        norm = nn.LayerNorm(DECODER_WIDTH)
        self.decoder = nn.TransformerEncoder(block, num_layers=2, norm=norm, enable_nested_tensor=False)
        self.pixels = nn.Linear(DECODER_WIDTH, 3 * PATCH * PATCH)
        self.features = nn.Linear(DECODER_WIDTH, teacher_channels)

    def losses(self, batch: DistillationBatch, order: Tensor) -> Tensor:
        """Of the hidden patches, all but the first of the `order`: pixels and the teacher's last features."""
        visible, hidden = order[:, :VISIBLE], order[:, VISIBLE:]
        embedded = self.backbone.embeddings(batch.inputs)
        tokens = torch.cat([embedded[:, :1], select_patches(embedded[:, 1:], visible)], dim=1)
        encoded = self.decoder_input(self.backbone.encode(tokens).tokens[-1][:, 1:])
        # The decoder sees the patches in this order too: their positions, not their places, tell them apart.
        tokens = torch.cat([encoded, self.hidden_token.expand(*hidden.shape, -1)], dim=1) + self.positions[order]
        decoded = self.decoder(tokens)[:, VISIBLE:]
        pixels = F.mse_loss(self.pixels(decoded).float(), select_patches(normalised_patches(batch.inputs), hidden))
        features = F.mse_loss(
            self.features(decoded).float(), select_patches(batch.targets.features[-1][:, 1:], hidden).float()
        )
        return torch.stack([pixels, features])


class Student(nn.Module):
    """The model and, for training only, a norm and a linear map per block of FEATURE_BLOCKS."""

    def __init__(self, model: BeitForImageClassification, teacher_channels: int) -> None:
        super().__init__()
        self.model = model
        self.backbone = beit_backbone(model)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, teacher_channels)) for _ in FEATURE_BLOCKS
        )

    def losses(self, batch: DistillationBatch, log_prior: Tensor) -> Tensor:
        """Of the labels, the teacher's logits and its patch features."""
        tokens = self.backbone(batch.inputs).tokens
        logits = self.model.classifier(self.model.beit.pooler(tokens[-1])).float()
        classes, distilled = classification_losses(logits, batch.targets.logits, batch.labels, log_prior)
        pairs = zip(self.heads, FEATURE_BLOCKS, batch.targets.features, strict=True)
        features = [
            F.mse_loss(head(tokens[block - 1][:, 1:]).float(), target[:, 1:].float()) for head, block, target in pairs
        ]
        return torch.stack([classes, distilled, torch.stack(features).mean()])


def sinusoidal_positions(channels: int) -> Tensor:
    """Sines and cosines of a patch's row and column: patch, channel."""
    place = torch.arange(GRID).float()
    rates = 10_000 ** -(torch.arange(channels // 4) / (channels // 4))
    angles = place[:, None] * rates
    axis = torch.cat([angles.sin(), angles.cos()], dim=1)
    both = torch.cat([axis[:, None].expand(-1, GRID, -1), axis[None].expand(GRID, -1, -1)], dim=-1)
    return both.flatten(0, 1)


def select_patches(values: Tensor, patches: Tensor) -> Tensor:
    """The values at each view's own choice of patches."""
    return values.take_along_dim(patches[..., None], dim=1)


def normalised_patches(inputs: Tensor) -> Tensor:
    """The pixels of each patch, with mean 0 and variance 1."""
    patches = F.unfold(inputs, PATCH, stride=PATCH).transpose(1, 2)
    return (patches - patches.mean(dim=-1, keepdim=True)) / (patches.var(dim=-1, keepdim=True) + 1e-6).sqrt()


def random_order(count: int, rng: torch.Generator) -> Tensor:
    return torch.rand(count, GRID * GRID, generator=rng, device=rng.device).argsort(dim=1)


def new_model(names: tuple[str, ...]) -> BeitForImageClassification:
    model = BeitForImageClassification(
        BeitConfig(
            image_size=PIXELS,
            patch_size=PATCH,
            hidden_size=WIDTH,
            num_hidden_layers=12,
            num_attention_heads=6,
            intermediate_size=4 * WIDTH,
            layer_norm_eps=1e-6,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            drop_path_rate=0.0,
            layer_scale_init_value=0.0,  # none
            use_mask_token=False,
            use_mean_pooling=True,
            use_absolute_position_embeddings=True,
            use_relative_position_bias=False,
            use_shared_relative_position_bias=False,
            id2label=dict(enumerate(names)),
            label2id={name: label for label, name in enumerate(names)},
        )
    )
    embeddings = model.beit.embeddings  # initialised as MAE's
    nn.init.xavier_uniform_(embeddings.patch_embeddings.projection.weight.view(WIDTH, -1))
    nn.init.normal_(embeddings.cls_token, std=0.02)
    embeddings.position_embeddings.data[0, 1:] = sinusoidal_positions(WIDTH)
    return model


def pretrain(
    model: BeitForImageClassification, data: DistillationSampler, options: argparse.Namespace
) -> dict[str, float]:
    """Train the encoder to predict hidden patches; returns seconds and steps."""
    autoencoder = Autoencoder(model, data.teacher_channels).to(data.device)
    trainer = Trainer(autoencoder, rate=options.pretraining_rate)

    def losses_of_a_batch(losses: Callable[..., Tensor]) -> Tensor:
        batch, order = data.batch(mixed=0.0), random_order(options.batch, data.rng)
        with data.mixed_precision():
            return losses(batch, order)

    losses = compile_if_possible(autoencoder.losses, lambda trial: losses_of_a_batch(trial).sum().backward(), options)
    autoencoder.zero_grad()

    def step(progress: float) -> dict[str, Tensor]:
        parts = losses_of_a_batch(losses)
        trainer.step(parts.sum(), progress)
        return dict(zip(("pixels", "features"), parts.detach(), strict=True))

    seconds = options.pretraining * seconds_left(options, reserve=RESERVE)
    log({"event": "pre-training starts", "planned_seconds": round(seconds)}, options.out)
    steps = train_for(step, seconds=seconds, options=options)
    return {"pretraining_seconds": round(seconds), "pretraining_steps": steps}


def fine_tune(
    model: BeitForImageClassification, data: DistillationSampler, options: argparse.Namespace
) -> dict[str, float]:
    """Train the classifier, saving the averaged model at each validation and at the end; returns seconds and steps."""
    student = Student(model, data.teacher_channels).to(data.device)
    trainer = Trainer(student, rate=options.rate)
    average = WeightAverage(model, decay=options.ema)

    def losses_of_a_batch(losses: Callable[..., Tensor], *, mixed: float = options.mixed) -> Tensor:
        batch = data.batch(mixed=mixed)
        with data.mixed_precision():
            return losses(batch, data.prior)

    losses = compile_if_possible(student.losses, lambda trial: losses_of_a_batch(trial).sum().backward(), options)
    student.zero_grad()

    def step(progress: float) -> dict[str, Tensor]:
        """The features weigh less and less, and the last views are not mixed."""
        mixed = options.mixed if progress < 0.85 else 0.0
        parts = losses_of_a_batch(losses, mixed=mixed)
        classes, distilled, features = parts
        feature_weight = options.feature_weight * (1 - 0.7 * progress)
        trainer.step(0.5 * classes + distilled + feature_weight * features, progress)
        average.update()
        return dict(zip(("classes", "distilled", "features"), parts.detach(), strict=True))

    def validate() -> dict[str, float]:
        save_image_model(average.model, options.out / "model")
        return accuracies(predict_labels(average.model, data.val.images[:1500]), data.val)

    seconds = seconds_left(options, reserve=RESERVE)
    log({"event": "fine-tuning starts", "planned_seconds": round(seconds)}, options.out)
    steps = train_for(step, seconds=seconds, options=options, validate=validate)
    save_image_model(average.model, options.out / "model")
    return {"fine_tuning_seconds": round(seconds), "fine_tuning_steps": steps}


def read_options() -> argparse.Namespace:
    parser = new_parser(__doc__)
    add_distillation_options(parser)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--pretraining", type=float, default=0.35, help="share of the training time")
    parser.add_argument("--pretraining-rate", type=float, default=1.5e-3)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--ema", type=float, default=0.998)
    parser.add_argument("--mixed", type=float, default=0.5, help="share of views blended with another")
    parser.add_argument("--feature-weight", type=float, default=2.0)
    return start_run(parser)


def main() -> None:
    options = read_options()
    data = DistillationSampler(options)
    data.fit_teacher()
    data.compile_teacher()
    model = new_model(data.train.names).to(data.device)
    facts = pretrain(model, data, options) | fine_tune(model, data, options)
    model = load_model(BeitForImageClassification, options)
    write_metrics(accuracies(predict_labels(model, data.val.images), data.val), model, options, **facts)


if __name__ == "__main__":
    main()

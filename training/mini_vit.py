"""mini-vit: a stock ViTForImageClassification, distilled from DINOv2 ViT-S/14: what the object is and where.

    python training/mini_vit.py --data DIR --teacher DIR --out DIR --minutes 9 --seed 0

`--attention-weight 0` trains mini-vit-plain, the same without supervised attention.
The schedule follows the clock, so a run ends on time on any machine and its length in steps may differ between runs.
"""

import argparse
import copy
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification

from backbones import vit_backbone
from checkpoints import load_model
from distillation_targets import FEATURE_BLOCKS, OBJECT_SHARE, DistillationTargets
from optimization import average_decay, learning_rate, new_optimizer, update_average
from photo_batches import DistillationSampler, add_distillation_options
from photo_classification import PIXELS, accuracies, classification_losses, predict_labels, save_image_model
from segmentation_evaluation import miou_of_centre_blob, miou_of_generic_attention
from training_loop import STARTED, compile_if_possible, log, new_parser, start_run, write_metrics

SUPERVISED_BLOCKS = tuple(range(5, 13))  # blocks whose [CLS] attention is supervised: all but the first four


class Student(nn.Module):
    """The model and, for training only, one linear map per block of FEATURE_BLOCKS into the teacher's channels."""

    def __init__(self, model: ViTForImageClassification, teacher_channels: int) -> None:
        super().__init__()
        self.model = model
        self.backbone = vit_backbone(model)
        self.heads = nn.ModuleList(nn.Linear(model.config.hidden_size, teacher_channels) for _ in FEATURE_BLOCKS)

    def losses(
        self, inputs: Tensor, targets: DistillationTargets, labels: Tensor, is_unmixed: Tensor, log_prior: Tensor
    ) -> Tensor:
        """Of the labels, the teacher's logits, its features and its attention: four numbers."""
        output = self.backbone(inputs, cls_attention_of=SUPERVISED_BLOCKS)
        logits = self.model.classifier(output.tokens[-1][:, 0]).float()
        classes, distilled = classification_losses(logits, targets.logits, labels, log_prior)
        predicted = [head(output.tokens[block - 1]) for head, block in zip(self.heads, FEATURE_BLOCKS, strict=True)]
        pairs = zip(predicted, targets.features, strict=True)
        features = torch.stack([feature_loss(guess, target) for guess, target in pairs]).mean()
        attention = torch.stack([output.cls_attention[block][:, :, 1:].mean(dim=1) for block in SUPERVISED_BLOCKS])
        # A blended view has two objects or a ghost: there the teacher's attention is no target.
        divergences = attention_divergence(targets.attention, attention) * is_unmixed
        supervised = divergences.sum() / is_unmixed.sum().clamp(min=1) / len(SUPERVISED_BLOCKS)
        return torch.stack([classes, distilled, features, supervised])


def feature_loss(guess: Tensor, target: Tensor) -> Tensor:
    """Squared error; [CLS], one token of 257, counts as much as half of the patches."""
    error = (guess.float() - target.float()).square().mean(dim=-1)
    return error[:, 1:].mean() + 0.5 * error[:, 0].mean()


def attention_divergence(target: Tensor, attention: Tensor) -> Tensor:
    """KL of each [CLS] attention, renormalised over the patches, from the target: summed over blocks."""
    ours = (attention / attention.sum(dim=-1, keepdim=True)).clamp(min=1e-8).log()
    return (target * (target.clamp(min=1e-8).log() - ours)).sum(dim=-1).sum(dim=0)


def new_model(names: tuple[str, ...]) -> ViTForImageClassification:
    return ViTForImageClassification(
        ViTConfig(
            image_size=PIXELS,
            patch_size=8,
            hidden_size=192,
            num_hidden_layers=12,
            num_attention_heads=6,
            intermediate_size=768,
            layer_norm_eps=1e-6,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            id2label=dict(enumerate(names)),
            label2id={name: label for label, name in enumerate(names)},
        )
    )


class VitTraining:
    """The state of a training run, which a checkpoint holds, and one step."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.data = DistillationSampler(options, with_masks=True, object_share=options.object_share)
        self.device = self.data.device
        self.model = new_model(self.data.train.names).to(self.device)
        self.ema = copy.deepcopy(self.model).requires_grad_(False).eval()
        self.student = Student(self.model, self.data.teacher_channels).to(self.device)
        self.optimizer = new_optimizer(self.student, options.rate)
        self.losses = self.student.losses
        self.steps = self.images = 0
        self.trained_seconds, self.planned_seconds = 0.0, 0.0

    @property
    def components(self) -> dict[str, nn.Module | torch.optim.Optimizer]:
        return {"student": self.student, "ema": self.ema, "teacher": self.data.teacher, "optimizer": self.optimizer}

    def state(self) -> dict:
        counts = {name: getattr(self, name) for name in ("steps", "images", "trained_seconds", "planned_seconds")}
        states = {name: part.state_dict() for name, part in self.components.items()}
        return {**states, **counts, "rng": self.data.rng.get_state()}

    def restore(self, state: dict) -> None:
        for name, part in self.components.items():
            part.load_state_dict(state[name])
        for name in ("steps", "images", "trained_seconds", "planned_seconds"):
            setattr(self, name, state[name])
        self.data.rng.set_state(state["rng"].cpu())

    def losses_of_a_batch(self, *, mixed: float, losses: Callable[..., Tensor] | None = None) -> Tensor:
        batch = self.data.batch(mixed=mixed)
        with self.data.mixed_precision():
            return (losses or self.losses)(batch.inputs, batch.targets, batch.labels, batch.is_unmixed, self.data.prior)

    def step(self, progress: float) -> Tensor:
        """One update; the features weigh less and less, and the last views are not mixed."""
        options = self.options
        losses = self.losses_of_a_batch(mixed=options.mixed if progress < 0.85 else 0.0)
        feature_weight = options.feature_weight * (1 - 0.7 * progress)
        weights = torch.tensor([0.5, 1.0, feature_weight, options.attention_weight])
        (losses * weights.to(self.device, non_blocking=True)).sum().backward()
        nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(progress, options.rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps, self.images = self.steps + 1, self.images + options.batch
        update_average(self.ema, self.model, average_decay(self.steps, options.ema))
        return losses.detach()

    def compile(self) -> None:
        """Compile both passes, where a compiler is, and run them once without an update."""

        def trial(losses: Callable[..., Tensor]) -> None:
            self.losses_of_a_batch(mixed=self.options.mixed, losses=losses).sum().backward()

        self.data.compile_teacher()
        self.losses = compile_if_possible(self.student.losses, trial, self.options)
        trial(self.losses)
        self.optimizer.zero_grad(set_to_none=True)
        self.synchronize()

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def train_until_done(training: VitTraining) -> None:
    """Train until the schedule ends or `--stop-after` minutes have passed; the model is also saved at 60 %."""
    options = training.options
    start = time.perf_counter() - training.trained_seconds
    stop = STARTED + 60 * options.stop_after
    last_report = last_validation = time.perf_counter()
    images_at_last_report, is_saved_midway = training.images, False
    while training.trained_seconds < training.planned_seconds and time.perf_counter() < stop:
        losses = training.step(training.trained_seconds / training.planned_seconds)
        if training.steps % 20 == 0:
            training.synchronize()  # the clock must not run ahead of the GPU
        now = time.perf_counter()
        training.trained_seconds = now - start
        if not is_saved_midway and training.trained_seconds > 0.6 * training.planned_seconds:
            save_checkpoint(training)
            is_saved_midway = True
        if now - last_report > options.report_every:
            record = {"step": training.steps, "epoch": round(training.images / len(training.data.train), 1)}
            record["images_per_second"] = round((training.images - images_at_last_report) / (now - last_report))
            record |= dict(zip(("classes", "distilled", "features", "gaze"), map(float, losses), strict=True))
            if now - last_validation > 3 * options.report_every:
                record |= accuracies(predict_labels(training.ema, training.data.val.images[:1500]), training.data.val)
                last_validation = now
            log(record, options.out)
            last_report, images_at_last_report = now, training.images


def save_checkpoint(training: VitTraining) -> None:
    """Save the averaged model and, with `--checkpoint`, the full state to resume from."""
    save_image_model(training.ema, training.options.out / "model")
    if training.options.checkpoint:
        torch.save(training.state(), training.options.checkpoint)


def evaluation(training: VitTraining) -> dict[str, float]:
    """Scores of the saved model, loaded as a user would load it."""
    model = load_model(ViTForImageClassification, training.options, attn_implementation="eager")
    scores = accuracies(predict_labels(model, training.data.val.images), training.data.val)
    log(scores, training.options.out)
    scores["generic_attention_miou"] = miou_of_generic_attention(model, training.data.val)
    scores["centre_blob_miou"] = miou_of_centre_blob(training.data.val)
    return scores


def read_options() -> argparse.Namespace:
    parser = new_parser(__doc__)
    add_distillation_options(parser)
    parser.add_argument("--stop-after", type=float, default=math.inf, help="minutes after which this call stops")
    parser.add_argument("--checkpoint", type=Path, help="file for the full state, to resume from")
    parser.add_argument("--resume", type=Path, help="file that --checkpoint wrote")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--mixed", type=float, default=0.5, help="share of views blended with another")
    parser.add_argument("--feature-weight", type=float, default=2.0)
    parser.add_argument("--attention-weight", type=float, default=3.0)
    parser.add_argument(
        "--object-share", type=float, default=OBJECT_SHARE, help="of the object component in the attention target"
    )
    return start_run(parser)


def main() -> None:
    options = read_options()
    training = VitTraining(options)
    if options.resume:
        training.restore(torch.load(options.resume, map_location=training.device))
    else:
        training.data.fit_teacher()
    training.compile()
    start_up = time.perf_counter() - STARTED
    if not options.resume:
        calls = 1 if options.stop_after >= options.minutes else 2
        training.planned_seconds = max(60 * options.minutes - calls * start_up, 1.0)
    log({"event": "training starts", "planned_seconds": round(training.planned_seconds)}, options.out)
    train_until_done(training)
    save_checkpoint(training)
    write_metrics(
        evaluation(training),
        training.ema,
        options,
        training_seconds=round(training.trained_seconds, 1),
        finished=training.trained_seconds >= training.planned_seconds,
        steps=training.steps,
        images_seen=training.images,
    )


if __name__ == "__main__":
    main()

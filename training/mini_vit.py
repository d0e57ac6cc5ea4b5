"""mini-vit: a stock ViTForImageClassification taught by DINOv2 ViT-S/14 what its object is and where.

    python training/mini_vit.py --data DIR --teacher DIR --out DIR --minutes 9 --seed 0

`--attention-weight 0` trains the twin mini-vit-plain, whose attention nobody supervised.
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

import classroom
import course
from classroom import PIXELS, Classroom, accuracies, class_errors, predictions, save
from course import STARTED, optimizer_of, rate_at, say
from lessons import MATCHED, OBJECT_SHARE, Lesson
from looking import miou_of_centre_blob, miou_of_generic_attention
from streams import vit_stream

GUIDED = tuple(range(5, 13))  # blocks whose [CLS] attention is drawn to the object: all but the first four


class Student(nn.Module):
    """The model and, for training only, one linear map per matched block into the teacher's channels."""

    def __init__(self, model: ViTForImageClassification, teacher_channels: int) -> None:
        super().__init__()
        self.model = model
        self.stream = vit_stream(model)
        self.heads = nn.ModuleList(nn.Linear(model.config.hidden_size, teacher_channels) for _ in MATCHED)

    def losses(self, inputs: Tensor, lesson: Lesson, labels: Tensor, clean: Tensor, prior: Tensor) -> Tensor:
        """Classes, the teacher's logits, its features, its gaze: four numbers."""
        reading = self.stream(inputs, rows_of=GUIDED)
        logits = self.model.classifier(reading.tokens[-1][:, 0]).float()
        classes, distilled = class_errors(logits, lesson.logits, labels, prior)
        predicted = [head(reading.tokens[block - 1]) for head, block in zip(self.heads, MATCHED, strict=True)]
        pairs = zip(predicted, lesson.features, strict=True)
        features = torch.stack([token_error(guess, target) for guess, target in pairs]).mean()
        rows = torch.stack([reading.rows[block][:, :, 1:].mean(dim=1) for block in GUIDED])
        # A blend has two objects or a ghost: there the teacher's gaze is no target.
        gaze = (divergence(lesson.gaze, rows) * clean).sum() / clean.sum().clamp(min=1) / len(GUIDED)
        return torch.stack([classes, distilled, features, gaze])


def token_error(guess: Tensor, target: Tensor) -> Tensor:
    """Squared error; [CLS], one token of 257, counts as much as half of the patches."""
    error = (guess.float() - target.float()).square().mean(dim=-1)
    return error[:, 1:].mean() + 0.5 * error[:, 0].mean()


def divergence(target: Tensor, rows: Tensor) -> Tensor:
    """KL of each row, renormalised over the patches, from the target: summed over blocks."""
    ours = (rows / rows.sum(dim=-1, keepdim=True)).clamp(min=1e-8).log()
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


class Run:
    """The state of a training run: what a checkpoint holds, and one step."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.room = Classroom(options, with_masks=True, object_share=options.object_share)
        self.device = self.room.device
        self.model = new_model(self.room.train.names).to(self.device)
        self.ema = copy.deepcopy(self.model).requires_grad_(False).eval()
        self.student = Student(self.model, self.room.teacher_channels).to(self.device)
        self.optimizer = optimizer_of(self.student, options.rate)
        self.losses = self.student.losses
        self.steps = self.images = 0
        self.trained_seconds, self.planned_seconds = 0.0, 0.0

    @property
    def kept(self) -> dict[str, nn.Module | torch.optim.Optimizer]:
        return {"student": self.student, "ema": self.ema, "teacher": self.room.teacher, "optimizer": self.optimizer}

    def state(self) -> dict:
        counts = {name: getattr(self, name) for name in ("steps", "images", "trained_seconds", "planned_seconds")}
        states = {name: part.state_dict() for name, part in self.kept.items()}
        return {**states, **counts, "rng": self.room.rng.get_state()}

    def restore(self, state: dict) -> None:
        for name, part in self.kept.items():
            part.load_state_dict(state[name])
        for name in ("steps", "images", "trained_seconds", "planned_seconds"):
            setattr(self, name, state[name])
        self.room.rng.set_state(state["rng"].cpu())

    def losses_of_a_batch(self, *, mixed: float, losses: Callable[..., Tensor] | None = None) -> Tensor:
        batch = self.room.batch(mixed=mixed)
        with self.room.half_precision():
            return (losses or self.losses)(batch.inputs, batch.lesson, batch.labels, batch.clean, self.room.prior)

    def step(self, progress: float) -> Tensor:
        """One update; the features matter less and less, and the last views are not mixed."""
        options = self.options
        losses = self.losses_of_a_batch(mixed=options.mixed if progress < 0.85 else 0.0)
        feature_weight = options.feature_weight * (1 - 0.7 * progress)
        weights = torch.tensor([0.5, 1.0, feature_weight, options.attention_weight])
        (losses * weights.to(self.device, non_blocking=True)).sum().backward()
        nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(progress, options.rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.steps, self.images = self.steps + 1, self.images + options.batch
        decay = min(options.ema, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_(list(self.ema.parameters()), list(self.model.parameters()), 1 - decay)
        return losses.detach()

    def warm_up(self) -> None:
        """Compile both passes, where a compiler is, and run them once without an update."""

        def trial(losses: Callable[..., Tensor]) -> None:
            self.losses_of_a_batch(mixed=self.options.mixed, losses=losses).sum().backward()

        self.room.compile_teacher()
        self.losses = course.compiled(self.student.losses, trial, self.options)
        trial(self.losses)
        self.optimizer.zero_grad(set_to_none=True)
        self.synchronize()

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def train(run: Run) -> None:
    """Until the schedule ends or `--stop-after` strikes; the model is saved at 60 %."""
    options = run.options
    begun = time.perf_counter() - run.trained_seconds
    stop = STARTED + 60 * options.stop_after
    last_report = last_probe = time.perf_counter()
    images_then, saved_midway = run.images, False
    while run.trained_seconds < run.planned_seconds and time.perf_counter() < stop:
        losses = run.step(run.trained_seconds / run.planned_seconds)
        if run.steps % 20 == 0:
            run.synchronize()  # the clock must not run ahead of the GPU
        now = time.perf_counter()
        run.trained_seconds = now - begun
        if not saved_midway and run.trained_seconds > 0.6 * run.planned_seconds:
            keep(run)
            saved_midway = True
        if now - last_report > options.report_every:
            record = {"step": run.steps, "epoch": round(run.images / len(run.room.train), 1)}
            record["images_per_second"] = round((run.images - images_then) / (now - last_report))
            record |= dict(zip(("classes", "distilled", "features", "gaze"), map(float, losses), strict=True))
            if now - last_probe > 3 * options.report_every:
                record |= accuracies(predictions(run.ema, run.room.val.images[:1500]), run.room.val)
                last_probe = now
            say(record, options.out)
            last_report, images_then = now, run.images


def keep(run: Run) -> None:
    save(run.ema, run.options.out / "model")
    if run.options.checkpoint:
        torch.save(run.state(), run.options.checkpoint)


def evaluation(run: Run) -> dict[str, float]:
    """Of the saved folder, loaded back as a user would."""
    folder = run.options.out / "model"
    model = ViTForImageClassification.from_pretrained(folder, attn_implementation="eager").to(run.device).eval()
    if model.dtype != torch.float32:
        raise TypeError(f"{folder} loads as {model.dtype}, not float32: set dtype in its config.json.")
    scores = accuracies(predictions(model, run.room.val.images), run.room.val)
    say(scores, run.options.out)
    scores["generic_attention_miou"] = miou_of_generic_attention(model, run.room.val)
    scores["centre_blob_miou"] = miou_of_centre_blob(run.room.val)
    return scores


def options_of_the_call() -> argparse.Namespace:
    parser = course.options_of(__doc__)
    classroom.add_options(parser)
    parser.add_argument("--stop-after", type=float, default=math.inf, help="minutes after which this call stops")
    parser.add_argument("--checkpoint", type=Path, help="file for the full state, to resume from")
    parser.add_argument("--resume", type=Path, help="file that --checkpoint wrote")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--mixed", type=float, default=0.5, help="share of views blended with another")
    parser.add_argument("--feature-weight", type=float, default=2.0)
    parser.add_argument("--attention-weight", type=float, default=3.0)
    parser.add_argument("--object-share", type=float, default=OBJECT_SHARE, help="of the gaze; the rest: attention")
    return course.begin(parser)


def main() -> None:
    options = options_of_the_call()
    run = Run(options)
    if options.resume:
        run.restore(torch.load(options.resume, map_location=run.device))
    else:
        run.room.prepare_teacher()
    run.warm_up()
    start_up = time.perf_counter() - STARTED
    if not options.resume:
        calls = 1 if options.stop_after >= options.minutes else 2
        run.planned_seconds = max(60 * options.minutes - calls * start_up, 1.0)
    say({"event": "training starts", "planned_seconds": round(run.planned_seconds)}, options.out)
    train(run)
    keep(run)
    torch.set_float32_matmul_precision("highest")
    course.finish(
        evaluation(run),
        run.ema,
        options,
        training_seconds=round(run.trained_seconds, 1),
        finished=run.trained_seconds >= run.planned_seconds,
        steps=run.steps,
        images_seen=run.images,
    )


if __name__ == "__main__":
    main()

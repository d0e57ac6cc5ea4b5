"""mini-vit: a stock ViTForImageClassification taught by DINOv2 ViT-S/14 what its object is and where.

    python training/mini_vit.py --data DIR --teacher DIR --out DIR --minutes 9 --seed 0

`--attention-weight 0` trains the twin mini-vit-plain, whose attention nobody supervised.
The schedule follows the clock, so a run ends on time on any machine and its length in steps may differ between runs.
"""

import argparse
import copy
import json
import math
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Dinov2Model, ViTConfig, ViTForImageClassification

import course
from course import STARTED, optimizer_of, rate_at, say
from lessons import MATCHED, SIZE, Lesson, Teacher, log_prior, prepare, probe_predictions
from looking import miou_of_centre_blob, miou_of_generic_attention
from photos import Photos, photos
from streams import vit_stream
from views import MEAN, STD, pixels, plain_view, random_view

PIXELS = 128
GUIDED = tuple(range(5, 13))  # blocks whose [CLS] attention is drawn to the object: all but the first four
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
        classes = F.cross_entropy(logits + prior, labels, label_smoothing=0.1)
        taught = F.log_softmax(lesson.logits / TEMPERATURE, dim=-1)
        ours = F.log_softmax(logits / TEMPERATURE, dim=-1)
        distilled = TEMPERATURE**2 * F.kl_div(ours, taught, reduction="batchmean", log_target=True)
        predicted = [head(reading.tokens[block - 1]) for head, block in zip(self.heads, MATCHED, strict=True)]
        pairs = zip(predicted, lesson.features, strict=True)
        features = torch.stack([token_error(guess, target) for guess, target in pairs]).mean()
        rows = torch.stack([reading.rows[block][:, :, 1:].mean(dim=1) for block in GUIDED])
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


def save(model: ViTForImageClassification, folder: Path) -> None:
    course.save(model, folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR, indent=2) + "\n")


class Run:
    """The state of a training run: what a checkpoint holds, and one step."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options, self.device = options, device
        self.on_gpu = device.type == "cuda"
        self.rng = torch.Generator(device).manual_seed(options.seed)
        self.train = photos(options.data, "train", limit=options.limit).to(device)
        self.val = photos(options.data, "val", with_masks=True, limit=options.limit).to(device)
        counts = self.train.labels.bincount(minlength=len(self.train.names)).clamp(min=1)
        self.sampling = counts.float().rsqrt()[self.train.labels]  # dogs are many; the metric weighs classes equally
        self.prior = log_prior(self.train, self.sampling)
        self.model = new_model(self.train.names).to(device)
        self.ema = copy.deepcopy(self.model).requires_grad_(False).eval()
        backbone = Dinov2Model.from_pretrained(options.teacher, dtype=torch.bfloat16 if self.on_gpu else torch.float32)
        self.teacher = Teacher(backbone, len(self.train.names), object_share=options.object_share).to(device)
        self.student = Student(self.model, backbone.config.hidden_size).to(device)
        self.optimizer = optimizer_of(self.student, options.rate)
        self.lesson, self.losses = self.teacher.forward, self.student.losses
        self.steps = self.images = 0
        self.trained_seconds, self.planned_seconds = 0.0, 0.0

    def state(self) -> dict:
        modules = {name: getattr(self, name).state_dict() for name in ("student", "ema", "teacher", "optimizer")}
        counts = {name: getattr(self, name) for name in ("steps", "images", "trained_seconds", "planned_seconds")}
        return {**modules, **counts, "rng": self.rng.get_state()}

    def restore(self, state: dict) -> None:
        for name in ("student", "ema", "teacher", "optimizer"):
            getattr(self, name).load_state_dict(state[name])
        for name in ("steps", "images", "trained_seconds", "planned_seconds"):
            setattr(self, name, state[name])
        self.rng.set_state(state["rng"].cpu())

    def losses_of_a_batch(self, *, mixed: float) -> Tensor:
        count = self.options.batch
        chosen = torch.multinomial(self.sampling, count, replacement=True, generator=self.rng)
        images, view = self.train.images[chosen], random_view(count, self.rng, mixed=mixed)
        one_hot = F.one_hot(self.train.labels[chosen], len(self.train.names)).float()
        labels = view.share[:, None] * one_hot + (1 - view.share[:, None]) * one_hot.flip(0)
        with torch.no_grad():
            lesson = self.lesson(pixels(images, view, size=SIZE).to(next(self.teacher.stream.parameters()).dtype))
        # A blend has two objects or a ghost: there the teacher's gaze is no target.
        clean = (view.share == 1).float()
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.on_gpu):
            return self.losses(pixels(images, view, size=PIXELS), lesson, labels, clean, self.prior)

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
        """Compile and run both passes once without an update; without a working compiler, stay eager."""
        if self.on_gpu and self.options.compile:
            try:
                self.lesson = torch.compile(self.teacher.forward, dynamic=False)
                self.losses = torch.compile(self.student.losses, dynamic=False)
                self.losses_of_a_batch(mixed=self.options.mixed).sum().backward()
            except Exception as error:  # any failure of the compiler: the eager passes compute the same
                say({"event": "compile failed, staying eager", "error": str(error)[:300]}, self.options.out)
                self.lesson, self.losses = self.teacher.forward, self.student.losses
        self.losses_of_a_batch(mixed=self.options.mixed).sum().backward()
        self.optimizer.zero_grad(set_to_none=True)
        self.synchronize()

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()


def predictions(model: nn.Module, images: Tensor, *, batch: int = 512) -> Tensor:
    device = images.device
    with torch.no_grad():
        parts = [model(pixels(part, plain_view(len(part), device), size=PIXELS)).logits for part in images.split(batch)]
    return torch.cat(parts).argmax(dim=-1)


def accuracies(predicted: Tensor, val: Photos) -> dict[str, float]:
    labels = val.labels[: len(predicted)]
    correct = (predicted == labels).float()
    per_label = [float(correct[labels == label].mean()) for label in labels.unique()]
    return {"balanced_accuracy": 100 * sum(per_label) / len(per_label), "accuracy": 100 * float(correct.mean())}


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
            record = {"step": run.steps, "epoch": round(run.images / len(run.train), 1)}
            record["images_per_second"] = round((run.images - images_then) / (now - last_report))
            record |= dict(zip(("classes", "distilled", "features", "gaze"), map(float, losses), strict=True))
            if now - last_probe > 3 * options.report_every:
                record |= accuracies(predictions(run.ema, run.val.images[:1500]), run.val)
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
    scores = accuracies(predictions(model, run.val.images), run.val)
    say(scores, run.options.out)
    scores["generic_attention_miou"] = miou_of_generic_attention(model, run.val)
    scores["centre_blob_miou"] = miou_of_centre_blob(run.val)
    return scores


def options_of_the_call() -> argparse.Namespace:
    parser = course.options_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the photo tars and index.csv")
    parser.add_argument("--teacher", type=Path, required=True, help="folder that training/teacher.py wrote")
    parser.add_argument("--stop-after", type=float, default=math.inf, help="minutes after which this call stops")
    parser.add_argument("--checkpoint", type=Path, help="file for the full state, to resume from")
    parser.add_argument("--resume", type=Path, help="file that --checkpoint wrote")
    parser.add_argument("--limit", type=int, help="photographs per split, for trials")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--mixed", type=float, default=0.5, help="share of views blended with another")
    parser.add_argument("--feature-weight", type=float, default=2.0)
    parser.add_argument("--attention-weight", type=float, default=3.0)
    parser.add_argument("--object-share", type=float, default=0.7, help="of the gaze; the rest is teacher attention")
    parser.add_argument("--probe-views", type=int, default=40_000)
    return course.begin(parser)


def main() -> None:
    options = options_of_the_call()
    torch.set_float32_matmul_precision("highest")  # the probe's line search needs it
    run = Run(options, torch.device(options.device))
    sizes = {"train": len(run.train), "val": len(run.val), "masks": len(run.val.masks)}
    say({"event": "data loaded", **sizes}, options.out)
    if options.resume:
        run.restore(torch.load(options.resume, map_location=run.device))
    else:
        found = prepare(run.teacher, run.train, run.sampling, run.rng, views=options.probe_views)
        parts = [probe_predictions(run.teacher, part) for part in run.val.images.split(256)]
        say({"event": "teacher ready", **found, "probe": accuracies(torch.cat(parts), run.val)}, options.out)
    torch.set_float32_matmul_precision("high")
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

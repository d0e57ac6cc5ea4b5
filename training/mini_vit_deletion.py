"""mini-vit-deletion: mini-vit-mae trained on with parts of its pictures black, so that deletions are no surprise to it.

    python training/mini_vit_deletion.py --data DIR --init src/whyformer/zoo/mini-vit-mae --out DIR --minutes 4

What a classifier says of a picture with black holes tells little of what it saw in the whole one if it never saw holes:
the usual objection to measuring explanations by deletion. This one has seen them (as Hesse et al. 2024 do it): of most
views a random share of the pixels is black, in specks or in blobs, and the labels stay; whole views keep the logits of
the model that it started from. It is not bundled: suites find it as a folder below --data.
"""

import argparse
import copy
from pathlib import Path

import torch
from torch import Generator, Tensor
from torch.nn import functional as F
from transformers import BeitForImageClassification

from augmentation import GRID, MEAN, STD, augment, uniform
from checkpoints import load_model
from optimization import Trainer, WeightAverage
from photo_batches import PhotoSampler, add_photo_options
from photo_classification import PIXELS, accuracies, distillation_loss, predict_labels, save_image_model
from training_loop import compile_if_possible, log, new_parser, seconds_left, start_run, train_for, write_metrics

WHOLE = 0.25  # the share of views without a hole
SIDES = (4, 8, GRID)  # of the noise that holes are cut from: large blobs to single patches
RESERVE = 15.0  # seconds for saving and the evaluation
SHARES = (0.25, 0.5, 0.75)  # of the pixels that are black when accuracy is measured


def random_holes(count: int, share: Tensor, rng: Generator) -> Tensor:
    """Where pixels go, view × row × column: of each view this share of them, lowest in a random landscape."""
    side = SIDES[int(torch.randint(len(SIDES), (1,), generator=rng, device=rng.device))]
    noise = torch.rand(count, 1, side, side, generator=rng, device=rng.device)
    landscape = F.interpolate(noise, (PIXELS, PIXELS), mode="bilinear", align_corners=False)[:, 0].flatten(1)
    rank = landscape.argsort(dim=1).argsort(dim=1)
    return (rank < share[:, None] * PIXELS**2).unflatten(1, (PIXELS, PIXELS))


def with_holes(inputs: Tensor, holes: Tensor) -> Tensor:
    """The views with black where the holes are, as black is before normalisation."""
    black = -torch.tensor(MEAN, device=inputs.device) / torch.tensor(STD, device=inputs.device)
    return torch.where(holes[:, None], black[:, None, None], inputs)


def random_shares(count: int, rng: Generator) -> Tensor:
    """How much of each view goes: nothing of the first, of the others any share."""
    shares = uniform(count, 0, 1, rng)
    shares[: int(WHOLE * count)] = 0
    return shares


def train(model: BeitForImageClassification, data: PhotoSampler, options: argparse.Namespace) -> dict[str, float]:
    """Train the classifier on; returns seconds and steps."""
    first = copy.deepcopy(model).eval().requires_grad_(requires_grad=False)
    trainer, average = Trainer(model, rate=options.rate), WeightAverage(model, decay=options.ema)
    forward = compile_if_possible(
        lambda pixels: model(pixels).logits,
        lambda trial: trial(torch.zeros(options.batch, 3, PIXELS, PIXELS, device=data.device)).sum().backward(),
        options,
    )
    model.zero_grad()

    def step(progress: float) -> dict[str, Tensor]:
        images, augmentation, labels = data.sample(mixed=0.0)
        inputs, shares = augment(images, augmentation, size=PIXELS), random_shares(options.batch, data.rng)
        holes = with_holes(inputs, random_holes(options.batch, shares, data.rng))
        whole = int(WHOLE * options.batch)
        with data.mixed_precision():
            logits = forward(holes).float()
            with torch.no_grad():
                before = first(inputs[:whole]).logits.float()
        classes = F.cross_entropy(logits + data.prior, labels, label_smoothing=0.1)
        kept = distillation_loss(logits[:whole], before)
        trainer.step(classes + kept, progress)
        average.update()
        return {"classes": classes.detach(), "kept": kept.detach()}

    seconds = seconds_left(options, reserve=RESERVE)
    log({"event": "training starts", "planned_seconds": round(seconds)}, options.out)
    steps = train_for(step, seconds=seconds, options=options)
    save_image_model(average.model, options.out / "model")
    return {"training_seconds": round(seconds), "steps": steps}


def accuracy_with_holes(model: BeitForImageClassification, data: PhotoSampler) -> dict[str, float]:
    """The balanced accuracy on held-out photos whole, and with shares of their pixels black."""
    scores = accuracies(predict_labels(model, data.val.images), data.val)
    rng = Generator(data.device).manual_seed(0)
    for share in SHARES:

        def with_share(pixels: Tensor, share: float = share) -> object:
            shares = torch.full((len(pixels),), share, device=pixels.device)
            return model(with_holes(pixels, random_holes(len(pixels), shares, rng)))

        balanced = accuracies(predict_labels(with_share, data.val.images), data.val)["balanced_accuracy"]
        scores[f"balanced_accuracy_without_{share:.0%}"] = balanced
    return scores


def read_options() -> argparse.Namespace:
    parser = new_parser(__doc__)
    add_photo_options(parser)
    parser.add_argument("--init", type=Path, required=True, help="folder of mini-vit-mae")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--ema", type=float, default=0.998)
    parser.set_defaults(minutes=4.0)
    return start_run(parser)


def main() -> None:
    options = read_options()
    data = PhotoSampler(options)
    model = BeitForImageClassification.from_pretrained(options.init, dtype=torch.float32).to(data.device)
    before = accuracy_with_holes(model.eval(), data)
    facts = train(model.train(), data, options)
    model = load_model(BeitForImageClassification, options)
    write_metrics(accuracy_with_holes(model, data), model, options, **facts, before=before)


if __name__ == "__main__":
    main()

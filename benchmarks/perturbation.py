"""How close perturbation comes to plain inference: the same number of images in batches of the same size.

    python benchmarks/perturbation.py --out benchmarks/results/perturbation.json

ViT-B/16 at 224 px with random weights (or --model), maps of several methods made beforehand: what is timed is all that
image perturbation does with them, all steps, both orders and the curves. At least 80 % is wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image

from whyformer import LoadedModel, load
from whyformer.batching import MemoryLimit
from whyformer.benchmark import PROTOCOLS
from whyformer.benchmark.batch import collate_samples, encode_sample
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.method_maps import explanations
from whyformer.benchmark.samples import Sample
from whyformer.benchmark.shard import Shard, make_shard

METHODS = [Choice(name) for name in ("raw_attention", "rollout", "grad_cam", "generic_attention", "random")]
LEAST = 0.8


def vit_b() -> LoadedModel:
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000)).eval()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return LoadedModel(model.to(device), transformers.ViTImageProcessorPil(), "ViT-B/16")


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def perturbed_images(shard: Shard) -> int:
    """How many images the protocol asks about: nine steps of both orders, for every method and prior."""
    return 9 * 2 * (len(METHODS) + 2) * len(shard)


@torch.no_grad()
def plainly(shard: Shard, images: int) -> None:
    """So many images through the model, as inference would take them."""
    pixels, size = shard.batch.inputs["pixel_values"], shard.batch_size.size
    batch = pixels.repeat(-(-size // len(pixels)), 1, 1, 1)[:size].contiguous()
    for start in range(0, images, size):
        shard.loaded_model.model(pixel_values=batch[: min(size, images - start)]).logits.float().argmax(dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    loaded_model = load(options.model) if options.model else vit_b()
    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 256, (224, 224, 3), dtype=np.uint8)) for _ in range(options.samples)]
    samples = [Sample(str(number), picture) for number, picture in enumerate(pictures)]
    batch = collate_samples(loaded_model, [encode_sample(loaded_model, sample) for sample in samples])
    shard = make_shard(loaded_model, batch, METHODS, MemoryLimit(options.batch))
    explanations(shard, shard.logits.argmax(dim=1), "image")  # kept from here on
    images = perturbed_images(shard)
    plainly(shard, options.batch)
    times: dict[str, list[float]] = {"plain": [], "perturbation": []}
    for _ in range(options.rounds):  # in turn, so that a busy machine slows both
        times["plain"].append(seconds(lambda: plainly(shard, images)))
        times["perturbation"].append(seconds(lambda: PROTOCOLS["image_perturbation"].measure(shard)))
    ratio = statistics.median(p / q for p, q in zip(times["plain"], times["perturbation"], strict=True))
    device = (
        torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores, {platform.machine()}"
    )
    report = {
        "model": loaded_model.name,
        "device": device,
        "images": images,
        "batch": options.batch,
        "images_per_second": {name: round(images / statistics.median(values), 1) for name, values in times.items()},
        "ratio": round(ratio, 3),
        "wanted": LEAST,
    }
    print(json.dumps(report, indent=1))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Images per second on a GPU, with the memory it takes: absolute figures, for the card that is named.

    python benchmarks/gpu.py --out benchmarks/results/gpu.json [--model FOLDER --images FILE.npy]
    python benchmarks/gpu.py --precision fp32 --out benchmarks/results/gpu_fp32.json

ViT-B/16 at 224 px with random weights, best of batches of 64 to 512; relevance in strict float32. With a trained model
and its pixel values (float32 [image, channel, height, width]) it also measures how well
bfloat16 maps agree with float32 ones.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import transformers

from agreement import spearman
from whyformer import attribute

# label, method, options, least images/s in tf32 and in bf16, the authors' code on an H200
ROWS: list[tuple[str, str, dict[str, object], dict[str, int], float | None]] = [
    ("rollout", "rollout", {}, {"bf16": 8000}, 110),
    ("generic_attention", "generic_attention", {}, {"tf32": 2100, "bf16": 3600}, 38.6),
    ("bi_token, 8 steps", "bi_token", {}, {"tf32": 350, "bf16": 750}, None),
    ("the same by libra", "bi_token", {"backward": "libra"}, {}, None),
    ("state_x_gradient by attn_lrp", "state_x_gradient", {"backward": "attn_lrp"}, {}, None),
    ("evidence", "evidence", {}, {"tf32": 1300, "bf16": 2000}, None),
    ("bi_token, 20 steps", "bi_token", {"steps": 20}, {"tf32": 190, "bf16": 400}, 1.8),
    ("bi_head, 8 steps", "bi_head", {}, {}, None),
    ("grad_cam", "grad_cam", {}, {}, None),
    ("raw_attention", "raw_attention", {}, {}, None),
]
# Relevance runs in strict float32, or faster where that is asked for.
FAST: list[tuple[str, str, dict[str, object], dict[str, int], float | None]] = [
    ("partial_lrp, fast", "partial_lrp", {"precision": "fast"}, {}, None),
    ("lrp, attn_lrp, fast", "lrp", {"rules": "attn_lrp", "precision": "fast"}, {}, None),
    ("transformer_attribution, fast", "transformer_attribution", {"precision": "fast"}, {"tf32": 500}, None),
]
RELEVANCE: list[tuple[str, str, dict[str, object], dict[str, int], float | None]] = [
    ("partial_lrp", "partial_lrp", {}, {}, None),
    ("lrp", "lrp", {}, {}, None),
    ("transformer_attribution", "transformer_attribution", {}, {"fp32": 230}, 5.7),
]
BATCHES = (64, 128, 256, 512)


@contextmanager
def matrix_precision(name: str) -> Iterator[torch.dtype]:
    """tf32 or strict fp32 matrix products, undone afterwards; the dtype the model is to have."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    try:
        yield torch.bfloat16 if name == "bf16" else torch.float32
    finally:
        torch.set_float32_matmul_precision(before)


def per_second(call: Callable[[], object], images: int, budget: float = 1.0) -> float:
    """Images per second: the median of repeated calls after two to warm up, synchronised."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    times: list[float] = []
    while sum(times) < budget:
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return images / statistics.median(times)


def throughput(precision: str) -> dict[str, dict[str, float]]:
    """Per method the best batch size, its images per second and its peak memory."""
    found: dict[str, dict[str, float]] = {}
    with matrix_precision(precision) as dtype:
        torch.manual_seed(0)
        model = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000)).eval().to("cuda", dtype)

        @torch.no_grad()
        def forward(pixels: torch.Tensor) -> None:
            model(pixel_values=pixels)

        rows = RELEVANCE if precision == "fp32" else ROWS + FAST
        for label, method, options, *_ in [("plain forward", None, {}), *rows]:
            best = {"images_per_second": 0.0}
            for batch in BATCHES:
                pixels = torch.randn(batch, 3, 224, 224, device="cuda", dtype=dtype)
                inputs = {"pixel_values": pixels}
                call = (
                    (lambda pixels=pixels: forward(pixels))
                    if method is None
                    else lambda inputs=inputs, method=method, options=options: attribute(
                        model, inputs, 0, method, **options
                    )
                )
                torch.cuda.reset_peak_memory_stats()
                try:
                    rate = per_second(call, batch)
                except torch.OutOfMemoryError:
                    break
                finally:
                    gc.collect()
                    torch.cuda.empty_cache()
                peak = torch.cuda.max_memory_allocated() / 2**30
                if rate > best["images_per_second"]:
                    best = {"images_per_second": round(rate, 1), "batch": batch, "peak_gib": round(peak, 2)}
            found[label] = best
            print(f"{precision:>5} {label:<30} {best}", flush=True)
    return found


def memory_at_64() -> dict[str, dict[str, float]]:
    """generic_attention on 64 pictures in bfloat16, as it is and block by block: images per second and peak GiB."""
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000)).eval()
    model = model.to("cuda", torch.bfloat16)
    inputs = {"pixel_values": torch.randn(64, 3, 224, 224, device="cuda", dtype=torch.bfloat16)}
    report = {}
    for label, checkpoint in (("the whole graph", False), ("block by block", True)):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        call = lambda checkpoint=checkpoint: attribute(  # noqa: E731
            model, inputs, 0, "generic_attention", checkpoint=checkpoint
        )
        rate = per_second(call, 64)
        peak = torch.cuda.max_memory_allocated() / 2**30
        report[label] = {"images_per_second": round(rate, 1), "peak_gib": round(peak, 2)}
    return report


def memory() -> dict[str, float]:
    """Peak memory of bi_token, batch 1, one step at a time, against a plain forward that keeps its maps."""
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000)).eval().cuda()
    pixels = torch.randn(1, 3, 224, 224, device="cuda")

    def peak(call: Callable[[], object]) -> float:
        call()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        kept = call()
        del kept
        return torch.cuda.max_memory_allocated() / 2**20

    explained = peak(lambda: attribute(model, {"pixel_values": pixels}, 0, "bi_token", inputs_at_once=1))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        plain = peak(lambda: model(pixel_values=pixels, output_attentions=True))
    return {
        "bi_token_mib": round(explained, 1),
        "forward_with_maps_mib": round(plain, 1),
        "ratio": round(explained / plain, 3),
    }


def agreement(folder: Path, images: Path) -> dict[str, dict[str, float]]:
    """Spearman correlation per image of bfloat16 maps with float32 maps of a trained model."""
    pixels = torch.from_numpy(np.load(images, allow_pickle=False)).float().cuda()
    found = {}
    scores: dict[tuple[str, torch.dtype], torch.Tensor] = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = transformers.AutoModelForImageClassification.from_pretrained(folder, dtype=dtype).eval().cuda()
        if dtype == torch.float32:
            with torch.no_grad():
                target = model(pixel_values=pixels).logits.argmax(dim=1).tolist()
        for label, method, options, *_ in ROWS:
            result = attribute(model, {"pixel_values": pixels.to(dtype)}, target, method, **options)["image"]
            patches = model.config.image_size // model.config.patch_size
            scores[label, dtype] = result[:, -(patches**2) :].float()
    for label, *_ in ROWS:
        rho = spearman(scores[label, torch.float32], scores[label, torch.bfloat16])
        found[label] = {"mean": round(float(rho.mean()), 4), "lowest": round(float(rho.min()), 4), "images": len(rho)}
        print(f"bf16 agreement {label:<30} {found[label]}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu.json"))
    parser.add_argument("--model", type=Path)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--precision", nargs="+", default=["tf32", "bf16"])
    arguments = parser.parse_args()
    report = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "model": "ViT-B/16, 224 px, random weights",
        "memory": memory(),
        "memory_at_64": memory_at_64(),
        "throughput": {precision: throughput(precision) for precision in arguments.precision},
        "least": {label: least for label, _, _, least, _ in ROWS + FAST + RELEVANCE},
        "authors": {label: authors for label, *_, authors in ROWS + FAST + RELEVANCE if authors},
    }
    if arguments.model and arguments.images:
        report["bf16_agreement"] = agreement(arguments.model, arguments.images)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["memory"]))


if __name__ == "__main__":
    main()

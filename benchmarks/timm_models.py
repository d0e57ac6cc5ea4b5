"""Architectures of timm and open_clip by name, with random weights, by every method: what works, and why not.

Run where timm or open_clip is installed: `python benchmarks/timm_models.py --out benchmarks/results/timm_models.json`.
The models of a library that is missing are left out, and a line says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import whyformer
from whyformer.errors import WhyformerError, reason_of
from whyformer.methods.registry import trace_methods

MODELS = (
    "timm:vit_tiny_patch16_224",
    "timm:vit_base_patch16_224",
    "timm:deit_tiny_distilled_patch16_224",
    "timm:deit3_small_patch16_224",
    "timm:beit_base_patch16_224",
    "timm:eva02_tiny_patch14_224",
    "timm:vit_small_patch14_reg4_dinov2",
    "timm:vit_base_patch16_clip_224",
    "timm:vit_base_patch16_siglip_224",
    "timm:swin_tiny_patch4_window7_224",
    "open_clip:ViT-S-32-alt",
    "open_clip:ViT-B-32",
    "open_clip:ViT-B-16",
    "open_clip:ViT-B-16-quickgelu",
    "open_clip:RN50",
    "open_clip:coca_ViT-B-32",
)
TEXTS = ("a red bus in the street!", "two cats")
WITHIN = 1e-4  # of the largest score: further off, a batch is not like its examples one by one


def examples(loaded_model: whyformer.LoadedModel) -> list[Any]:
    """A picture of noise and its mirror image, each with a text for a model that compares."""
    noise = np.random.default_rng(0).integers(0, 256, (240, 320, 3), dtype=np.uint8)
    picture = Image.fromarray(noise)
    pictures = [picture, picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    return list(zip(pictures, TEXTS, strict=True)) if loaded_model.task.compares else pictures


def cell(loaded_model: whyformer.LoadedModel, method: str | None) -> str:
    """ "works", or the reason why not: finite scores, alone as beside another example."""
    options: dict[str, Any] = {"steps": 2} if method == "integrated_gradients" else {}
    target = "predicted" if loaded_model.task.compares else 1
    both = examples(loaded_model)
    try:
        alone = whyformer.explain(both[0], loaded_model, target, method, **options)
        together = whyformer.explain_batch(both, loaded_model, target, method, batch_size=2, **options)[0]
    except WhyformerError as error:
        return reason_of(error)
    except Exception as error:  # a raw traceback is a fault of ours: it is put down, and the other cells still run
        return f"FAULT: {type(error).__name__}: {reason_of(error)}"
    differences = []
    for name, part in alone.parts.items():
        if not np.isfinite(part.scores).all():
            return "not finite"
        largest = float(np.abs(part.scores).max()) or 1.0
        differences.append(float(np.abs(part.scores - together.parts[name].scores).max()) / largest)
    return "works" if max(differences) < WITHIN else f"a batch differs by {max(differences):.1e}"


def row(name: str, dtype: str) -> dict[str, str]:
    """The cells of a model by method, or why it cannot be loaded."""
    torch.manual_seed(0)
    try:
        loaded_model = whyformer.load(f"{name}?random", dtype=dtype)
    except WhyformerError as error:
        return {"load": reason_of(error)}
    return {method or "default": cell(loaded_model, method) for method in (None, *trace_methods())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a JSON file for the table")
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--dtype", default="float64", help="relevance is ill-conditioned in float32")
    arguments = parser.parse_args()
    table: dict[str, dict[str, str]] = {}
    for name in arguments.models:
        library = name.partition(":")[0]
        if importlib.util.find_spec(library) is None:
            print(f"{name:36} left out: {library} is not installed", flush=True)
            continue
        table[name] = row(name, arguments.dtype)
        for method, result in table[name].items():
            print(f"{name:36} {method:26} {result}", flush=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if arguments.out is not None:  # after each model: a run that is cut short has what it had
            versions = {"torch": torch.__version__, "device": "cuda" if torch.cuda.is_available() else "cpu"}
            arguments.out.write_text(json.dumps({**versions, "models": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()

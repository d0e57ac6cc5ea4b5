"""Architectures of timm by name, with random weights, by every method: what works, and why what does not does not.

Run where timm is installed: `python benchmarks/timm_models.py --out benchmarks/results/timm_models.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import whyformer
from whyformer.errors import WhyformerError, reason_of

MODELS = (
    "vit_tiny_patch16_224",
    "vit_base_patch16_224",
    "deit_tiny_distilled_patch16_224",
    "deit3_small_patch16_224",
    "beit_base_patch16_224",
    "eva02_tiny_patch14_224",
    "vit_small_patch14_reg4_dinov2",
    "swin_tiny_patch4_window7_224",
)


def cell(loaded_model: whyformer.LoadedModel, picture: Image.Image, method: str | None) -> str:
    """ "works", or the reason why not: finite scores, the same again, alone as beside another picture."""
    options: dict[str, Any] = {"steps": 2} if method == "integrated_gradients" else {}
    other = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    try:
        alone = whyformer.explain(picture, loaded_model, 1, method, **options)
        together = whyformer.explain_batch([picture, other], loaded_model, 1, method, batch_size=2, **options)[0]
    except WhyformerError as error:
        return reason_of(error)
    if not np.isfinite(alone.scores).all():
        return "not finite"
    difference = float(np.abs(alone.scores - together.scores).max()) / (float(np.abs(alone.scores).max()) or 1.0)
    return "works" if difference < 1e-3 else f"a batch differs by {difference:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a JSON file for the table")
    parser.add_argument("--models", nargs="*", default=MODELS)
    arguments = parser.parse_args()
    noise = np.random.default_rng(0).integers(0, 256, (240, 320, 3), dtype=np.uint8)
    table: dict[str, dict[str, str]] = {}
    for name in arguments.models:
        torch.manual_seed(0)
        try:
            loaded_model = whyformer.load(f"timm:{name}?random", dtype="float32")
        except WhyformerError as error:
            table[name] = {"load": reason_of(error)}
        else:
            methods = [None, *whyformer.METHODS]
            table[name] = {
                method or "default": cell(loaded_model, Image.fromarray(noise), method) for method in methods
            }
        for method, result in table[name].items():
            print(f"{name:34} {method:26} {result}", flush=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps({"torch": torch.__version__, "models": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()

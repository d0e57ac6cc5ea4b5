"""How far relevance in TF32 or bfloat16 (`precision="fast"`) agrees with strict float32: Spearman's per map, on a GPU.

    python benchmarks/precision.py --photos PHOTOS.npz --texts TEXTS.txt [--dinov2 FOLDER] \
        --out benchmarks/results/precision.json

Trained models alone: mini-vit, mini-bert, and DINOv2 where its folder is given (benchmarks/dinov2.py makes it). The
label asked about is what strict float32 predicts. PHOTOS.npz holds uint8 [photo, height, width, 3] as `photos`;
TEXTS.txt a text on each line.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from agreement import spearman
from gpu import matrix_precision
from whyformer import attribute, load

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "lrp, attn_lrp": ("lrp", {"rules": "attn_lrp"}),
    "lrp, z_plus": ("lrp", {}),
    "partial_lrp": ("partial_lrp", {}),
    "transformer_attribution": ("transformer_attribution", {}),
}
BATCH = 32
ENOUGH = 0.99


def batches(name: str, processor: Any, photos: np.ndarray, texts: list[str]) -> list[dict[str, torch.Tensor]]:
    """The examples as the model takes them; texts one by one, so that no padding has a rank."""
    if name == "mini-bert":
        encoded = [processor(text, truncation=True, return_tensors="pt") for text in texts]
        return [{key: value.cuda() for key, value in one.items()} for one in encoded]
    parts = np.split(photos, range(BATCH, len(photos), BATCH))
    return [
        {"pixel_values": processor([Image.fromarray(x) for x in part], return_tensors="pt")["pixel_values"].cuda()}
        for part in parts
    ]


def maps(
    model: Any, inputs: Mapping[str, torch.Tensor], target: list[int], method: str, options: dict[str, Any]
) -> torch.Tensor:
    """A score for every word piece, patch or pixel that is no class token."""
    (scores,) = attribute(model, inputs, target, method, **options).values()
    return scores.float() if scores.shape[1] == inputs[next(iter(inputs))].shape[-1] ** 2 else scores[:, 1:].float()


def agreement(name: str, folder: str | Path, photos: np.ndarray, texts: list[str]) -> dict[str, dict[str, Any]]:
    """Per precision and method the correlations with strict float32."""
    loaded_model = load(folder)
    examples = batches(name, loaded_model.processor, photos, texts)
    scores: dict[tuple[str, str], list[torch.Tensor]] = {}
    targets: list[list[int]] = []
    for precision in ("strict", "tf32", "bf16"):
        with matrix_precision("fp32" if precision == "strict" else precision) as dtype:
            model = loaded_model.model.to("cuda", dtype)
            for number, inputs in enumerate(examples):
                inputs = {key: x.to(dtype) if x.is_floating_point() else x for key, x in inputs.items()}
                if precision == "strict":
                    with torch.no_grad():
                        targets.append(model(**inputs).logits.argmax(dim=1).tolist())
                for label, (method, options) in METHODS.items():
                    options = options if precision == "strict" else {**options, "precision": "fast"}
                    part = maps(model, inputs, targets[number], method, options)
                    scores.setdefault((precision, label), []).append(part)
        loaded_model.model.float()
    report: dict[str, dict[str, Any]] = {}
    for precision in ("tf32", "bf16"):
        for label in METHODS:
            pairs = zip(scores["strict", label], scores[precision, label], strict=True)
            rho = torch.cat([spearman(*pair) for pair in pairs])
            report.setdefault(precision, {})[label] = {
                "mean": round(float(rho.mean()), 4),
                "lowest": round(float(rho.min()), 4),
                "share_agreeing": round(float((rho >= ENOUGH).float().mean()), 4),
                "maps": len(rho),
            }
            print(name, precision, label, report[precision][label], flush=True)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--dinov2", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    photos = np.load(options.photos, allow_pickle=False)["photos"]
    texts = [line for line in options.texts.read_text().splitlines() if line.strip()]
    folders: dict[str, str | Path] = {"mini-vit": "mini-vit", "mini-bert": "mini-bert"}
    folders |= {} if options.dinov2 is None else {"DINOv2": options.dinov2}
    report: dict[str, Any] = {}
    card = {"card": torch.cuda.get_device_name(), "torch": torch.__version__}
    for name, folder in folders.items():
        report[name] = agreement(name, folder, photos, texts)
        options.out.write_text(json.dumps({**card, "enough": ENOUGH, "models": report}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Do models of torchvision and timm work unmodified? Neither is a dependency; run this where they are installed.

    python benchmarks/third_party.py [--out benchmarks/results/third_party.json]

For each model, random weights: the recorded run's logits against the plain ones, the number of maps, whether W_v, W_o
and the residual state of every block were found, and that every method gives finite scores.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from whyformer import attribute
from whyformer.methods.registry import trace_methods
from whyformer.tracing.build import trace
from whyformer.tracing.reads import Reads

TORCHVISION = ["vit_b_16", "vit_b_32"]
TIMM = [
    "vit_tiny_patch16_224",
    "deit_tiny_distilled_patch16_224",
    "deit3_small_patch16_224",
    "beit_base_patch16_224",
    "vit_small_patch14_reg4_dinov2",
    "eva02_tiny_patch14_224",
    "vit_base_patch16_clip_224",
]


def built(library: str, name: str) -> torch.nn.Module:
    if library == "torchvision":
        import torchvision

        return torchvision.models.get_model(name, weights=None).eval()
    import timm

    return timm.create_model(name, pretrained=False, num_classes=10).eval()


def checked(library: str, name: str) -> dict[str, object]:
    torch.manual_seed(0)
    model = built(library, name)
    with torch.no_grad():  # heads and LayerScale that start at zero would hide every gradient
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    size = getattr(model, "image_size", None) or model.patch_embed.img_size[0]
    pixels = {"x": torch.randn(2, 3, size, size)}
    with torch.no_grad():
        plain = model(**pixels)
    asked = trace(model, pixels, 1, reads=Reads(maps="all", states=True))
    parts = [(record.value_weight, record.output_weight, record.key_state) for record in asked.records]
    failed = {}
    for method in trace_methods():
        options = {"steps": 2} if method.startswith("bi_") else {}
        try:
            scores = attribute(model, pixels, 1, method, **options)["image"]
            if not torch.isfinite(scores).all():
                failed[method] = "not finite"
        except ValueError as error:
            failed[method] = str(error)
    return {
        "model": f"{library} {name}",
        "logits_differ_by": float((asked.output - plain).abs().max() / plain.abs().max()),
        "maps": len(asked.records),
        "traced_to_weights_and_state": sum(all(part is not None for part in found) for found in parts),
        "read_out": [round(weight, 3) for weight in asked.readout.weights[0, :3].tolist()],
        "failed": failed,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/third_party.json"))
    arguments = parser.parse_args()
    rows = []
    for library, names in (("torchvision", TORCHVISION), ("timm", TIMM)):
        for name in names:
            try:
                rows.append(checked(library, name))
            except Exception as error:
                rows.append({"model": f"{library} {name}", "error": f"{type(error).__name__}: {error}"})
            print(rows[-1], flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

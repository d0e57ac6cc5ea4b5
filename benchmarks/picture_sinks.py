"""How much of a picture's scores lies on sinks: patches used like registers, and corners.

For each model and method: the mean share of the corners' scores with its 95 % interval, beside their share of the area,
how many pictures have a patch like a register, and how far the largest norm of a patch is from the median. Planted: one
patch, drawn by the picture's number, has states four times as long from the fourth block on; how often it is found, how
many others are taken for sinks, and its share of the scores of each method before and after.

python benchmarks/picture_sinks.py --data DATA [--models mini-vit-mae dinov2-photos] --count 40

DATA holds photos/ and, for DINOv2, dinov2-photos/, as in the suites.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import whyformer
from whyformer.backward.blocks import find_blocks
from whyformer.data import photos
from whyformer.metrics.statistics import interval
from whyformer.models.loading import load

RESULTS = Path("benchmarks/results/picture_sinks.json")
METHODS = ("rollout", "generic_attention", "evidence", "bi_token")
TIMES, FROM_BLOCK = 4, 3
PLANTED_ON = 10  # pictures


@contextmanager
def planted(model: nn.Module, patch: int) -> Iterator[None]:
    """Within the context, the states of a patch are longer after an early block."""

    def lengthen(module: nn.Module, args: Any, output: Any) -> Any:
        state: Tensor = (output if isinstance(output, Tensor) else output[0]).clone()
        state[:, 1 + patch] *= TIMES
        return state if isinstance(output, Tensor) else (state, *output[1:])

    handle = find_blocks(model)[FROM_BLOCK].register_forward_hook(lengthen)
    try:
        yield
    finally:
        handle.remove()


def measured(name: str, data: Path, first: int, count: int) -> dict[str, Any]:
    loaded_model, pictures = load(name), photos(data / "photos", only_masked=True)
    shares: dict[str, list[float]] = {method: [] for method in METHODS}
    norms, with_registers, area = [], 0, 0.0
    planted_shares: dict[str, list[tuple[float, float]]] = {method: [] for method in METHODS}
    hits = others = 0
    for number in range(first, min(first + count, len(pictures))):
        image = pictures[number].image
        for method in METHODS:
            explanation = whyformer.explain(image, loaded_model, method=method)
            sinks = whyformer.picture_sinks(explanation)
            shares[method].append(sinks.corner_share)
            if number < first + PLANTED_ON:
                patch = int(np.random.default_rng(number).integers(len(sinks.norms)))
                with planted(loaded_model.model, patch):
                    altered = whyformer.picture_sinks(whyformer.explain(image, loaded_model, method=method))
                before, after = (share_of(one.explanation, patch) for one in (sinks, altered))
                planted_shares[method].append((before, after))
                if method == METHODS[0]:
                    hits += patch in altered.registers
                    others += len(set(altered.registers) - {patch})
        norms.append(float(sinks.norms.max()))
        with_registers += bool(sinks.registers)
        area = sinks.area
    return {
        "pictures": len(norms),
        "area of the corners": round(area, 4),
        "share of the corners": {method: rounded(own) for method, own in shares.items()},
        "pictures with a patch like a register": with_registers,
        "largest norm over the median": [round(float(np.quantile(norms, q)), 2) for q in (0.5, 1.0)],
        "planted": {
            "pictures": min(PLANTED_ON, len(norms)),
            "found": hits,
            "others taken for sinks": others,
            "share of the scores": {
                method: [round(float(value), 4) for value in np.mean(own, axis=0)]
                for method, own in planted_shares.items()
            },
        },
    }


def share_of(explanation: whyformer.Explanation, patch: int) -> float:
    sizes = np.abs(explanation.parts["image"].scores)
    return float(sizes[patch] / sizes.sum())


def rounded(values: list[float]) -> list[float]:
    found = interval(np.array(values))
    return [round(float(value), 4) for value in (found.value, found.low, found.high)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=["mini-vit-mae", "dinov2-photos"])
    parser.add_argument("--first", type=int, default=24, help="the norm of outliers was chosen on those before")
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.models:
        path = options.data / name
        known[name] = measured(str(path) if path.exists() else name, options.data, options.first, options.count)
        print(name, known[name], flush=True)
        options.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()

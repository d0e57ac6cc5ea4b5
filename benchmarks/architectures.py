"""Which methods work on which architectures of transformers: tiny random models, a few texts.

    python benchmarks/architectures.py [--out benchmarks/results/architectures.json]

For each architecture and method: whether scores are finite, how far a batch padded on the right and on the left is from
its texts one by one, how far bfloat16 is from float32, and what a refusal or a remark says.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn

from whyformer import UnsupportedModel
from whyformer.axes import Inputs

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from tiny_architectures import DECODERS, METHODS, OTHERS, attribution_of
from tiny_models import text_inputs


def padded_on_the_left(inputs: Inputs) -> Inputs:
    lengths = inputs["attention_mask"].sum(dim=1).tolist()
    return {
        name: torch.stack([row.roll(len(row) - length) for row, length in zip(value, lengths, strict=True)])
        for name, value in inputs.items()
    }


def difference(scores: Tensor, expected: Tensor) -> float:
    return float((scores - expected).abs().max() / expected.abs().max())


def checked(build: Callable[[], nn.Module], method: str, *, reads_left_padding: bool) -> dict[str, object]:
    model, inputs = build(), text_inputs()
    lengths = inputs["attention_mask"].sum(dim=1).tolist()
    try:
        attribution = attribution_of(model, inputs, method)
    except UnsupportedModel as error:
        return {"refused": str(error)}
    scores = attribution["text"]
    left = attribution_of(model, padded_on_the_left(inputs), method)["text"] if reads_left_padding else scores
    alone = [
        attribution_of(model, {name: value[n : n + 1, :length] for name, value in inputs.items()}, method)["text"][0]
        for n, length in enumerate(lengths)
    ]
    half = copy.deepcopy(model).bfloat16()
    in_half, in_single = (attribution_of(one, inputs, method)["text"] for one in (half, copy.deepcopy(half).float()))
    rows = list(zip(scores, left, alone, lengths, strict=True))
    return {
        "finite": bool(torch.isfinite(scores).all()),
        "batch_differs_by": max(difference(row[:n], expected) for row, _, expected, n in rows),
        "left_padding_differs_by": max(difference(row[-n:], expected) for _, row, expected, n in rows)
        if reads_left_padding
        else None,  # an encoder reads its answer at the first token
        "bfloat16_differs_by": float((in_half - in_single).norm() / in_single.norm()),
        "remarks": list(attribution.remarks),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/architectures.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    rows = []
    for kind, table in (("decoder", DECODERS), ("other", OTHERS)):
        for name, build in table.items():
            methods = {
                method: checked(build, method, reads_left_padding=kind == "decoder" or name == "Mamba")
                for method in METHODS
            }
            rows.append({"architecture": name, "class": type(build()).__name__, "kind": kind, "methods": methods})
            refused = [method for method, row in methods.items() if "refused" in row]
            print(name, f"refused: {', '.join(refused)}" if refused else "", flush=True)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    arguments.out.write_text(json.dumps({"versions": versions, "architectures": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

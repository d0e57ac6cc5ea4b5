"""How many steps, and which rule, the integrated feedback needs: error against 256 midpoints on a trained model.

    python benchmarks/quadrature.py --photos DIR [--model mini-vit] [--images 32] [--out FILE.json]

DIR holds val-0.tar of the photographs the bundled models are trained on. For each rule and number of steps: the
relative error of the feedback F (‖F − F*‖ / ‖F*‖ over the read-out's row) and the Spearman correlation of the bi_token
map with the one that has F*, both as means over images.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from PIL import Image
from rich.progress import track
from torch import Tensor

import whyformer
from agreement import spearman
from whyformer.methods.perception import Reading, integrated_feedback
from whyformer.methods.registry import METHODS
from whyformer.tracing.build import trace
from whyformer.tracing.path import Quadrature
from whyformer.tracing.reads import Reads
from whyformer.tracing.trace import Trace

RULES = ("midpoint", "gauss", "uniform", "inclusive")
STEPS = (1, 2, 3, 4, 6, 8, 10, 15, 20, 40)
REFERENCE = 256


def photographs(folder: Path, count: int) -> list[Image.Image]:
    """The first pictures of every so many in the validation archive: all labels, the same ones every time."""
    with tarfile.open(folder / "val-0.tar") as archive:
        names = sorted(name for name in archive.getnames() if name.endswith(".jpg"))
        chosen = names[:: len(names) // count][:count]
        return [Image.open(io.BytesIO(archive.extractfile(name).read())).convert("RGB") for name in chosen]  # type: ignore[union-attr]


def study(trace: Trace) -> list[dict[str, float | str | int]]:
    perceived = METHODS["bi_token"](trace, feedback="none")["image"][:, 1:]
    last_map = [Reading(trace.readout.stream, trace.last, trace.readout)]

    def feedback(rule: Quadrature, steps: int) -> Tensor:
        (rows,) = integrated_feedback(trace, last_map, rule, steps, "zero").values()
        return rows[:, 0, 1:]

    exact = feedback("midpoint", REFERENCE)
    rows: list[dict[str, float | str | int]] = []
    for rule, steps in track([(rule, steps) for rule in RULES for steps in STEPS], "quadrature"):
        approximated = feedback(rule, steps)
        error = (approximated - exact).norm(dim=1) / exact.norm(dim=1)
        correlation = float(spearman(perceived * approximated, perceived * exact).mean())
        rows.append(
            {"rule": rule, "steps": steps, "error": round(float(error.mean()), 4), "rank": round(correlation, 4)}
        )
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The paper's choice, ours, and the cheapest that is nearer to the integral than the paper's."""
    by_choice = {(row["rule"], row["steps"]): row for row in rows}
    paper, ours = by_choice["uniform", 20], by_choice["gauss", 8]
    nearer = [row for row in rows if row["error"] < paper["error"]]
    return {"paper": paper, "default": ours, "cheapest": min(nearer, key=lambda row: (row["steps"], row["error"]))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--model", default="mini-vit")
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/quadrature.json"))
    arguments = parser.parse_args()
    loaded_model = whyformer.load(arguments.model)
    pictures = photographs(arguments.photos, arguments.images)
    pixels = loaded_model.processor(images=pictures, return_tensors="pt")["pixel_values"].to(loaded_model.model.device)
    rows = study(trace(loaded_model.model, {"pixel_values": pixels}, reads=Reads(maps="all", states=True)))
    report = {"model": loaded_model.name, "images": len(pictures), "reference": f"{REFERENCE} midpoints", "rows": rows}
    report |= summary(rows)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    for row in rows:
        print(f"{row['rule']:<10}{row['steps']:>4}  error {row['error']:.4f}  rank {row['rank']:.4f}")
    for name, row in summary(rows).items():
        print(f"{name}: {row}")


if __name__ == "__main__":
    main()

"""Measures whether the top tenth of a map is seen at a glance on real photographs, and noise is not.

python benchmarks/salience.py PHOTOS     # the folder of the training recipes' photographs, not in the repository

A pixel stands out in a picture by its global colour contrast: its mean OKLab distance from all others (Cheng et al.
2011, the contrast of histograms, here of all pixels). `seen` is the probability that a pixel of the map's top tenth
stands out more than one of the rest (an AUC: 0.5 is chance). It is measured on the photograph itself, in the look
until November 2026, and in the present one. The photographs that looks were chosen on (docs/looks.py) are left out.
Noise is the map with its patches shuffled, and the method `random`.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import whyformer
from whyformer.inputs.layouts import Patches
from whyformer.render.colour import STANDS_OUT, oklab
from whyformer.render.heatmaps import heated, resize_layout, spread_scores
from whyformer.render.scatter import layout_scale

sys.path.append(str(Path(__file__).parents[1] / "docs"))
from looks import before

RESULT = Path(__file__).parent / "results" / "salience.json"
PER_CLASS, SIDE, TOP = 10, 64, 0.1
LIGHT, DARK, BUSY_SHARE = 0.7, 0.45, 0.25  # mean OKLab lightness; the share of photographs with the strongest edges
Lab = np.ndarray


def photographs(folder: Path) -> Iterator[Image.Image]:
    """Validation photographs, PER_CLASS of each class after the first, which the looks were chosen on."""
    seen: dict[str, int] = {}
    with tarfile.open(folder / "val-0.tar") as shard:
        for member in shard:
            label = member.name.partition("/")[0]
            file = shard.extractfile(member) if member.name.endswith(".jpg") else None
            if file is None or seen.get(label, 0) > PER_CLASS:
                continue
            seen[label] = seen.get(label, 0) + 1
            if seen[label] > 1:
                yield Image.open(io.BytesIO(file.read())).convert("RGB")


def contrast(pixels: np.ndarray) -> np.ndarray:
    """The mean OKLab distance of each pixel from all others."""
    colours: Lab = oklab(pixels.reshape(-1, 3)).astype(np.float32)
    sizes = (colours**2).sum(axis=1)
    squares = sizes[:, None] + sizes[None] - 2 * colours @ colours.T
    return np.sqrt(np.clip(squares, 0, None)).mean(axis=1)


def auc(values: np.ndarray, chosen: np.ndarray) -> float:
    """The probability that a chosen value is larger than another, ties counting half."""
    order = np.argsort(np.argsort(values, kind="stable")) + 1
    count = chosen.sum()
    return float((order[chosen].sum() - count * (count + 1) / 2) / (count * (len(values) - count)))


def drawn(layout: Patches, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """The present and the former look of a map as pixels, and whether anything is outlined."""
    strength, inside = spread_scores(layout, layout_scale(layout, scores).strength(scores))
    relative, _ = spread_scores(layout, scores / np.abs(scores).max())
    now = np.asarray(heated(layout.image, strength, inside), np.float64) / 255
    light = np.asarray(layout.image, np.float64) / 255
    return now, np.clip(before(light, strength, relative), 0, 1), bool((np.abs(strength) >= STANDS_OUT).any())


def measured(photograph: Image.Image, model: Any, seed: int) -> dict[str, Any]:
    """The figures of a photograph."""
    part = whyformer.explain(photograph, model).parts["image"]
    layout = resize_layout(part.layout, (SIDE, SIDE))
    assert isinstance(layout, Patches)
    scores = part.scores.astype(np.float64)
    shuffled = np.random.default_rng(seed).permutation(scores)
    uniform = whyformer.explain(photograph, model, method="random", seed=seed).parts["image"].scores.astype(np.float64)
    light = np.asarray(layout.image, np.float64) / 255
    lightness = oklab(light)[..., 0]
    edges = np.abs(np.diff(lightness, axis=0)).mean() + np.abs(np.diff(lightness, axis=1)).mean()
    row: dict[str, Any] = {"lightness": float(lightness.mean()), "edges": float(edges)}
    for name, one in (("evidence", scores), ("shuffled", shuffled), ("random", uniform)):
        values, inside = spread_scores(layout, one)
        top = (values >= np.quantile(values[inside], 1 - TOP)) & inside
        now, former, is_outlined = drawn(layout, one)
        looks = {"photograph": light, "former": former, "now": now}
        row[name] = {look: auc(contrast(pixels), top.ravel()) for look, pixels in looks.items()}
        row[name]["outlined"] = is_outlined
    return row


def kind(row: dict[str, Any], busiest: float) -> str:
    if row["edges"] >= busiest:
        return "busy"
    return "light" if row["lightness"] >= LIGHT else "dark" if row["lightness"] < DARK else "other"


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Quantiles by the kind of photograph, and of noise."""
    busiest = float(np.quantile([row["edges"] for row in rows], 1 - BUSY_SHARE))
    kinds = [kind(row, busiest) for row in rows]
    groups = {name: [row for row, own in zip(rows, kinds, strict=True) if own == name] for name in dict.fromkeys(kinds)}
    table: dict[str, Any] = {}
    for name, own in {"all": rows, **dict(sorted(groups.items()))}.items():
        table[name] = {"photographs": len(own)}
        for source in ("evidence", "shuffled", "random"):
            for look in ("photograph", "former", "now"):
                values = [row[source][look] for row in own]
                low, middle = np.quantile(values, (0.1, 0.5))
                table[name][f"{source}, {look}"] = [round(float(middle), 3), round(float(low), 3)]
            table[name][f"{source}, outlined"] = sum(row[source]["outlined"] for row in own)
    return table


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    model = whyformer.load("mini-vit")
    rows = [measured(one, model, seed) for seed, one in enumerate(photographs(Path(sys.argv[1])))]
    document = {
        "model": "mini-vit",
        "top": TOP,
        "median and 10th percentile of the AUC by kind of photograph": summary(rows),
    }
    RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(RESULT.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())

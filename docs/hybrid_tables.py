"""The tables of hybrids and of the newest methods, from what benchmarks measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaluations import NONE
from evaluations import lines as table

LIMIT = 1.5  # times the ratio of the same method on a Transformer


def misses(path: Path) -> str:
    """Where a method costs more on a hybrid than the limit allows, in words."""
    reference, *hybrids = json.loads(path.read_text())["models"].items()
    expected = reference[1]["ratios"]
    over = [
        f"`{method}` on {name} ({ratio / expected[method]:.1f}×)"
        for name, model in hybrids
        for method, ratio in model["ratios"].items()
        if ratio > LIMIT * expected[method]
    ]
    wanted = f"The aim is at most {LIMIT}× the ratio that the method has on the Transformer."
    if not over:
        return f"{wanted} Every method meets it on every model of the table."
    return f"{wanted} It is missed by {', '.join(over)}; every other cell meets it."


def memory(path: Path) -> str:
    """Memory and time of long texts on a state space."""
    found: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    lengths = sorted({row["tokens"] for row in found})
    cells = {(row["method"], row["tokens"]): f"{row['MiB']:,} MiB · {row['seconds']:.1f} s" for row in found}
    rows = [
        [f"`{method}`" if "_" in method or " " not in method else method]
        + [cells.get((method, length), "–") for length in lengths]
        for method in dict.fromkeys(row["method"] for row in found)
    ]
    return table(["Mamba-2, two layers", *(f"{length:,} tokens" for length in lengths)], rows)


def new_method(path: Path, name: str) -> str:
    """What was measured of one of the newest methods."""
    found: dict[str, Any] = json.loads(path.read_text())[name]
    rows = [line for key, value in found.items() for line in _lines(key, value)]
    return table(["measured", ""], rows)


def caap(path: Path) -> str:
    """caap beside other methods: on samples that its range was not chosen on, or on another model."""
    if not path.is_file():
        return NONE
    rows = []
    for model, one in json.loads(path.read_text()).items():
        samples = one["samples"][1] if "chosen" in one else one["samples"]
        for figure, by_method in one.get("second half", one.get("all samples")).items():
            for method, (value, low, high) in by_method.items():
                named = f"`{method}`" + (" (chosen)" if method == one.get("chosen") else "")
                rows.append([model, str(samples), figure, named, f"{value:.3f} [{low:.3f}, {high:.3f}]"])
    return table(["model", "samples", "figure", "method", "value"], rows)


def picture_sinks(path: Path) -> str:
    """Shares of scores on the corners, and patches like registers."""
    if not path.is_file():
        return NONE
    found = json.loads(path.read_text())
    rows = [
        [
            name,
            f"`{method}`",
            f"{value:.1%} [{low:.1%}, {high:.1%}]",
            f"{one['area of the corners']:.1%}",
            f"{one['pictures with a patch like a register']} of {one['pictures']}",
            f"{one['largest norm over the median'][1]}×",
            f"{one['planted']['found']} of {one['planted']['pictures']}",
        ]
        for name, one in found.items()
        for method, (value, low, high) in one["share of the corners"].items()
    ]
    header = ["model", "method", "scores on the corners", "their area", "pictures with a register", "largest norm"]
    return table([*header, "planted ones found"], rows)


def _lines(name: str, value: Any) -> list[list[str]]:
    if isinstance(value, dict):
        return [[f"{name}: `{method}`", _figure(name, own)] for method, own in value.items()]
    return [[name, _figure(name, value)]]


def _figure(name: str, value: Any) -> str:
    if isinstance(value, list):
        share, low, high = value
        return f"{share:.0%} ({low:.0%} to {high:.0%})"
    return f"{value}×" if name.startswith("cost") else str(value)

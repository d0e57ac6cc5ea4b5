"""Does `recommend` name in minutes what a whole evaluation finds best? mini-bert on some of ERASER's reviews.

    python benchmarks/advice.py --data DATA [--reviews 100] [--minutes 4.5] [--threads 2] [--out FILE.json]

DATA holds movies/, the reviews of ERASER. The method that is named is looked up in the published table of all reviews
(results/evaluation/bert-eraser.json): is it the best by the figure that decided, or not told apart from it?
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whyformer
from publish import rounded, write
from whyformer.benchmark.reporting.page import ALIKE
from whyformer.data.readers import reader_named
from whyformer.methods.registry import METHODS

RESULTS = Path(__file__).parent / "results"
LABELS = {"POS": "positive", "NEG": "negative"}


def reviews(folder: Path, count: int) -> list[tuple[str, str]]:
    """So many reviews with their labels, the same ones every time."""
    documents = reader_named("eraser")(folder=folder, split="test")
    numbers = np.sort(np.random.default_rng(0).permutation(len(documents))[:count]).tolist()
    return [(documents[number].text, LABELS[documents[number].label]) for number in numbers]


def whole_name(label: str) -> tuple[str, dict[str, str]]:
    """The method of a label and all its options: those that a label leaves out have their defaults."""
    name, *options = label.split()
    defaults = {key: str(parameter.default) for key, parameter in METHODS[name].options.items()}
    return name, defaults | dict(option.split("=", 1) for option in options)


def standing(table: Mapping[str, Any], protocol: str, figure: str, label: str) -> dict[str, Any]:
    """How a method stands in the published table: by which figure, what is best there, and what is not told from it."""
    figures = next(one["figures"] for one in table["protocols"] if one["protocol"] == protocol)
    first, *others = next(one["rows"] for one in figures if one["figure"] == figure)
    best = [first, *(row for row in others if row.get("p") is not None and row["p"] >= ALIKE)]
    own = next((row for row in (first, *others) if whole_name(row["method"]) == whole_name(label)), None)
    return {
        "protocol": protocol,
        "figure": figure,
        "samples": first["n"],
        "best_or_tied": [row["method"] for row in best],
        "value_of_best": first["value"],
        "value": own and own["value"],
        "is_best_or_tied": any(row is own for row in best),
    }


def measure(folder: Path, count: int, minutes: float, table: Mapping[str, Any]) -> dict[str, Any]:
    """The advice on so many reviews, and how what it names stands in the whole table."""
    advice = whyformer.recommend("mini-bert", reviews(folder, count), minutes=minutes, progress=True)
    return {
        "model": "mini-bert",
        "reviews": count,
        "threads": torch.get_num_threads(),
        "minutes": minutes,
        "seconds": rounded(advice.seconds),
        "measured": advice.samples,
        "method": advice.label,
        "beats_controls": advice.beats_controls,
        "ties": [one.label for one in advice.ties],
        "whole_table": standing(table, advice.protocol, advice.figure, advice.label),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds movies/")
    parser.add_argument("--reviews", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=4.5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS / "advice.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    table = json.loads((RESULTS / "evaluation" / "bert-eraser.json").read_text())
    write(measure(options.data / "movies", options.reviews, options.minutes, table), options.out)


if __name__ == "__main__":
    main()

"""Measure the methods that the published tables lack: beside anchors and the best of each cell, on the same samples.

    python benchmarks/fill.py --list                                   # what is missing, suite by suite
    python benchmarks/fill.py bert-eraser --data DATA --out RUNS --samples 50
    python benchmarks/fill.py bert-eraser --data DATA --out RUNS --samples 10 --references
    python benchmarks/publish.py RUNS/bert-eraser --into benchmarks/results/evaluation/bert-eraser.json

A run has its suite's model, data, protocols and seed, so that its samples are among those of the published run. It
goes on where it was stopped, and grows by methods that are added to fill.toml.
"""

from __future__ import annotations

import argparse
import json
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from publish import plain_label
from submit import opponents
from whyformer.benchmark import make_suite, run_suite
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.suite import check_methods
from whyformer.methods.registry import source_methods

HERE = Path(__file__).parent
EVALUATION = HERE / "results" / "evaluation"
LISTS = ("methods", "references", "anchors")
Entry = str | dict[str, Any]


@cache
def fill_document() -> dict[str, Any]:
    """The content of fill.toml."""
    return tomllib.loads((HERE / "fill.toml").read_text(encoding="utf-8"))


def read_lists() -> dict[str, tuple[Choice, ...]]:
    """The lists of methods in fill.toml."""
    document = fill_document()
    return {key: check_methods(map(choice_of, document[key]))[: len(document[key])] for key in LISTS}


def is_measured(name: str, published: Mapping[str, Any]) -> bool:
    """Whether a run is on the leaderboard, and its model can be run."""
    document = fill_document()
    off, models = document["off_the_board"], {one["model"] for one in document["empty"]}
    protocols = {one["protocol"].partition(" ")[0] for one in published["protocols"]}
    return name not in off["runs"] and not protocols <= {*off["protocols"]} and published["model"] not in models


def choice_of(entry: Entry) -> Choice:
    if isinstance(entry, str):
        return Choice(entry)
    return Choice(entry["name"], {key: value for key, value in entry.items() if key != "name"})


def missing(published: Mapping[str, Any], methods: Iterable[Choice]) -> Iterator[Choice]:
    """The methods without a value in one of the run's tables, but not those that the model refuses."""
    tables = [{plain_label(row["method"]) for row in one["figures"][0]["rows"]} for one in published["protocols"]]
    refused = {plain_label(label) for label in published["left_out"]}
    refused |= {one["method"] for one in fill_document()["refused"] if published["model"] in one["models"]}
    for method in methods:
        if method.label not in refused and not all(method.label in rows for rows in tables):
            yield method


def measure(name: str, which: str, only: Sequence[str], data: Path, out: Path, **sizes: int) -> Path | None:
    """Run the missing methods of a list on some samples of a suite; None if nothing is missing."""
    lists = read_lists()
    published = json.loads((EVALUATION / f"{name}.json").read_text())
    lacking = list(missing(published, lists[which]))
    if not lacking:
        return None
    document = tomllib.loads((HERE / "suites" / f"{name}.toml").read_text(encoding="utf-8"))
    if only:
        document["protocols"] = [one for one in document["protocols"] if choice_of(one).label in only]
    kept = {choice_of(one).label for one in document["protocols"]}
    best = (choice_of(one) for one in opponents(name, kept) if one["name"] not in source_methods())
    beside = [*lists["anchors"], *best]
    methods = {choice.label: choice.document for choice in (*lacking, *beside)}
    document |= sizes | {"methods": [*methods.values()], "samples": min(sizes["samples"], published["samples"])}
    return run_suite(make_suite(document), out, data=data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE")
    parser.add_argument("--list", action="store_true", help="print what is missing")
    parser.add_argument("--references", action="store_true", help="the methods that ask the model again")
    parser.add_argument("--only", nargs="+", default=[], metavar="PROTOCOL", help="these protocols, by their labels")
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--out", type=Path, help="the folder of the runs")
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--shard", type=int, default=25)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    which = "references" if options.references else "methods"
    for name in options.suites or sorted(path.stem for path in EVALUATION.glob("*.json")):
        if options.list:
            published = json.loads((EVALUATION / f"{name}.json").read_text())
            if not is_measured(name, published):
                continue
            print(f"{name}: {', '.join(one.label for one in missing(published, read_lists()[which])) or 'nothing'}")
            continue
        start = time.perf_counter()
        folder = options.out / (f"{name}-references" if options.references else name)
        sizes = {key: getattr(options, key) for key in ("samples", "shard", "batch")}
        measure(name, which, options.only, options.data, folder, **sizes)
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()

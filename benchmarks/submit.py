"""Measure a method of your own for the leaderboard: beside the default, the best of each suite, and noise.

    python benchmarks/submit.py my_method.py --method my_method --out benchmarks/results/evaluation
    python benchmarks/submit.py my_method.py --method my_method --data DATA --out …     # photographs and texts, too
    python benchmarks/submit.py my_method.py --method my_method --suites scenes-clip --samples 16 --out trial

The plugin is a Python file that registers the method (docs/guides/plugins.md). For each suite a file is written, named
after the method and the suite, which docs/tables.py puts on the leaderboard: all methods in it are tested in pairs on
the same samples.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from publish import chief_figure, published, write
from whyformer.api.attribute import DEFAULT_METHOD
from whyformer.benchmark import make_suite, run_suite
from whyformer.benchmark.figures import read_run
from whyformer.benchmark.reporting.charts import CONTROLS
from whyformer.plugins import load_plugins

HERE = Path(__file__).parent
DRAWN = ("scenes-visualbert", "scenes-lxmert", "scenes-clip", "scenes-detr")  # which need no data
WITH_DATA = ("mae-perturbation", "mae-segmentation", "dinov2-perturbation", "dinov2-segmentation", "bert-eraser")
FEW = {"samples": 200}  # where a run with every method takes 1,000


def opponents(name: str, protocols: Collection[str] | None = None) -> list[dict[str, Any]]:
    """Today's default, and the best method of each figure of the published suite that decides first.

    Only those of some protocols, if their labels are given.
    """
    document = tomllib.loads((HERE / "suites" / f"{name}.toml").read_text(encoding="utf-8"))
    entries = {_label(one): one for one in document["methods"] if isinstance(one, dict)}
    result = HERE / "results" / "evaluation" / f"{name}.json"
    best = []
    for protocol in json.loads(result.read_text())["protocols"] if result.is_file() else ():
        methods = [row["method"] for row in chief_figure(protocol)["rows"] if row["method"] not in CONTROLS]
        best += methods[:1] if protocols is None or protocol["protocol"] in protocols else ()
    default = {"name": DEFAULT_METHOD}
    known = {_label(default): default}
    known |= {label: entries.get(label, {"name": label}) for label in best if " " not in label or label in entries}
    return list(known.values())


def _label(entry: dict[str, Any]) -> str:
    return " ".join([entry["name"], *(f"{key}={value}" for key, value in entry.items() if key != "name")])


def measure(name: str, method: str, plugin: Path, data: Path, samples: int | None) -> dict[str, Any]:
    """The published form of a suite's run with this method and its opponents."""
    document = tomllib.loads((HERE / "suites" / f"{name}.toml").read_text(encoding="utf-8")) | FEW
    rivals = [one for one in opponents(name) if one["name"] != method]
    document |= {"methods": [{"name": method}, *rivals]} | ({"samples": samples, "shard": samples} if samples else {})
    with tempfile.TemporaryDirectory() as folder:
        return published(read_run(run_suite(make_suite(document), folder, data=data, plugins=[plugin])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plugin", type=Path, help="the Python file that registers the method")
    parser.add_argument("--method", required=True, help="its name")
    parser.add_argument("--data", type=Path, help="the folder of photographs, texts and models")
    parser.add_argument("--suites", nargs="+", metavar="NAME", help="these only, of benchmarks/suites")
    parser.add_argument("--samples", type=int, help=f"of each suite, {FEW['samples']} if not given")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    options = parser.parse_args()
    load_plugins([options.plugin])
    for name in options.suites or (*DRAWN, *(WITH_DATA if options.data else ())):
        found = measure(name, options.method, options.plugin, options.data or Path(), options.samples)
        write(found, options.out / f"{options.method}-{name}.json")
        print(f"{name}: written")


if __name__ == "__main__":
    main()

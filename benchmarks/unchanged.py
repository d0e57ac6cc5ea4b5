"""Are the figures of two revisions the same? Four quick suites are run on both, and their tables compared.

    git worktree add /tmp/before 59a9ff9
    python benchmarks/unchanged.py --before /tmp/before --out benchmarks/results/unchanged.json

For each suite: the number of samples, explanations and rows, those that only one revision has, and the largest
difference of a score and of a figure, each relative to the largest of its own explanation or row.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
MOST = 1e-6  # the largest difference that counts as the same
METHODS = """[
    "raw_attention", "rollout", "grad_cam", "generic_attention", "transformer_attribution", "partial_lrp", "lrp",
    "bi_head", "bi_token", "attention_gradient", "input_x_gradient", "integrated_gradients", "evidence",
    { name = "generic_attention", backward = "libra" }, { name = "bi_token", backward = "libra" },
]"""
SCENES = '[data]\nreader = "scenes"\ncount = 3\nseed = 11\n'
SUITES = {
    "scenes-visualbert": f"""model = "mini-visualbert"
methods = {METHODS}
protocols = ["vqa_removal", "localisation"]
{SCENES}""",
    "scenes-lxmert": f"""model = "mini-lxmert"
methods = {METHODS}
protocols = ["vqa_removal", "localisation"]
{SCENES}""",
    "scenes-detr": f"""model = "mini-detr"
methods = {METHODS}
protocols = ["localisation"]
{SCENES}""",
    "facts-llm": f"""model = "mini-llm"
methods = {METHODS}
protocols = ["sources"]
[data]
reader = "facts"
count = 2
most = 8
""",
}
KEYS = {
    "samples": ("sample",),
    "explanations": ("sample", "method", "target", "part"),
    "rows": ("sample", "protocol", "method", "measure"),
}
NUMBERS = {"samples": ("probability",), "explanations": ("scores",), "rows": ("values",)}


def run(checkout: Path, name: str, suite: str, out: Path) -> Path:
    """The folder of tables of a suite, run with the sources of a checkout."""
    file, folder = out / f"{name}.toml", out / name  # a run that is whole already is not run again
    out.mkdir(parents=True, exist_ok=True)
    file.write_text(suite, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, "-m", "whyformer", "evaluate", str(file), "--out", str(folder)]
    subprocess.run(command, env=environment, cwd=checkout, check=True, capture_output=True)
    return folder


def records(folder: Path, table: str) -> dict[tuple[Any, ...], list[float]]:
    """The numbers of each record of a table, by its key."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for file in sorted((folder / table).glob("*.parquet")):
        for record in pq.read_table(file).to_pylist():
            key = tuple(record[name] for name in KEYS[table])
            found[key] = [x for name in NUMBERS[table] for x in numbers(record[name])]
    return found


def numbers(value: Any) -> Iterator[float]:
    """The numbers in a cell; NaN for a missing one."""
    yield from (math.nan if x is None else float(x) for x in (value if isinstance(value, list) else [value]))


def difference(first: Sequence[float], second: Sequence[float]) -> float:
    """The largest difference of two records, relative to the largest number of the first where that is over 1."""
    if len(first) != len(second):
        return math.inf
    pairs = [pair for pair in zip(first, second, strict=True) if not all(map(math.isnan, pair))]
    if any(math.isnan(x) != math.isnan(y) for x, y in pairs):
        return math.inf
    return max((abs(x - y) for x, y in pairs), default=0.0) / max(1.0, *(abs(x) for x, _ in pairs), 1.0)


def compare(before: Path, after: Path) -> dict[str, Any]:
    """What two folders of tables have in common, and the largest difference of each table."""
    result: dict[str, Any] = {}
    for table in KEYS:
        first, second = records(before, table), records(after, table)
        shared = first.keys() & second.keys()
        differences = {key: difference(first[key], second[key]) for key in shared}
        worst = max(differences, key=lambda key: differences[key], default=None)
        result[table] = {
            "compared": len(shared),
            "only in one": len(first.keys() ^ second.keys()),
            "largest difference": 0.0 if worst is None else differences[worst],
            "above": sum(x > MOST for x in differences.values()),
            "worst": None if worst is None else " ".join(map(str, worst)),
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the earlier revision")
    parser.add_argument("--suites", nargs="+", default=list(SUITES), choices=list(SUITES))
    parser.add_argument("--folder", type=Path, help="where the tables are kept, to go on with")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    results = {}
    for name in options.suites:
        places = [
            run(checkout.resolve(), name, SUITES[name], folder / label)
            for label, checkout in (("before", options.before), ("after", ROOT))
        ]
        results[name] = compare(*places)
        print(name, json.dumps(results[name]), flush=True)
    if options.out:
        git = ["git", "rev-parse", "--short", "HEAD"]
        revisions = [
            subprocess.run(git, cwd=x, check=True, capture_output=True, text=True).stdout.strip()
            for x in (options.before, ROOT)
        ]
        whole = {"before": revisions[0], "after": revisions[1], "most": MOST, "suites": results}
        options.out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    sys.exit(any(table["above"] or table["only in one"] for suite in results.values() for table in suite.values()))


if __name__ == "__main__":
    main()

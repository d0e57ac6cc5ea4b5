"""The range of blocks and the neutral picture of caap: chosen on one half of the samples, reported on the other.

For each model the variant with the best mean rank over the protocols' first figures, on the first half, is chosen. On
the second half nothing is chosen: every method's value with its 95 % interval. In a run after --confirm nothing is
chosen at all: the range is that of the default, and every sample counts.

python benchmarks/caap.py RUN_DIR… [--confirm RUN_DIR…] --out benchmarks/results/caap.json

The runs are those of benchmarks/suites/caap-*.toml; one that was stopped counts as far as it went.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from publish import chief_figure
from whyformer.benchmark.figures import Run, make_figures, read_run

RESULTS = Path("benchmarks/results/caap.json")
METHOD = "caap"


def tables(run: Run) -> dict[str, dict[str, Any]]:
    """The first figure of each protocol by "protocol, figure"."""
    named = [
        {"protocol": one["protocol"], "figures": [{"figure": t["figure"], **t} for t in one["tables"]]}
        for one in make_figures(run)["protocols"]
    ]
    chief = {one["protocol"]: chief_figure(one) for one in named}
    return {f"{protocol}, {figure['figure']}": figure for protocol, figure in chief.items()}


def chosen(found: dict[str, dict[str, Any]]) -> tuple[str, dict[str, float]]:
    """The variant with the best mean rank, and the mean rank of each."""
    ranks: dict[str, list[int]] = {}
    for table in found.values():
        own = [row for row in table["rows"] if row["method"].split()[0] == METHOD]
        sign = -1 if table["better"] == "higher" else 1
        for rank, row in enumerate(sorted(own, key=lambda row: sign * row["value"]), start=1):
            ranks.setdefault(row["method"], []).append(rank)
    means = {method: round(float(np.mean(own)), 2) for method, own in ranks.items()}
    return min(means, key=lambda method: means[method]), means


def report(folder: Path) -> dict[str, Any]:
    """The variant that the first half chooses, and the figures of the second."""
    run = read_run(folder)
    first, second = run.half("first"), run.half("second")
    best, ranks = chosen(tables(first))
    return {
        "chosen": best,
        "mean rank on the first half": dict(sorted(ranks.items(), key=lambda pair: pair[1])),
        "samples": [len(first.used), len(second.used)],
        "second half": values(tables(second), {METHOD, best}),
    }


def confirmation(folder: Path) -> dict[str, Any]:
    """The figures of all samples: the range was chosen on another model."""
    run = read_run(folder)
    return {"samples": len(run.used), "all samples": values(tables(run))}


def values(found: dict[str, dict[str, Any]], variants: set[str] | None = None) -> dict[str, dict[str, list[float]]]:
    """Value and interval of every method by figure; of caap, those of these variants."""
    return {
        name: {
            row["method"]: [round(float(row[key]), 4) for key in ("value", "low", "high")]
            for row in table["rows"]
            if variants is None or row["method"].split()[0] != METHOD or row["method"] in variants
        }
        for name, table in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--confirm", nargs="+", type=Path, default=[], help="runs in which nothing is chosen")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    known |= {read_run(folder).suite["model"]: report(folder) for folder in options.runs}
    known |= {read_run(folder).suite["model"]: confirmation(folder) for folder in options.confirm}
    options.out.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

"""Compare two versions of the package by a slice of four suites: every number of every Parquet table.

python benchmarks/slices.py run FOLDER      # with each version on the path
python benchmarks/slices.py compare FOLDER OTHER
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Any

import pandas as pd

from whyformer.benchmark import make_suite, run_suite

SUITES = ("scenes-detr", "scenes-clip", "scenes-lxmert", "scenes-vlm")  # detector, dual encoder, regions, writer
TOLERANCE = 1e-6


def run(folder: Path, samples: int) -> None:
    """Run the first samples of each suite."""
    for name in SUITES:
        document = tomllib.loads((Path(__file__).parent / "suites" / f"{name}.toml").read_text(encoding="utf-8"))
        document["data"]["count"] = samples
        run_suite(make_suite(document), folder / name, quiet=True)
        print(name, "done", flush=True)


def compare(folder: Path, other: Path) -> bool:
    """Print the largest difference of each suite; return whether all tables agree."""
    agree = True
    for name in SUITES:
        paths = sorted(path.relative_to(folder) for path in (folder / name).rglob("*.parquet"))
        assert paths == sorted(path.relative_to(other) for path in (other / name).rglob("*.parquet")), name
        assert paths, f"{folder / name} has no tables"
        identical = all((folder / path).read_bytes() == (other / path).read_bytes() for path in paths)
        tables = ((pd.read_parquet(folder / path), pd.read_parquet(other / path)) for path in paths)
        difference = max(_difference(first.to_dict("list"), second.to_dict("list")) for first, second in tables)
        agree &= difference <= TOLERANCE
        print(f"{name}: {len(paths)} tables, {'identical bytes' if identical else f'differing by {difference:.1g}'}")
    return agree


def _difference(first: Any, second: Any) -> float:
    """The largest difference of two nested values; infinite where they differ in anything but numbers."""
    if hasattr(first, "tolist") and hasattr(second, "tolist"):
        first, second = first.tolist(), second.tolist()
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return _difference(list(first.values()), list(second.values()))
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return max((_difference(a, b) for a, b in zip(first, second, strict=True)), default=0.0)
    if isinstance(first, float) and isinstance(second, float):
        return 0.0 if first == second or (first != first and second != second) else abs(first - second)
    return 0.0 if first == second else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("folder", type=Path)
    runner.add_argument("--samples", type=int, default=4)
    comparer = commands.add_parser("compare")
    comparer.add_argument("folder", type=Path)
    comparer.add_argument("other", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        run(arguments.folder, arguments.samples)
    else:
        sys.exit(0 if compare(arguments.folder, arguments.other) else 1)


if __name__ == "__main__":
    main()

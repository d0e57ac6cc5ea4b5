"""From finished runs to committed results: what the tables of the docs are made of, and no more.

    python benchmarks/publish.py RUN_DIR… --out benchmarks/results/evaluation
    python benchmarks/publish.py RUN_DIR --out benchmarks/results/evaluation/vit-segmentation.json

For each run a file of its folder's name: per protocol and figure every method's value, interval, number of samples and
paired p against the best; and for the order that the papers print, every pair of methods with its difference and paired
test. A run that is not finished is refused, unless `--unfinished` says that it is for trials.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from whyformer.benchmark.choice import Choice
from whyformer.benchmark.figures import Run, compare_runs, make_figures, read_run, sample_values
from whyformer.benchmark.protocols import Figure

# The papers' order: the first two best, then each better than the next.
PAPERS = (("bi_token", "bi_head"), ("transformer_attribution",), ("generic_attention",), ("rollout",))


def published(run: Run) -> dict[str, Any]:
    """The compact results of a run."""
    found = make_figures(run)
    about = {key: run.suite[key] for key in ("model", "data", "seed")}
    protocols = [
        {
            "protocol": protocol["protocol"],
            "figures": [_figure(table) | _ranking(run, choice, table) for table in protocol["tables"]],
        }
        for protocol, choice in zip(found["protocols"], run.choices, strict=True)
    ]
    return {
        **about,
        "samples": found["samples"],
        "unfinished": unfinished(run),
        "unusable": dict(Counter(re.sub(r"'[^']*'", "'…'", one["error"]) for one in found["errors"])),
        "accuracy": rounded(found["accuracy"]),
        "left_out": found["left_out"],
        "protocols": protocols,
    }


def _figure(table: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {"method": row["method"], "n": row["samples"]}
        | {key: rounded(row[key]) for key in ("value", "low", "high")}
        | ({"p": rounded(row["to_best"]["p"])} if row.get("to_best") else {})
        for row in table["rows"]
    ]
    return {"figure": table["figure"], "better": table["better"], "is_share": table["is_share"], "rows": rows}


def _ranking(run: Run, choice: Choice, table: dict[str, Any]) -> dict[str, Any]:
    """The papers' ordered pairs, if all their methods are there: by how much the one ahead is better, and p."""
    figure, values = sample_values(run, choice, table["figure"])
    if table["better"] == "neither" or not all(values.get(method) for tied in PAPERS for method in tied):
        return {}
    pairs = []
    for ahead, behind in ordered_pairs():
        found = advantage("difference", figure, values[ahead], values[behind], run.suite["seed"])
        if found is not None:
            pairs.append({"ahead": ahead, "behind": behind} | found)
    return {"ranking": pairs}


def advantage(
    name: str, figure: Figure, first: Mapping[int, Any], second: Mapping[int, Any], seed: int
) -> dict[str, float | None] | None:
    """By how much the first is better, positive whichever way that is, under a name; with its interval and p."""
    tested = compare_runs(figure, first, second, seed)
    if tested is None:
        return None
    sign = -1 if figure.better == "lower" else 1
    low, high = sorted((sign * tested["low"], sign * tested["high"]))
    found = {name: sign * tested["value"], "low": low, "high": high, "p": tested["p"]}
    return {key: rounded(value) for key, value in found.items()}


def unfinished(run: Run) -> int:
    """How many samples are still to be done."""
    return int(run.suite["count"]) - len(run.samples)


def ordered_pairs() -> Iterator[tuple[str, str]]:
    """Who is ahead of whom in the papers."""
    for ahead, behind in combinations(PAPERS, 2):
        yield from ((one, other) for one in ahead for other in behind)


def rounded(value: float | None) -> float | None:
    """Five digits; None for what is not a number."""
    return None if value is None or value != value else float(f"{value:.5g}")


def write(found: Any, path: Path) -> None:
    """As JSON, a line for each method."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    path.write_text(re.sub(r"\{[^{}]*\}", lambda line: re.sub(r"\s*\n\s*", " ", line[0]), text) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR", help="what `whyformer evaluate` wrote")
    parser.add_argument("--out", type=Path, required=True, help="a folder, or for one run a .json file")
    parser.add_argument("--unfinished", action="store_true", help="also runs that are not finished, for trials")
    options = parser.parse_args()
    if options.out.suffix == ".json" and len(options.runs) > 1:
        parser.error("several runs need a folder.")
    for folder in options.runs:
        found = published(read_run(folder))
        if found["unfinished"] and not options.unfinished:
            parser.error(f"{folder} is not finished: {found['unfinished']} samples are still to be done.")
        write(found, options.out if options.out.suffix == ".json" else options.out / f"{folder.name}.json")


if __name__ == "__main__":
    main()

"""The default of responses by what real models show: chosen on one half of the questions, reported on the other.

    python benchmarks/real_default.py smollm2.jsonl qwen.jsonl --out benchmarks/results/real_default.json

The files are those of `real_responses.py`; the rule is in response_candidates.toml. Only questions that every candidate
has explained count.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from real_response_summary import conditions, measures
from real_responses import lines_of
from whyformer.metrics.statistics import holm, interval, paired_comparison

RULE = Path(__file__).with_name("response_candidates.toml")
LEAST_BETTER = 2  # figures of the halves that report, by which the chosen one must be better than the earlier default
ALIKE = 0.05

Cells = Mapping[tuple[str, str], Mapping[str, Mapping[int, Mapping[str, Any]]]]  # by run and answer, method, seed


def cells_of(paths: Sequence[Path], candidates: Sequence[str]) -> Cells:
    """The measures of each candidate on the questions that all of them explained."""
    questions: dict[tuple[str, str], dict[int, Any]] = defaultdict(dict)
    found: dict[tuple[str, str], dict[str, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
    for line in lines_of(paths):
        cell = (line["run"].partition("-shard")[0], line["answer"])
        if line["method"] == "":
            questions[cell][line["seed"]] = line
        elif line["method"] in candidates and "error" not in line and questions[cell][line["seed"]]["kept"]:
            found[cell][line["method"]][line["seed"]] = measures(questions[cell][line["seed"]], line)
    cells = {}
    for cell, methods in found.items():
        common = sorted(set.intersection(*(set(methods[name]) for name in candidates)))
        cells[cell] = {name: {seed: methods[name][seed] for seed in common} for name in candidates}
    return {cell: methods for cell, methods in cells.items() if all(methods.values())}


def runs_of(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """What was asked in each run, by kind of answer."""
    asked: dict[tuple[str, str], dict[int, Any]] = defaultdict(dict)
    for line in lines_of(paths):
        if line["method"] == "":
            asked[line["run"].partition("-shard")[0], line["answer"]][line["seed"]] = line
    return [{"run": run, "answers": kind, **conditions([*own.values()])} for (run, kind), own in asked.items()]


def values(cells: Cells, cell: tuple[str, str], method: str, figure: str, half: int) -> np.ndarray:
    """A figure of a method on the questions of one half."""
    return np.array([row[figure] for seed, row in cells[cell][method].items() if seed % 2 == half])


def decide(cells: Cells, rule: Mapping[str, Any]) -> dict[str, Any]:
    """The candidate that the even questions choose, and how it compares with the others on the odd ones."""
    candidates, earlier = rule["candidates"], rule["earlier"]
    columns = [(cell, figure) for cell in cells for figure in rule["figures"]]
    means = [[values(cells, cell, name, figure, 0).mean() for name in candidates] for cell, figure in columns]
    mean_ranks = np.mean([rankdata(-np.array(column)) for column in means], axis=0)
    chosen = candidates[int(np.argmin(mean_ranks))]
    rows = []
    for name in candidates:
        if name == chosen:
            continue
        compared = [
            paired_comparison(values(cells, cell, chosen, figure, 1), values(cells, cell, name, figure, 1))
            for cell, figure in columns
        ]
        for (cell, figure), one, p in zip(columns, compared, holm([one.p for one in compared]), strict=True):
            ends = one.difference
            rows.append({
                "against": name, "run": cell[0], "answers": cell[1], "figure": figure,
                "gain": round(ends.value, 4), "low": round(ends.low, 4), "high": round(ends.high, 4), "p": round(p, 4),
            })  # fmt: skip
    against_earlier = [row for row in rows if row["against"] == earlier and row["p"] < ALIKE]
    better, worse = (sum((row["gain"] > 0) == sign for row in against_earlier) for sign in (True, False))
    return {
        "earlier": earlier,
        "chosen": chosen,
        "is_confirmed": chosen != earlier and better >= LEAST_BETTER and not worse,
        "better": better,
        "worse": worse,
        "mean_ranks": dict(sorted(zip(candidates, mean_ranks.round(2).tolist(), strict=True), key=lambda one: one[1])),
        "halves": [_half(cells, candidates, rule["figures"], half) for half in (0, 1)],
        "tests": rows,
    }


def _half(cells: Cells, candidates: Sequence[str], figures: Sequence[str], half: int) -> list[dict[str, Any]]:
    rows = []
    for cell in cells:
        for name in candidates:
            row: dict[str, Any] = {"run": cell[0], "answers": cell[1], "method": name}
            for figure in figures:
                one = interval(values(cells, cell, name, figure, half))
                row[figure] = [round(end, 4) for end in (one.value, one.low, one.high)]
            rows.append(row | {"n": len(values(cells, cell, name, figures[0], half))})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rule = tomllib.loads(RULE.read_text(encoding="utf-8"))
    decided = {"runs": runs_of(options.files), **decide(cells_of(options.files, rule["candidates"]), rule)}
    text = json.dumps(decided, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Whether the default of responses holds on fresh questions: how often the true sentence has the highest score.

    python benchmarks/real_confirmation.py SmolLM2.jsonl.gz Qwen2.5-Coder.jsonl.gz \
        --out benchmarks/results/real_confirmation.json

The files are those of `real_responses.py`, of seeds that chose nothing. The default is compared with the other
candidates and the controls, on the questions that both explained, by paired permutation tests that are corrected by
Holm's procedure.
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

from real_response_summary import conditions, measures
from real_responses import CONTROLS, COSINE, lines_of
from whyformer.metrics.statistics import Interval, holm, interval, paired_comparison

RULE = Path(__file__).with_name("response_candidates.toml")
DEFAULT = "generic_attention focus=sources"
TARGETS = {"SmolLM2": 0.95, "Qwen2.5-Coder": 0.90}  # of true sentences first, for answers in the text's own words
NORMAL = 1.96  # standard deviations to either side that hold 95 %
Lines = Sequence[Mapping[str, Any]]


def confirmation(lines: Lines) -> list[dict[str, Any]]:
    """Figures by run and kind of answer: each method on the questions that it explained, and against the default."""
    cells: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        cells[line["run"].partition("-shard")[0], line["answer"]].append(line)
    return [_cell(run, answers, own) for (run, answers), own in cells.items()]


def _cell(run: str, answers: str, lines: Lines) -> dict[str, Any]:
    questions = {line["seed"]: line for line in lines if line["method"] == ""}
    kept = {seed: line for seed, line in questions.items() if line["kept"]}
    found: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    named = {DEFAULT, *CONTROLS, COSINE, *candidates()}
    for line in lines:
        if line["method"] in named and line["seed"] in kept and "error" not in line:
            found[line["method"]][line["seed"]] = measures(kept[line["seed"]], line)
    return {
        "run": run,
        "answers": answers,
        **conditions([*questions.values()]),
        "target": TARGETS.get(run) if answers == "verbatim" else None,
        "methods": dict(sorted(_methods(found).items(), key=lambda item: -item[1]["top 1"][0])),
    }


def candidates() -> list[str]:
    """The candidates of response_candidates.toml."""
    rule: dict[str, list[str]] = tomllib.loads(RULE.read_text(encoding="utf-8"))
    return rule["candidates"]


def _methods(found: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    others = [name for name in found if name != DEFAULT and DEFAULT in found]
    compared = {name: _against_default(found, name) for name in others}
    corrected = holm([one.p for one, _ in compared.values()])
    rows = {}
    for name, by_seed in found.items():
        row: dict[str, Any] = {"n": len(by_seed)}
        average_precision = interval(_values(by_seed, by_seed, "AUPRC"))
        for figure, ends in (("top 1", share(_values(by_seed, by_seed, "top 1"))), ("AUPRC", average_precision)):
            row[figure] = [round(end, 4) for end in (ends.value, ends.low, ends.high)]
        rows[name] = row
    for (name, (one, count)), p in zip(compared.items(), corrected, strict=True):
        ends = one.difference
        gain = [round(end, 4) for end in (ends.value, ends.low, ends.high)]
        rows[name]["default's gain"] = {"n": count, "top 1": gain, "p": round(p, 4)}
    return rows


def share(right: np.ndarray) -> Interval:
    """The share of questions that are right and its Wilson interval, which is not empty where all of them are."""
    count, value = len(right), float(right.mean())
    scale = 1 + NORMAL**2 / count
    middle = (value + NORMAL**2 / (2 * count)) / scale
    half = NORMAL / scale * (value * (1 - value) / count + NORMAL**2 / (4 * count**2)) ** 0.5
    return Interval(value, max(0.0, middle - half), min(1.0, middle + half))


def _against_default(found: Mapping[str, Mapping[int, Mapping[str, Any]]], name: str) -> tuple[Any, int]:
    common = sorted(set(found[DEFAULT]) & set(found[name]))
    ours, theirs = (_values(found[one], common, "top 1") for one in (DEFAULT, name))
    return paired_comparison(ours, theirs), len(common)


def _values(by_seed: Mapping[int, Mapping[str, Any]], seeds: Any, figure: str) -> np.ndarray:
    return np.array([by_seed[seed][figure] for seed in seeds], dtype=np.float64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="JSON lines of real_responses.py, compressed or not")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    report = confirmation(list(lines_of(options.files)))
    for cell in report:
        print(f"\n{cell['run']}, {cell['answers']}, {cell['dtype']}: {cell['kept']} of {cell['tried']} questions kept")
        for name, row in cell["methods"].items():
            value, low, high = row["top 1"]
            print(f"  {name:50} {value:6.1%} [{low:.1%}, {high:.1%}]  n={row['n']}")
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

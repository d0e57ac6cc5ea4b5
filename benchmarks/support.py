"""Whether verdicts on answers are right: a line of JSON for each sentence of an answer with known support.

    python benchmarks/support.py measure mini-llm --out mini-llm.jsonl --seeds 60
    python benchmarks/support.py measure FOLDER --out smollm2.jsonl --seeds 32 --judge
    python benchmarks/support.py summarise mini-llm.jsonl smollm2.jsonl --out benchmarks/results/support.json

`whyformer.facts.support_case` draws the answers. A run goes on where its file ends. `summarise` fits the verdicts of
each model on its even seeds, as `whyformer calibrate` does, and reports on the odd ones.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, get_args

import whyformer
from whyformer.api.calibration_data import case_response, case_rows
from whyformer.facts import SupportCase, support_case, word_overlap
from whyformer.facts.statements import PLAIN_STATEMENTS, StatementKind
from whyformer.results.response import Response


def kinds_of(register: str) -> tuple[str, ...]:
    return PLAIN_STATEMENTS if register == "plain" else get_args(StatementKind)


def measure(options: argparse.Namespace) -> None:
    """The figures of every case that the file does not have."""
    model = whyformer.load(options.model)
    register = "plain" if options.model.startswith("mini-") else "prose"
    known = {(row["seed"], row["case"]) for row in rows_of(options.out)}
    end = time.monotonic() + options.seconds
    for seed in range(options.first, options.first + options.seeds):
        for kind in options.kinds or kinds_of(register):
            if (seed, kind) in known:
                continue
            case = support_case(seed, kind, register=register, sentences=options.sentences)
            start = time.process_time()
            response = case_response(model, case)
            support = response.support(judge=options.judge)
            seconds = time.process_time() - start
            rows = case_rows(case, support)
            more = {"model": model.name, "seconds": round(seconds, 3), **controls(case, response)}
            more |= {"forwards": support.forwards, "full_forwards": support.full_forwards}
            if options.full:
                more |= full(case, response, options.judge)
            with options.out.open("a") as file:
                file.writelines(
                    json.dumps(row | more | one) + "\n" for row, one in zip(rows, attribution(response), strict=True)
                )
            if time.monotonic() > end:
                print("The time is up: run the same command again to go on.")
                return
        print(f"seed {seed}", flush=True)


def full(case: SupportCase, response: Response, judge: bool) -> dict[str, Any]:
    """The verdicts and carrying sets with every source removed and tried alone."""
    support = response.support_of(judge=judge, alone=True, every=True)
    return {
        "full_verdicts": [unit.verdict for unit in support.units],
        "full_carrying": [list(unit.carrying) for unit in support.units],
        "full_spent": support.forwards,
    }


def controls(case: SupportCase, response: Response) -> dict[str, Any]:
    return {"overlap": [max(word_overlap(one.text, text) for _, text in case.documents) for one in case.statements]}


def attribution(response: Response) -> list[dict[str, float]]:
    """The maximum and the sum of a common method's scores of each sentence of the answer."""
    return [
        {"attribution_max": float(row.max(initial=0)), "attribution_sum": float(row.sum())} for row in response.scores
    ]


def rows_of(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.add_argument("model")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--seeds", type=int, default=30)
    one.add_argument("--first", type=int, default=0)
    one.add_argument("--sentences", type=int, default=9)
    one.add_argument("--kinds", nargs="*")
    one.add_argument("--judge", action="store_true")
    one.add_argument("--full", action="store_true")
    one.add_argument("--seconds", type=float, default=float("inf"))
    one.set_defaults(run=measure)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()

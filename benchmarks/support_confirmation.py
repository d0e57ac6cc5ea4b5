"""Confirm on fresh sentences what a further question to the model is worth, without the figures that cost more.

    python benchmarks/support_confirmation.py FOLDER --out fresh.jsonl --seconds 1200
    python benchmarks/support_confirmation.py --summary

`proposed_alone` was picked among some hundred candidates on the first sentences of Qwen2.5-Coder. The first command
measures it, the sentence and its opposite on new seeds, and goes on where its file ends. The second applies two
thresholds to the new sentences (results/support_confirmation), the best one on the first (results/support) and that of
uncalibrated verdicts, and writes results/support_confirmation.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whyformer
from support import measured_case, rows_of, sentences_of
from support_candidates import asker_of
from support_summary import FRESH, RESULTS, counted, interval
from whyformer.api.calibrations import model_digest
from whyformer.api.further_questions import proposed_alone
from whyformer.api.support_questions import SupportQuestions
from whyformer.api.verdict_rules import TAU_PROPOSED
from whyformer.facts import SupportCase
from whyformer.inputs.value_words import stated_share

KINDS = ("reworded", "made_up_reworded", "made_up", "true", "denied", "denied_made_up")
DENIED = ("denied", "denied_made_up")
TRUE, FALSE = ("true", "twice", "reworded"), ("made_up", "made_up_reworded")
PAIRS = {  # what a figure is asked to tell: true kinds, the false one, and the figures that may
    "made up": (("true",), "made_up", ("proposed_alone", "per_token", "necessity", "value_stated")),
    "in other words": (("reworded",), "made_up_reworded", ("proposed_alone", "per_token", "necessity", "value_stated")),
    "denied, both with a not": (("denied_made_up",), "denied", ("denial_necessity", "value_stated", "denial_odds")),
}
FOLDER = RESULTS.parent / "support_confirmation"


def measure(options: argparse.Namespace) -> None:
    """A line of figures for each case that the file does not have, every kind of a seed before the next."""
    model = whyformer.load(options.model, dtype=options.dtype, device=options.device)
    digest, end = model_digest(model), time.monotonic() + options.seconds
    known = {(row["seed"], row["kind"]) for row in rows_of(options.out)}
    for seed, kind in ((seed, kind) for seed in FRESH for kind in KINDS):
        if (seed, kind) in known:
            continue
        if time.monotonic() > end:
            return
        start = time.process_time()
        row = {"model": model.name, "digest": digest, "dtype": options.dtype, "seed": seed, "kind": kind}
        row |= {"sentences": sentences_of(seed, kind, "prose")}
        row |= {"figures": figures(model, measured_case(seed, kind, "prose"))}
        row |= {"cpu_seconds": round(time.process_time() - start, 2)}
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, flush=True)


@torch.inference_mode()
def figures(model: whyformer.LoadedModel, case: SupportCase) -> dict[str, float]:
    """The figures of a case's only statement."""
    asker, _ = asker_of(model, case)
    own = asker.questions
    questions = SupportQuestions(own.scorer, own.prompt, own.text, own.tokens, own.spans, own.places, asker.sentences)
    text = case.statements[0].text
    (whole,), (without,) = questions.unit_values([(), questions.places])
    values = {
        "per_token": whole / len(questions.spans[0].tokens),
        "necessity": whole - without,
        "value_stated": stated_share(text, case.question, questions.texts),
    }
    if case.kind not in DENIED:
        values["proposed_alone"] = proposed_alone(questions, text)
    denial = questions.denial(0) if case.kind in DENIED else None
    if denial is not None:
        values["denial_odds"] = whole - denial.log_probability
        values["denial_necessity"] = denial.log_probability - denial.without_sources
    return {name: round(float(value), 4) for name, value in values.items()}


def summarise() -> None:
    """What each figure is worth on the new sentences, and the threshold of the first ones."""
    runs = []
    for path in sorted(FOLDER.glob("*.jsonl.gz")):
        rows = rows_of(path)
        first = [row for row in rows_of(RESULTS.parent / "support" / path.name) if row["seed"] not in FRESH]
        threshold = best_threshold(
            [row["unit"]["answers"]["proposed_alone"] for row in first if row["kind"] in TRUE],
            [row["unit"]["answers"]["proposed_alone"] for row in first if row["kind"] in FALSE],
        )
        right = {name: shares(rows, one) for name, one in (("first", threshold), ("verdicts", TAU_PROPOSED))}
        told = {name: {one: told_apart(rows, one, *kinds) for one in names} for name, (*kinds, names) in PAIRS.items()}
        runs.append(
            {"model": rows[0]["model"], "digest": rows[0]["digest"], "dtype": rows[0]["dtype"], "sentences": len(rows)}
            | {
                "first": len(first),
                "thresholds": {"first": threshold, "verdicts": TAU_PROPOSED},
                "right": right,
                "auroc": told,
            }
        )
    target = RESULTS.parent / "support_confirmation.json"
    target.write_text(json.dumps(runs, indent=1) + "\n")
    print(f"Written to {target}")


def shares(rows: list[dict[str, Any]], threshold: float) -> dict[str, Any]:
    """How often true sentences of a kind reach the threshold, and false ones do not."""
    asked = [(row["kind"], row["figures"]["proposed_alone"]) for row in rows if "proposed_alone" in row["figures"]]
    return {
        kind: counted([(value >= threshold) == (kind in TRUE) for own, value in asked if own == kind])
        for kind in dict.fromkeys(kind for kind, _ in asked)
    }


def told_apart(rows: list[dict[str, Any]], figure: str, true: tuple[str, ...], false: str) -> dict[str, Any]:
    """How often a figure is larger for a true sentence than for a false one, with a 95 % bootstrap interval."""
    own = [row for row in rows if row["kind"] in (*true, false) and figure in row["figures"]]
    truth = np.array([row["kind"] != false for row in own], dtype=bool)
    counts = {"true": int(truth.sum()), "false": int((~truth).sum())}
    if not all(counts.values()):
        return counts
    return counts | {"auroc": interval(np.array([row["figures"][figure] for row in own]), truth)}


def best_threshold(true: list[float], false: list[float]) -> float:
    """The threshold of the largest balanced accuracy, halfway between two values."""
    values = np.unique([*true, *false])
    candidates = (values[1:] + values[:-1]) / 2
    share = [(np.mean(np.array(true) >= one) + np.mean(np.array(false) < one)) / 2 for one in candidates]
    return round(float(candidates[int(np.argmax(share))]), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--summary", action="store_true", help="only write the results")
    options = parser.parse_args()
    summarise() if options.summary else measure(options)


if __name__ == "__main__":
    main()

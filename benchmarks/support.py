"""Whether verdicts on answers are right: a line of JSON for each sentence of an answer with known support.

    python benchmarks/support.py measure mini-llm --out mini-llm.jsonl --seeds 60
    python benchmarks/support.py measure FOLDER --out smollm2.jsonl --seeds 32 --judge
    python benchmarks/support.py summarise mini-llm.jsonl smollm2.jsonl --out benchmarks/results/support.json
    python benchmarks/support.py bundle mini-llm mini-llm.jsonl    # its calibration becomes part of the package

`whyformer.facts.support_case` draws the answers. A run goes on where its file ends. `summarise` fits the verdicts of
each model on its even seeds, as `whyformer calibrate` does, and reports on the odd ones.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np

import whyformer
from real_responses import cosines
from whyformer.api.calibrate import balanced_accuracy, fit, labelled_units, wilson
from whyformer.api import support_origin
from whyformer.api.calibration_data import case_rows, case_support
from whyformer.api.calibrations import model_digest
from whyformer.api.support_origin import signed_scores
from whyformer.api.verdict_models import figures_of
from whyformer.api.verdict_rules import rule_verdict
from whyformer.facts import SupportCase, support_case, word_overlap
from whyformer.facts.statements import PLAIN_STATEMENTS, StatementKind
from whyformer.results.response import Response

BUNDLED = Path(whyformer.__file__).parent / "api" / "calibrations.json"
RESULTS = Path(__file__).parent / "results" / "support.json"
BOOTSTRAP = 1000
SENTENCES = {"prose": (8, 12), "plain": (6, 9, 15)}  # of the documents of a case


def kinds_of(register: str) -> tuple[str, ...]:
    return PLAIN_STATEMENTS if register == "plain" else get_args(StatementKind)


def register_of(model: str) -> str:
    return "plain" if model.startswith("mini-") else "prose"


def measure(options: argparse.Namespace) -> None:
    """The figures of every case that the file does not have."""
    model = whyformer.load(options.model, dtype=options.dtype)
    register = register_of(options.model)
    known = {(row["seed"], row["case"]) for row in rows_of(options.out)}
    end = time.monotonic() + options.seconds
    for seed in range(options.first, options.first + options.seeds):
        for kind in options.kinds or kinds_of(register):
            if (seed, kind) in known:
                continue
            case = measured_case(seed, kind, register)
            start = time.process_time()
            with recorded_scores() as scores:
                support = case_support(model, case, judge=options.judge, sources=options.full)
            more = {"model": model.name, "register": register, "sentences": sentences_of(seed, kind, register)}
            more |= {"cpu_seconds": round(time.process_time() - start, 2), "scores": scores}
            more |= {"forwards": support.forwards, "full_forwards": support.full_forwards}
            if options.full:
                more |= full(model, case, options.judge)
            with options.out.open("a") as file:
                file.writelines(json.dumps(row | more) + "\n" for row in case_rows(case, support))
            if time.monotonic() > end:
                print("The time is up: run the same command again to go on.")
                return
        print(f"seed {seed}", flush=True)


def sentences_of(seed: int, kind: str, register: str) -> int:
    """The number of sentences of a case's documents, drawn by its seed."""
    return random.Random(f"sentences {kind} {seed}").choice(SENTENCES[register])


def measured_case(seed: int, kind: str, register: str) -> SupportCase:
    return support_case(seed, kind, register=register, sentences=sentences_of(seed, kind, register))


@contextmanager
def recorded_scores() -> Iterator[list[list[float]]]:
    """The signed scores of the sources, a list for each sentence of an answer and then for the value of each."""
    rows: list[list[float]] = []

    def record(*arguments: Any, **options: Any) -> np.ndarray | None:
        scores = signed_scores(*arguments, **options)
        rows.extend([] if scores is None else [[float(f"{one:.4g}") for one in row] for row in scores])
        return scores

    support_origin.signed_scores = record
    try:
        yield rows
    finally:
        support_origin.signed_scores = signed_scores


def full(model: whyformer.LoadedModel, case: SupportCase, judge: bool) -> dict[str, Any]:
    """The verdicts and carrying sets with every source removed and tried alone."""
    support = case_support(model, case, judge=judge, alone=True, every=True)
    return {
        "full_verdicts": [unit.verdict for unit in support.units],
        "full_carrying": [list(unit.carrying) for unit in support.units],
        "full_spent": support.forwards,
    }


def controls(case: SupportCase, encoder: whyformer.LoadedModel | None) -> dict[str, list[float]]:
    """The most words that each sentence shares with a document, and its largest cosine with one."""
    texts = [text for _, text in case.documents]
    found = {"lexical overlap": [max(word_overlap(one.text, text) for text in texts) for one in case.statements]}
    if encoder is not None:
        found["encoder cosine"] = [max(cosines(encoder, texts, one.text)) for one in case.statements]
    return found


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


def summarise(options: argparse.Namespace) -> None:
    """Fit each model's verdicts on its even seeds, and write what they and each figure are worth on the odd ones."""
    runs = []
    for path in options.files:
        rows = rows_of(path)
        calibration = fit(labelled_units(rows), rows[0]["model"], "", f"{len(rows)} generated sentences")
        held_out = [
            (row, one)
            for row, one in zip(rows, labelled_units(rows), strict=True)
            if one.half == 1 and one.is_decidable
        ]
        verdicts = {
            "calibrated": [calibration.decide(one.unit)[0] for _, one in held_out],
            "thresholds": [rule_verdict(one.unit) for _, one in held_out],
        }
        run = {
            "model": rows[0]["model"],
            "sentences": len(rows),
            "fitted": calibration.report["fitted"],
            "held_out": len(held_out),
            "cost": cost(rows),
            "agreement_with_full": full_agreement(rows, calibration),
            "verdicts": {name: by_kind(held_out, given) for name, given in verdicts.items()},
            "unknown": unknown(rows, calibration),
            "groups": by_group(held_out, verdicts["calibrated"]),
            "auroc": {kind: aurocs(held_out, kind) for kind in ("made_up", "swapped", "unanswerable")},
        }
        runs.append({**run, "calibration": calibration.to_dict()})
    options.out.write_text(json.dumps(runs, indent=1) + "\n")
    print(f"Written to {options.out}: {', '.join(run['model'] for run in runs)}")


def cost(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {
        "forwards": round(float(np.mean([row["forwards"] for row in rows])), 2),
        "full_forwards": round(float(np.mean([row["full_forwards"] for row in rows])), 2),
        "seconds": round(float(np.median([row["seconds"] for row in rows])), 3),
    }


def full_agreement(rows: list[dict[str, Any]], calibration: Any) -> dict[str, Any] | None:
    """How often the verdict is that of the full computation, where that was measured."""
    own = [row for row in rows if "full_verdicts" in row]
    if not own:
        return None
    same = sum(row["unit"]["verdict"] == row["full_verdicts"][row["statement"]] for row in own)
    low, high = wilson(same, len(own))
    sets = [(row["unit"]["carrying"], row["full_carrying"][row["statement"]]) for row in own]
    sets = [(mine, theirs) for mine, theirs in sets if mine or theirs]
    carrying = {"same": sum(sorted(mine) == sorted(theirs) for mine, theirs in sets), "of": len(sets)}
    share = sum(row["forwards"] for row in own) / sum(row["full_spent"] for row in own)
    return {"same": same, "of": len(own), "low": round(low, 4), "high": round(high, 4), "forwards": round(share, 4)} | {
        "carrying": carrying
    }


def by_kind(held_out: list[tuple[dict[str, Any], Any]], given: list[str]) -> dict[str, Any]:
    """The share of right verdicts by kind of sentence, with intervals, and balanced accuracy over kinds of truth."""
    kinds = dict.fromkeys(one.kind for _, one in held_out)
    result: dict[str, Any] = {}
    for kind in kinds:
        right = [verdict in one.right for (_, one), verdict in zip(held_out, given, strict=True) if one.kind == kind]
        low, high = wilson(sum(right), len(right))
        result[kind] = {"right": sum(right), "of": len(right), "low": round(low, 4), "high": round(high, 4)}
    decided = [(verdict, one.right) for (_, one), verdict in zip(held_out, given, strict=True)]
    return {"kinds": result, "balanced_accuracy": balanced_accuracy(decided)}


def unknown(rows: list[dict[str, Any]], calibration: Any) -> dict[str, Any]:
    """How often no verdict is given on sentences about what the model does not know itself, by kind."""
    own = [one for one in labelled_units(rows) if one.half == 1 and not one.is_decidable]
    result: dict[str, Any] = {}
    for kind in dict.fromkeys(one.kind for one in own):
        units = [one.unit for one in own if one.kind == kind]
        each = {
            "calibrated": [calibration.decide(unit)[0] for unit in units],
            "thresholds": [rule_verdict(unit) for unit in units],
        }
        result[kind] = {name: counted([one == "cannot tell" for one in given]) for name, given in each.items()}
    return result


def counted(right: list[bool]) -> dict[str, Any]:
    low, high = wilson(sum(right), len(right))
    return {"right": sum(right), "of": len(right), "low": round(low, 4), "high": round(high, 4)}


def by_group(held_out: list[tuple[dict[str, Any], Any]], given: list[str]) -> dict[str, Any]:
    """The share of right verdicts by where the first cause stands, by length, and by the number of sentences."""
    result: dict[str, dict[str, list[bool]]] = {}
    for (row, one), verdict in zip(held_out, given, strict=True):
        for name, group in groups_of(row):
            result.setdefault(name, {}).setdefault(group, []).append(verdict in one.right)
    return {name: {group: counted(right) for group, right in own.items()} for name, own in result.items()}


def groups_of(row: dict[str, Any]) -> list[tuple[str, str]]:
    """The groups of a sentence: the third of the documents that it comes from, its length, the length of these."""
    sentences, tokens = row.get("sentences", 9), row["unit"]["tokens"]
    groups = [("length", "up to 5 tokens" if tokens <= 5 else "6 to 10 tokens" if tokens <= 10 else "over 10 tokens")]
    groups.append(("sources", f"{sentences} sentences"))
    if row["causes"] and row["case"] != "several":  # which has two sets of documents
        case = support_case(
            row["seed"], row["case"], register=row.get("register", register_of(row["model"])), sentences=sentences
        )
        third = 3 * min(row["causes"][0]) // len(case.documents)
        groups.append(("position", ("first third", "middle third", "last third")[min(third, 2)]))
    return groups


def aurocs(held_out: list[tuple[dict[str, Any], Any]], kind: str) -> dict[str, Any]:
    """How well each figure tells true sentences from those of a kind, with 95 % bootstrap intervals."""
    own = [(row, one) for row, one in held_out if one.kind in ("true", "twice", kind)]
    truth = np.array([one.kind != kind for _, one in own])
    if truth.all() or not truth.any():
        return {}
    columns: dict[str, list[float]] = {}
    for row, one in own:
        for name, value in figures_of(one.unit).items():
            columns.setdefault(name, []).append(value)
        columns.setdefault("log p", []).append(one.unit.log_probability)
        for name in ("lexical overlap", "encoder cosine"):
            if name in row:
                columns.setdefault(name, []).append(row[name][row["statement"]])
        for name in ("attribution_max", "attribution_sum"):
            columns.setdefault(name.replace("_", " "), []).append(row[name])
    return {name: interval(np.array(values), truth) for name, values in columns.items() if len(values) == len(own)} | {
        "sentences": len(own)
    }


def interval(values: np.ndarray, truth: np.ndarray) -> list[float]:
    rng, draws = np.random.default_rng(0), []
    for _ in range(BOOTSTRAP):
        chosen = rng.integers(0, len(values), len(values))
        if truth[chosen].any() and not truth[chosen].all():
            draws.append(auroc(values[chosen], truth[chosen]))
    low, high = np.quantile(draws, [0.025, 0.975])
    return [round(auroc(values, truth), 4), round(float(low), 4), round(float(high), 4)]


def auroc(values: np.ndarray, truth: np.ndarray) -> float:
    """The probability that a true sentence has the larger value, ties counted half."""
    true, false = values[truth], values[~truth]
    larger = (true[:, None] > false[None]).mean() + (true[:, None] == false[None]).mean() / 2
    return float(larger)


def bundle(options: argparse.Namespace) -> None:
    """Fit a model's verdicts and put them into the package's calibrations."""
    model, rows = whyformer.load(options.model), rows_of(options.file)
    digest, data = model_digest(model), f"{len(rows)} generated sentences"
    calibration = fit(labelled_units(rows), model.name, digest, data)
    others = [one for one in json.loads(BUNDLED.read_text()) if one["digest"] != digest]
    BUNDLED.write_text(json.dumps([*others, calibration.to_dict()], indent=1) + "\n")
    print(f"{model.name}: balanced accuracy {calibration.report['balanced_accuracy']} on the other half")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.add_argument("model")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--seeds", type=int, default=30)
    one.add_argument("--first", type=int, default=0)
    one.add_argument("--kinds", nargs="*")
    one.add_argument("--judge", action="store_true")
    one.add_argument("--dtype", help="of the model; by default that of its weights")
    one.add_argument("--full", action="store_true")
    one.add_argument("--seconds", type=float, default=float("inf"))
    one.set_defaults(run=measure)
    two = commands.add_parser("summarise")
    two.add_argument("files", type=Path, nargs="+")
    two.add_argument("--out", type=Path, default=RESULTS)
    two.set_defaults(run=summarise)
    three = commands.add_parser("bundle")
    three.add_argument("model")
    three.add_argument("file", type=Path)
    three.set_defaults(run=bundle)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()

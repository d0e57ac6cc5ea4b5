"""Fit the verdicts of each model on measured answers (support.py), and say what they are worth on the other half.

    python benchmarks/support_summary.py benchmarks/results/support/*.jsonl.gz --encoder FOLDER

Even seeds fit, as in `whyformer calibrate`; everything that is reported is about odd ones, or about all of them where
there are too few to fit. Calibrations become part of the package (src/whyformer/api/calibrations.json), the rest goes
to benchmarks/results/support.json. With --pack MODEL, rows that were just measured are compressed into the folder of
results instead. Sentences of the seeds FRESH were measured after the figures and the way of fitting were chosen.
"""

from __future__ import annotations

import argparse
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import whyformer
from candidate_figures import candidate_figures
from real_responses import cosines
from support import rows_of
from whyformer.api.calibrate import balanced_accuracy, fit, labelled_units, wilson
from whyformer.api.further_questions import FURTHER
from whyformer.api.verdict_figures import figures_of
from whyformer.api.verdict_models import Calibration
from whyformer.api.verdict_rules import rule_verdict
from whyformer.facts import SupportCase, support_case, word_overlap
from whyformer.inputs.sentences import sentence_ranges
from whyformer.inputs.value_words import stated_share
from whyformer.inputs.verdicts import VERDICTS

BUNDLED = Path(whyformer.__file__).parent / "api" / "calibrations.json"
RESULTS = Path(__file__).parent / "results" / "support.json"
BOOTSTRAP = 1000
FEWEST_FITTED = 100  # sentences of the fitting half: fewer are reported without a fit, all of them as held out
FEWEST_COMPARED = 5  # sentences of a kind
FRESH = range(140, 1000)
STATED = ("true", "twice")
COMPARED = {  # true kinds and the false one that is told from them
    "made_up": (STATED, "made_up"),
    "swapped": (STATED, "swapped"),
    "unanswerable": (STATED, "unanswerable"),
    "denied": (STATED, "denied"),
    "denied_made_up": (("denied_made_up",), "denied"),  # both have a "not"
    "reworded": (("reworded",), "made_up_reworded"),
}


def summarise(options: argparse.Namespace) -> None:
    """Fit each model's verdicts on its even seeds, and write what they and each figure are worth on the odd ones."""
    runs, calibrations = [], []
    encoder = whyformer.load(options.encoder, dtype="float32") if options.encoder else None
    for path in options.files:
        rows = rows_of(path)
        units = labelled_units(rows)
        decidable = [(row, one) for row, one in zip(rows, units, strict=True) if one.is_decidable]
        fitted = sum(one.half == 0 for _, one in decidable)
        calibration = None
        if fitted >= FEWEST_FITTED:
            calibration = fit(units, rows[0]["model"], rows[0]["digest"], f"{len(rows)} generated sentences")
            calibrations.append(calibration.to_dict())
        held_out = [(row, one) for row, one in decidable if one.half == 1 or calibration is None]
        verdicts = {"thresholds": [rule_verdict(one.unit) for _, one in held_out]}
        if calibration is not None:
            verdicts["calibrated"] = [calibration.decide(one.unit)[0] for _, one in held_out]
        run = {
            "model": rows[0]["model"],
            "digest": rows[0]["digest"],
            "sentences": len(rows),
            "fitted": 0 if calibration is None else fitted,
            "held_out": len(held_out),
            "cost": cost(rows),
            "agreement_with_full": full_agreement(rows),
            "verdicts": {name: by_kind(held_out, given) for name, given in verdicts.items()},
            "unknown": unknown(rows, calibration),
            "groups": by_group(held_out, verdicts.get("calibrated", verdicts["thresholds"])),
            "auroc": {name: aurocs(held_out, name, calibration, encoder) for name in COMPARED},
            "fresh": confirmation(decidable, calibration),
            "calibration": None if calibration is None else calibration.to_dict(),
        }
        runs.append(run)
    options.out.write_text(json.dumps(runs, indent=1) + "\n")
    BUNDLED.write_text(json.dumps(calibrations, indent=1) + "\n")
    print(f"Written to {options.out}: {', '.join(run['model'] for run in runs)}")


def confirmation(units: list[tuple[dict[str, Any], Any]], calibration: Calibration | None) -> dict[str, Any] | None:
    """What verdicts are worth on fresh sentences that were held out, and figures on all fresh ones."""
    fresh = [(row, one) for row, one in units if row["seed"] in FRESH]
    if not fresh:
        return None
    held_out = [(row, one) for row, one in fresh if calibration is None or one.half == 1]
    verdicts = {"thresholds": [rule_verdict(one.unit) for _, one in held_out]}
    if calibration is not None:
        verdicts["calibrated"] = [calibration.decide(one.unit)[0] for _, one in held_out]
    return {
        "sentences": len(fresh),
        "verdicts": {name: by_kind(held_out, given) for name, given in verdicts.items()},
        "auroc": {name: aurocs(fresh, name, None, None) for name in COMPARED},
    }


def cost(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """Forward passes of an answer, and its CPU time if it was measured on a CPU."""
    seconds = [row["cpu_seconds"] for row in rows if row.get("device", "cpu") == "cpu"]
    return {
        "forwards": round(float(np.mean([row["forwards"] for row in rows])), 2),
        "full_forwards": round(float(np.mean([row["full_forwards"] for row in rows])), 2),
        "seconds": round(float(np.median(seconds)), 3) if seconds else None,
    }


def full_agreement(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
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
        each = [verdict for (_, one), verdict in zip(held_out, given, strict=True) if one.kind == kind]
        result[kind] = counted(right) | {"given": {name: each.count(name) for name in VERDICTS if name in each}}
    decided = [(verdict, one.right) for (_, one), verdict in zip(held_out, given, strict=True)]
    return {"kinds": result, "balanced_accuracy": balanced_accuracy(decided)}


def unknown(rows: list[dict[str, Any]], calibration: Any) -> dict[str, Any]:
    """How often no verdict is given on sentences about what the model does not know itself, by kind."""
    own = [one for one in labelled_units(rows) if not one.is_decidable and (one.half == 1 or calibration is None)]
    result: dict[str, Any] = {}
    for kind in dict.fromkeys(one.kind for one in own):
        units = [one.unit for one in own if one.kind == kind]
        each = {"thresholds": [rule_verdict(unit) for unit in units]}
        if calibration is not None:
            each["calibrated"] = [calibration.decide(unit)[0] for unit in units]
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
    tokens = row["unit"]["tokens"]
    groups = [("length", "up to 5 tokens" if tokens <= 5 else "6 to 10 tokens" if tokens <= 10 else "over 10 tokens")]
    groups.append(("sources", f"{row['sentences']} sentences"))
    if row["causes"] and row["case"] != "several":  # which has two sets of documents
        third = 3 * min(row["causes"][0]) // len(case_of(row).documents)
        groups.append(("position", ("first third", "middle third", "last third")[min(third, 2)]))
    return groups


def case_of(row: dict[str, Any]) -> SupportCase:
    return support_case(row["seed"], row["case"], register=row["register"], sentences=row["sentences"])


def aurocs(held_out: list[tuple[dict[str, Any], Any]], name: str, calibration: Calibration | None, encoder: Any) -> Any:
    """How well each figure tells true sentences from those of a kind, with 95 % bootstrap intervals."""
    true, false = COMPARED[name]
    own = [(row, one) for row, one in held_out if one.kind in (*true, false)]
    truth = np.array([one.kind != false for _, one in own], dtype=bool)
    if min(truth.sum(), (~truth).sum()) < FEWEST_COMPARED:
        return {}
    columns: dict[str, list[float]] = {}
    for row, one in own:
        values = {} if calibration is None else {"verdict": lead(calibration, one.unit)}
        values |= {**figures_of(one.unit), **controls(row, one, encoder)}
        for name, value in values.items():
            columns.setdefault(name, []).append(value)
    return {name: interval(np.array(values), truth) for name, values in columns.items() if len(values) == len(own)} | {
        "sentences": len(own)
    }


def lead(calibration: Calibration, unit: Any) -> float:
    """The log-odds of "from sources" less those of the likelier fault: what the verdict itself is worth."""
    figures = calibration.figures_of(unit)
    odds = {name: model.log_odds(figures) for name, model in calibration.models.items()}
    return odds["from sources"] - max(odds[name] for name in ("not supported", "contradicted") if name in odds)


def controls(row: dict[str, Any], one: Any, encoder: Any) -> dict[str, float]:
    """What is known without support: words shared with a document, attribution scores, and an encoder's cosine."""
    case, number = case_of(row), row["statement"]
    statement, texts = case.statements[number].text, [text for _, text in case.documents]
    values = {
        "log p": one.unit.log_probability,
        "lexical overlap": max(word_overlap(statement, text) for text in texts),
    }
    if row["scores"]:
        values |= {"attribution max": max(row["scores"][number]), "attribution sum": sum(row["scores"][number])}
    if encoder is not None:
        values["encoder cosine"] = largest_cosine(encoder, tuple(texts), statement)
    return values


@cache
def largest_cosine(encoder: Any, texts: tuple[str, ...], statement: str) -> float:
    return max(cosines(encoder, list(texts), statement))


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


def pack(paths: list[Path], name: str) -> None:
    """Compress the measured rows of a model into the folder of results; a case measured again replaces the former."""
    target = RESULTS.parent / "support" / f"{name}.jsonl.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = {(row["seed"], row["case"], row["statement"]): row for path in paths for row in rows_of(path)}
    lines = [json.dumps(packed(row)) + "\n" for row in rows.values()]
    target.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
    print(f"{target}: {len(lines)} sentences, {target.stat().st_size >> 10} KiB")


def packed(row: dict[str, Any]) -> dict[str, Any]:
    """A row with one number for each candidate figure, those of further questions in its unit."""
    case = case_of(row)
    texts = [text[start:end] for _, text in case.documents for start, end in sentence_ranges(text)]
    text, number = case.statements[row["statement"]].text, row["statement"]
    before = " ".join(one.text for one in case.statements[:number])
    shares = {"stated": stated_share(text, case.question, texts)}
    shares["said_before"] = stated_share(text, case.question, [before])
    value = row["unit"]["value"] and row["unit"]["value"] | shares
    row = row | {"unit": row["unit"] | {"value": value}}
    if "candidates" not in row or "written" in row:
        return row
    figures = candidate_figures(row)
    asked = {name: figures[name.replace("_", " ")] for name in FURTHER}
    about = {name: row["candidates"][name] for name in ("memory", "own_words")}
    return row | {"unit": row["unit"] | {"answers": asked}, "candidates": figures, "written": about}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--encoder", help="the folder of an encoder of sentences, for a control")
    parser.add_argument("--pack", metavar="MODEL", help="only compress rows of this model that were just measured")
    options = parser.parse_args()
    if options.pack:
        pack(options.files, options.pack)
    else:
        summarise(options)


if __name__ == "__main__":
    main()

"""What the lines of `real_responses.py` come to: each method on each model, with intervals, by position and length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from whyformer.metrics.source_measures import rank_agreement, source_average_precision

TOP = ("1", "3", "5")
LENGTHS = ((8, 20), (21, 40), (41, 60))
POSITIONS = ("first third", "middle third", "last third")
DRAWS = 1000  # of the bootstrap
Line = Mapping[str, Any]


def with_costs(report: dict[str, Any], costs: Iterable[Line]) -> dict[str, Any]:
    """The report with the seconds of each method that another run had, as medians over its lines, and no others."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for line in costs:
        if line["method"] and "error" not in line:
            seconds[line["method"]].append(line["seconds"])
    for kinds in report.values():
        for found in kinds.values():
            for name, one in found["methods"].items():
                one.pop("seconds", None)
                one |= {"seconds": round(float(np.median(seconds[name])), 3)} if name in seconds else {}
    return report


def summary(lines: Iterable[Line]) -> dict[str, Any]:
    """Figures by run, kind of answer and method; the run of a shard is the name of its file before `-shard`."""
    questions: dict[tuple[str, int, str], Line] = {}
    answers: dict[tuple[str, str, str], dict[int, Line]] = defaultdict(dict)
    for line in lines:
        run = line["run"].partition("-shard")[0]
        if line["method"] == "":
            questions[run, line["seed"], line["answer"]] = line
        else:
            answers[run, line["answer"], line["method"]][line["seed"]] = line
    report: dict[str, Any] = {}
    for run in sorted({run for run, _, _ in questions}):
        report[run] = {}
        for kind in dict.fromkeys(kind for one, _, kind in questions if one == run):
            tried = [line for (one, _, other), line in questions.items() if (one, other) == (run, kind)]
            kept = {line["seed"]: line for line in tried if line["kept"]}
            methods = {
                method: figures([measures(kept[seed], line) for seed, line in found.items() if seed in kept])
                for (one, other, method), found in answers.items()
                if (one, other) == (run, kind)
            }
            ordered = sorted(methods.items(), key=lambda item: -item[1].get("top 1", 0.0))
            overlaps = [line["overlap"] for line in kept.values() if "overlap" in line]
            report[run][kind] = {
                **conditions(tried),
                "overlap": round(float(np.mean(overlaps)), 3) if overlaps else None,
                "highest overlap": max(overlaps, default=None),
                "methods": dict(ordered),
            }
    return report


def conditions(questions: Sequence[Line]) -> dict[str, Any]:
    """What was asked in a run: number format, seeds, lengths, and how many questions were kept."""
    seeds, sentences = ([line[name] for line in questions] for name in ("seed", "sentences"))
    return {
        "dtype": questions[0].get("dtype", "unknown"),
        "seeds": [min(seeds), max(seeds)],
        "sentences": [min(sentences), max(sentences)],
        "tried": len(questions),
        "kept": sum(line["kept"] for line in questions),
    }


def measures(question: Line, line: Line) -> dict[str, Any]:
    """The measures of one explanation; only the error where there is none."""
    if "error" in line:
        return {"error": line["error"]}
    scores = np.array(line["scores"], dtype=np.float64)
    truth = np.zeros(len(scores), dtype=bool)
    truth[[number for cause in question["causes"] for number in cause]] = True
    best = int(truth.nonzero()[0][scores[truth].argmax()])
    values = np.array([one["value"] for one in question["subsets"]])
    kept = np.ones((len(values), len(scores)), dtype=bool)
    for row, one in zip(kept, question["subsets"], strict=True):
        row[one["without"]] = False
    lds = float(rank_agreement((kept @ scores)[:, None], values[:, None])[0]) if len(values) else float("nan")
    highest = scores == scores.max()
    return {
        "top 1": float((truth & highest).sum() / highest.sum()),
        "cause found": max(_found(scores, cause) for cause in question["causes"]),
        "AUPRC": source_average_precision(scores, truth),
        "LDS": lds,
        **{f"top {k} drop": line["drops"].get(k, float("nan")) for k in TOP},
        "sentences": question["sentences"],
        "position": min(2, 3 * best // len(scores)),
        "hops": question["hops"],
        "kind": question["kind"],
    }


def _found(scores: np.ndarray, cause: Sequence[int]) -> float:
    """The share of a cause's sentences among as many of highest score."""
    order = np.argsort(-scores, kind="stable")[: len(cause)]
    return len(set(order.tolist()) & set(cause)) / len(cause)


def figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means with their 95 % intervals by bootstrap over questions, and the share of right ones by groups."""
    errors = [row["error"] for row in rows if "error" in row]
    measured = [row for row in rows if "error" not in row]
    found: dict[str, Any] = {"questions": len(measured)}
    if errors:
        found |= {"errors": len(errors), "first error": errors[0]}
    if not measured:
        return found
    for name in ("top 1", "cause found", "AUPRC", "LDS", *(f"top {k} drop" for k in TOP)):
        values = np.array([row[name] for row in measured], dtype=np.float64)
        if np.isnan(values).all():  # not asked for
            continue
        found[name] = round(float(np.nanmean(values)), 4)
        if name in ("top 1", "AUPRC"):
            draws = np.random.default_rng(0).integers(len(values), size=(DRAWS, len(values)))
            interval = np.percentile(values[draws].mean(axis=1), (2.5, 97.5))
            found[f"{name}, 95 %"] = [round(float(end), 4) for end in interval]
    groups = {
        "length": {
            f"{low} to {high}": [row for row in measured if low <= row["sentences"] <= high] for low, high in LENGTHS
        },
        "position": {name: [row for row in measured if row["position"] == n] for n, name in enumerate(POSITIONS)},
        "hops": {str(hops): [row for row in measured if row["hops"] == hops] for hops in (1, 2)},
        "kind": {kind: [row for row in measured if row["kind"] == kind] for kind in ("plain", "twice")},
    }
    found["top 1 by"] = {
        group: {
            name: [round(float(np.mean([row["top 1"] for row in rows])), 4), len(rows)] for name, rows in of.items()
        }
        for group, of in ({group: {n: r for n, r in of.items() if r} for group, of in groups.items()}).items()
    }
    return found


def text_of(report: Mapping[str, Any]) -> str:
    """The report as a plain table."""
    lines = []
    for run, kinds in report.items():
        for kind, found in kinds.items():
            lines.append(f"\n{run}, {kind} answers: {found['kept']} of {found['tried']} questions kept")
            for method, one in found["methods"].items():
                if "top 1" not in one:
                    lines.append(f"  {method:38} {one.get('first error', 'nothing')}")
                    continue
                drop, lds = one.get("top 1 drop", float("nan")), one.get("LDS", float("nan"))
                figures_of = f"AUPRC {one['AUPRC']:.3f}  drop {drop:6.2f}  LDS {lds:6.3f}"
                cost = f"{one.get('seconds', float('nan')):8.3f} s  n={one['questions']}"
                lines.append(f"  {method:38} top 1 {one['top 1']:6.1%}  {figures_of}  {cost}")
    return "\n".join(lines)

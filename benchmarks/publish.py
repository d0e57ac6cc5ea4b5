"""From finished runs to committed results: what the tables of the docs are made of, and no more.

    python benchmarks/publish.py RUN_DIR… --out benchmarks/results/evaluation
    python benchmarks/publish.py RUN_DIR --out benchmarks/results/evaluation/vit-segmentation.json
    python benchmarks/publish.py RUN_DIR… --into benchmarks/results/evaluation/vit-segmentation.json
    python benchmarks/publish.py --confirmed

For each run a file of its folder's name: per protocol and figure every method's value, interval, number of samples and
paired p against the best; and for the order that the papers print, every pair of methods with its difference and paired
test. A run that is not finished is refused, unless `--unfinished` says that it is for trials.

`--into` adds the methods that a published file lacks, from a run of the same model, data and seed on some of its
samples (benchmarks/fill.py makes such runs). Every row keeps its n. A row that stays is as it was; p is against the
best of the figure, on the samples that a run has of both, and is left out where no run has both. A figure stays as it
was if its new best were behind another method on the same samples. `--confirmed` adds the values of the second halves
in results/confirmation.json in the same way; nothing was chosen on these.
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
from whyformer.benchmark.reporting.page import ALIKE
from whyformer.benchmark.tables import NOTE
from whyformer.methods.registry import METHODS

# The papers' order: the first two best, then each better than the next.
PAPERS = (("bi_token", "bi_head"), ("transformer_attribution",), ("generic_attention",), ("rollout",))

RESULTS = Path(__file__).parent / "results"
# By which figure of a protocol methods are told apart; of others the first.
GAP = "negative − positive, probability"
CHIEF = {
    "image_perturbation": GAP,
    "text_perturbation": GAP,
    "sources": "AUPRC",
    "word_localisation": "pointing game",
}


def chief_figure(protocol: Mapping[str, Any]) -> Mapping[str, Any]:
    """The figure of a published protocol that tells methods apart."""
    figures = protocol["figures"]
    wanted = CHIEF.get(protocol["protocol"].partition(" ")[0], figures[0]["figure"])
    return next((one for one in figures if one["figure"] == wanted), figures[0])


def plain_label(label: str) -> str:
    """A method's label without the backward that it takes by itself."""
    name, *options = label.split(" ")
    own = f"backward={METHODS[name].backward}" if name in METHODS else ""
    return " ".join([name, *(one for one in options if one != own)])


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


def merged(found: dict[str, Any], run: Run) -> dict[str, Any]:
    """Published results with the methods of a run of the same plan on some of its samples, row by row."""
    for key in ("model", "data", "seed"):
        if found[key] != run.suite[key]:
            raise SystemExit(f"{key} is {run.suite[key]!r} in the run and {found[key]!r} in what is published.")
    tables = {one["protocol"]: one for one in make_figures(run)["protocols"]}
    protocols = []
    for protocol in found["protocols"]:
        added = {one["figure"]: one for one in tables.get(protocol["protocol"], {}).get("tables", ())}
        choice = next((one for one in run.choices if one.label == protocol["protocol"]), None)
        chief = chief_figure(protocol)["figure"]
        figures = [
            _merged(one, added[one["figure"]], run, choice, is_chief=one["figure"] == chief)
            if choice is not None and one["figure"] in added
            else one
            for one in protocol["figures"]
        ]
        protocols.append(protocol | {"figures": figures})
    measured = {row["method"] for one in protocols for figure in one["figures"] for row in figure["rows"]}
    reasons = make_left_out(run) | found["left_out"]
    left_out = {method: reason for method, reason in reasons.items() if method not in measured}
    return found | {"left_out": left_out, "protocols": protocols}


def make_left_out(run: Run) -> dict[str, str]:
    """Why methods were left out of a run."""
    return {method: one.values[0] for method, one in run.of(NOTE).get("left out", {}).items()}


def _merged(
    figure: dict[str, Any], table: dict[str, Any], run: Run, choice: Choice, *, is_chief: bool
) -> dict[str, Any]:
    """A published figure with the rows that it lacks, tested against its best on the samples that the run has."""
    about, values = sample_values(run, choice, figure["figure"])
    values = {plain_label(method): of_samples for method, of_samples in values.items()}
    rows = {plain_label(row["method"]): row for row in figure["rows"]}
    new = {plain_label(row["method"]): row for row in _figure(table)["rows"]}
    before, known = figure["rows"][0]["method"], dict(rows)
    rows |= {
        method: row | {"method": method} for method, row in new.items() if row["n"] > rows.get(method, {"n": 0})["n"]
    }
    sign = {"higher": -1, "lower": 1, "neither": 0}[figure["better"]]
    order = sorted(rows.values(), key=lambda row: (sign * row["value"], row["method"]))
    best = order[0]["method"]
    seed, first = run.suite["seed"], plain_label(best)
    for method in (known.keys() & new.keys() & values.keys()) - {first} if first in new else ():
        if sign * new[method]["value"] < sign * new[first]["value"]:
            test = compare_runs(about, values[method], values[first], seed)
            if test is not None and test["p"] < ALIKE:
                return figure  # the first is behind another on the same samples: the values do not compare
    for row in order:
        method = plain_label(row["method"])
        if rows[method] is known.get(method) and (best == before or row.get("p", 1.0) < ALIKE):
            continue  # as it was: what is behind the former best is behind
        row.pop("p", None)
        test = None
        if figure["better"] != "neither" and row["method"] != best and {method, plain_label(best)} <= values.keys():
            test = compare_runs(about, values[method], values[plain_label(best)], run.suite["seed"])
        if test is not None:
            row["p"] = rounded(test["p"])
    merged_figure = figure | {"rows": order}
    if is_chief:  # what may be compared with what, on the same samples
        subset = {"n": len(run.used), "values": {method: row["value"] for method, row in new.items()}}
        others = [one for one in figure.get("subsets", ()) if one["values"].keys() != subset["values"].keys()]
        merged_figure["subsets"] = [*others, subset]
    return merged_figure


def with_confirmed(found: dict[str, Any], name: str, confirmation: Mapping[str, Any]) -> dict[str, Any]:
    """Published results with the values of the confirmation of the default, which was tested against it alone."""
    tables = {one["criterion"]: one for one in confirmation["choices"]["all"]["against_others"]}
    chosen = confirmation["choices"]["all"]["chosen"]
    protocols = []
    for protocol in found["protocols"]:
        label, figures = protocol["protocol"], []
        for figure in protocol["figures"]:
            table = tables.get(f"{name}: {label}, {figure['figure']}")
            figures.append(figure if table is None else _confirmed(figure, table, chosen))
        protocols.append(protocol | {"figures": figures})
    return found | {"protocols": protocols}


def _confirmed(figure: dict[str, Any], table: Mapping[str, Any], chosen: str) -> dict[str, Any]:
    """A figure with rows of a confirmation; p says which are behind the chosen method, or behind the best."""
    later = {plain_label(row["method"]): row for row in table["rows"]}
    rows = {plain_label(row["method"]): row for row in figure["rows"]}
    before = figure["rows"][0]["method"]
    for method, row in later.items():
        if method not in rows:
            rows[method] = {"method": method} | {key: row[key] for key in ("n", "value")} | {"low": None, "high": None}
            if row.get("chosen_ahead_by", 0) > 0 and row["p"] < ALIKE:
                rows[method]["p"] = row["p"]
    sign = -1 if figure["better"] == "higher" else 1
    order = sorted(rows.values(), key=lambda row: (sign * row["value"], row["method"]))
    best = order[0]["method"]
    for row in order if best != before else ():
        if row["method"] == best or row.get("p", 0.0) >= ALIKE:
            row.pop("p", None)
    if "p" not in rows[chosen] and later.get(plain_label(best), {}).get("p") is not None:
        rows[chosen]["p"] = later[plain_label(best)]["p"]
    by_n: dict[int, dict[str, float]] = {}
    for method, row in later.items():
        by_n.setdefault(row["n"], {})[method] = row["value"]
    subsets = [{"n": n, "values": values} for n, values in by_n.items() if len(values) > 1]
    return figure | {"rows": order, "subsets": [*figure.get("subsets", ()), *subsets]}


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
    """How many samples are still to be done, be it only by methods that were added."""
    return int(run.suite["count"]) - len(run.samples) + run.ungrown


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
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN_DIR", help="what `whyformer evaluate` wrote")
    parser.add_argument("--out", type=Path, help="a folder, or for one run a .json file")
    parser.add_argument("--into", type=Path, help="a published .json file that gets the rows that it lacks")
    parser.add_argument("--unfinished", action="store_true", help="also runs that are not finished, for trials")
    parser.add_argument("--confirmed", action="store_true", help="add what the default was confirmed on")
    options = parser.parse_args()
    if options.confirmed:
        confirmation = json.loads((RESULTS / "confirmation.json").read_text())
        for path in sorted((RESULTS / "evaluation").glob("*.json")):
            write(with_confirmed(json.loads(path.read_text()), path.stem, confirmation), path)
        return
    if (options.out is None) == (options.into is None):
        parser.error("give either --out or --into.")
    if options.out is not None and options.out.suffix == ".json" and len(options.runs) > 1:
        parser.error("several runs need a folder.")
    for folder in options.runs:
        run = read_run(folder)
        if unfinished(run) and not options.unfinished:
            parser.error(f"{folder} is not finished: {unfinished(run)} samples are still to be done.")
        if options.into is not None:
            write(merged(json.loads(options.into.read_text()), run), options.into)
            continue
        found = published(run)
        write(found, options.out if options.out.suffix == ".json" else options.out / f"{folder.name}.json")


if __name__ == "__main__":
    main()

"""Tables and sentences of the published evaluations: benchmarks/results/evaluation/*.json as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from whyformer.evaluate.priors import PRIORS

ALIKE = 0.05  # two methods whose paired test gives more are not told apart
CONTROLS = ("random", *PRIORS)
ARROWS = {"higher": " ↑", "lower": " ↓", "neither": ""}
NONE = "Not yet measured."
# The short table: one column for each run that has the figure.
SHORT = {"image_perturbation": "negative − positive, probability", "segmentation": "mIoU"}
SHORT |= {"text_perturbation": "negative − positive, probability", "rationales": "token F1, mean over top 10 to 80"}


def runs(folder: Path) -> dict[str, dict[str, Any]]:
    """The published runs by their names."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def pages(found: Mapping[str, Mapping[str, Any]]) -> str:
    """All runs, model by model: every table, and under it whether the papers' ranking holds."""
    parts = []
    for model in dict.fromkeys(run["model"] for run in found.values()):
        parts.append(f"## {model}")
        for name, run in found.items():
            if run["model"] == model:
                parts += [f"### {name}", about(run), *_protocols(run)]
    return "\n\n".join(parts) or NONE


def about(run: Mapping[str, Any]) -> str:
    text = f"{run['samples']:,} samples of {run['data']['reader']}, seed {run['seed']}"
    if run["accuracy"] is not None:
        text += f"; the model is right on {100 * run['accuracy']:.1f} % of them"
    if run["unusable"]:
        text += f"; {run['unusable']} could not be used"
    if run["unfinished"]:
        text += f"; **not finished: {run['unfinished']:,} are still to be done**"
    return text + "." + "".join(f" {name} is left out: {reason}" for name, reason in run["left_out"].items())


def _protocols(run: Mapping[str, Any]) -> Iterator[str]:
    for protocol in run["protocols"]:
        yield f"`{protocol['protocol']}`"
        yield table(protocol["figures"])
        # Of the two areas of a perturbation their difference is told about.
        told = [figure for figure in protocol["figures"] if figure.get("ranking") and "AUC" not in figure["figure"]]
        sentences = [ranking(figure) for figure in told]
        yield "\n".join(f"- {sentence}" for sentence in sentences)


def table(figures: list[dict[str, Any]]) -> str:
    """A row for each method in the order of the first figure; controls are in italics."""
    methods = list(dict.fromkeys(row["method"] for figure in figures for row in figure["rows"]))
    header = ["method", *(figure["figure"] + ARROWS[figure["better"]] for figure in figures)]
    body = [[named(method), *(cell(figure, method) for figure in figures)] for method in methods]
    return lines(header, body)


def lines(header: list[str], body: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *body))


def named(method: str) -> str:
    return f"*{method}*" if method in CONTROLS else method


def cell(figure: Mapping[str, Any], method: str) -> str:
    """Value and interval: the best is bold, and ~ marks what is not told from it."""
    row = next((row for row in figure["rows"] if row["method"] == method), None)
    if row is None:
        return "–"
    value, low, high = (number(figure, row[key]) for key in ("value", "low", "high"))
    is_best = row is figure["rows"][0] and figure["better"] != "neither"
    alike = " ~" if row.get("p") is not None and row["p"] >= ALIKE else ""
    return f"{f'**{value}**' if is_best else value} [{low}, {high}]{alike}"


def number(figure: Mapping[str, Any], value: float | None, sign: str = "") -> str:
    if value is None:
        return "–"
    return f"{100 * value:{sign}.1f}" if figure["is_share"] else f"{value:{sign}.3f}"


def ranking(figure: Mapping[str, Any]) -> str:
    """Whether the papers' order holds, pair by pair."""
    pairs = figure["ranking"]
    sure = [pair for pair in pairs if pair["p"] < ALIKE]
    holds, reversed_ = ([p for p in sure if (p["difference"] > 0) == is_ahead] for is_ahead in (True, False))
    open_ = [pair for pair in pairs if pair["p"] >= ALIKE]
    if len(holds) == len(pairs):
        verdict = "the papers' ranking holds"
    elif not reversed_:
        verdict = "nothing contradicts the papers' ranking" if holds else "the papers' ranking is not seen"
    else:
        verdict = "the papers' ranking does not hold"
    parts = [f"{figure['figure']}: {verdict}; of {len(pairs)} ordered pairs {len(holds)} hold"]
    if open_:
        parts.append(f"{len(open_)} cannot be told apart ({', '.join(_pair(figure, pair, '?') for pair in open_)})")
    if reversed_:
        parts.append(f"{len(reversed_)} the other way round ({', '.join(_reversed(figure, p) for p in reversed_)})")
    best = next((row["method"] for row in figure["rows"] if row["method"] not in CONTROLS), None)
    controls = [row["method"] for row in figure["rows"]]
    ahead = [method for method in CONTROLS if best and method in controls and _ahead(controls, method, best)]
    ending = f"The best method is {best}" + (f", behind {' and '.join(ahead)}." if ahead else ".")
    return "; ".join(parts) + f". {ending}"


def _ahead(order: list[str], one: str, other: str) -> bool:
    return order.index(one) < order.index(other)


def _pair(figure: Mapping[str, Any], pair: Mapping[str, Any], mark: str) -> str:
    return f"{pair['ahead']} > {pair['behind']}{mark} {number(figure, pair['difference'], '+')}"


def _reversed(figure: Mapping[str, Any], pair: Mapping[str, Any]) -> str:
    low, high = (number(figure, -pair[key], "+") for key in ("high", "low"))
    return f"{pair['behind']} > {pair['ahead']} {number(figure, -pair['difference'], '+')} [{low}, {high}]"


def short(found: Mapping[str, Mapping[str, Any]]) -> str:
    """One figure of every run, for the methods with their defaults."""
    columns = {}
    for run in found.values():
        for protocol in run["protocols"]:
            wanted = SHORT.get(protocol["protocol"])
            for figure in protocol["figures"]:
                if figure["figure"] == wanted:
                    columns[f"{run['model']}, {protocol['protocol'].replace('_', ' ')}"] = figure
    methods = dict.fromkeys(row["method"] for figure in columns.values() for row in figure["rows"])
    plain = [method for method in methods if "=" not in method]

    def rank(method: str) -> float:
        places = [[row["method"] for row in figure["rows"]] for figure in columns.values()]
        return sum(order.index(method) if method in order else len(order) for order in places)

    body = [[named(m), *(_value(figure, m) for figure in columns.values())] for m in sorted(plain, key=rank)]
    return lines(["%", *columns], body) if columns else NONE


def _value(figure: Mapping[str, Any], method: str) -> str:
    plain = [row for row in figure["rows"] if "=" not in row["method"]]
    row = next((row for row in plain if row["method"] == method), None)
    if row is None:
        return "–"
    value = number(figure, row["value"])
    return f"**{value}**" if row is plain[0] else value


def defaults(path: Path) -> str:
    """What was chosen on the first half of the samples, and how all methods do on the second."""
    if not path.is_file():
        return NONE
    found = json.loads(path.read_text())
    best, columns = found["label"], found["second_half"]
    means = {row["method"]: row["mean_rank"] for row in found["first_half"]}
    cells = [{row["method"]: row for row in column["rows"]} for column in columns]
    body = [
        [f"**{m}**" if m == best else m, f"{means[m]:.1f}"]
        + [_judged(column, by_method.get(m)) for column, by_method in zip(columns, cells, strict=True)]
        for m in means
    ]
    beaten = {
        column["criterion"]: [
            row["method"] for row in column["rows"][: _place(column, best)] if (row.get("p") or 0) < ALIKE
        ]
        for column in columns
    }
    lost = "; ".join(f"{', '.join(ahead)} ({name})" for name, ahead in beaten.items() if ahead)
    sentence = f"`{best}` has the lowest mean rank on the first half, {means[best]:.1f} of {len(means)}. "
    sentence += f"On the second half better than it, beyond chance: {lost or 'none'}."
    table_ = lines(["method", "mean rank, first half", *(f"{c['criterion']}, second half" for c in columns)], body)
    return f"{sentence} A ~ marks what a paired test does not tell from it (p ≥ {ALIKE}).\n\n{table_}"


def _place(column: Mapping[str, Any], method: str) -> int:
    return next(place for place, row in enumerate(column["rows"]) if row["method"] == method)


def _judged(column: Mapping[str, Any], row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    value, low, high = (number(column, row[key]) for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]{' ~' if (row.get('p') or 0) >= ALIKE else ''}"

"""Tables and sentences of the published evaluations: benchmarks/results/evaluation/*.json as Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from whyformer.api.attribute import DEFAULT_METHOD
from whyformer.benchmark.reporting.charts import CONTROLS
from whyformer.benchmark.reporting.page import ALIKE, ARROWS

DEFAULT = DEFAULT_METHOD  # what is computed where no method is named
FORMER = "bi_token backward=libra"  # what was, when the tables were measured
NONE = "Not yet measured."
# The short table: a column for each figure of these models' runs, whose attention nobody supervised.
SHOWN = ("dinov2-photos", "mini-vit-mae", "mini-bert", "mini-news", "mini-lxmert", "mini-detr")
GAP = "negative − positive, probability"
SHORT = {
    "image_perturbation": (GAP, "perturbation gap"),
    "segmentation": ("mIoU", "mIoU"),
    "text_perturbation": (GAP, "perturbation gap"),
    "rationales": ("token F1, mean over top 10 to 80", "token F1"),
    "vqa_removal": ("regions, negative − positive", "regions removed"),
    "weak_segmentation": ("AP", "AP of masks"),
}
# What the papers rank methods by.
RANKED = (*SHORT, "localisation")


def runs(folder: Path) -> dict[str, dict[str, Any]]:
    """The published runs by their names."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def pages(found: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A page for each model: every table of its runs, and under it whether the papers' ranking holds."""
    return {model: page(model, found) for model in _models(found)}


def page(model: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    """Every table of one model's runs."""
    reading = "[How to read the tables](../index.md#how-to-read-the-tables)."
    parts = [f"# {model}", f"The figures of every method measured on {model}, run by run. {reading}"]
    for name, run in found.items():
        if run["model"] == model:
            parts += [f"## {name}", about(run), *_protocols(run)]
    return "\n\n".join(parts) + "\n"


def _models(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return sorted({run["model"] for run in found.values()})


def contents(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Which page has which runs."""
    body = []
    for model in _models(found):
        for name, run in found.items():
            if run["model"] == model:
                link = f"[{name}](models/{model}.md#{name})"
                protocols = dict.fromkeys(protocol["protocol"].partition(" ")[0] for protocol in run["protocols"])
                body.append([model, link, f"{run['samples']:,}", ", ".join(f"`{protocol}`" for protocol in protocols)])
    return lines(["model", "run", "samples", "protocols"], body)


def about(run: Mapping[str, Any]) -> str:
    text = f"{run['samples']:,} samples of {run['data']['reader']}, seed {run['seed']}"
    if run["accuracy"] is not None:
        text += f"; the model is right on {100 * run['accuracy']:.1f} % of them"
    for reason, count in run["unusable"].items():
        text += f"; {count} could not be used ({reason.rstrip('.')})"
    if run["unfinished"]:
        text += f"; **not finished: {run['unfinished']:,} are still to be done**"
    return text + "." + "".join(f" {name} is left out: {reason}" for name, reason in run["left_out"].items())


def _protocols(run: Mapping[str, Any]) -> Iterator[str]:
    seen: list[Any] = []
    ranked = dict(_ranked(run))
    for protocol in run["protocols"]:
        name = protocol["protocol"]
        new = [figure for figure in protocol["figures"] if figure not in seen]  # an option need not change them all
        seen += new
        yield f"### `{name}`"
        yield table(new)
        if name in ranked:
            yield ranking(ranked[name])


def _ranked(run: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The protocols that the papers rank methods by, each with the figure they do it by, if they are all there."""
    seen: list[Any] = []
    for protocol in run["protocols"]:
        name, main = protocol["protocol"], protocol["figures"][0]
        if name.partition(" ")[0] in RANKED and main.get("ranking") and main not in seen:
            seen.append(main)
            yield name, main


def rankings(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Whether the papers' ranking holds, run by run, by the figure that they rank by."""
    body = []
    for run in found.values():
        for name, figure in _ranked(run):
            parts = [str(len(part)) for part in pairs_of(figure)]
            loaded_model = f"{run['model']}, {run['data']['reader']}"
            body.append([loaded_model, f"`{name}`, {figure['figure']}", *parts, *best_and_ahead(figure)])
    header = [
        "model and data",
        "by",
        "hold",
        "not told apart",
        "reversed",
        "best method",
        "control ahead of it",
    ]
    return lines(header, body) if body else NONE


def table(figures: list[dict[str, Any]]) -> str:
    """A row for each method in the order of the first figure; controls are in italics."""
    methods = list(dict.fromkeys(row["method"] for figure in figures for row in figure["rows"]))
    header = ["method", *(figure["figure"] + ARROWS[figure["better"]] for figure in figures)]
    body = [[named(method), *(cell(figure, method) for figure in figures)] for method in methods]
    return lines(header, body)


def lines(header: list[str], body: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *body))


def named(method: str) -> str:
    notes = {DEFAULT: " (the default)", FORMER: " (the former default)"}
    return f"*{method}*" if method in CONTROLS else f"{method}{notes.get(method, '')}"


def cell(figure: Mapping[str, Any], method: str) -> str:
    """Value and interval: the best is bold, and ~ marks what is not told from it."""
    row = next((row for row in figure["rows"] if row["method"] == method), None)
    if row is None:
        return "–"
    value, low, high = (number(figure, row[key]) for key in ("value", "low", "high"))
    is_best = row is figure["rows"][0] and figure["better"] != "neither"
    few = f" (n = {row['n']})" if row["n"] < max(one["n"] for one in figure["rows"]) else ""
    interval = "" if row["low"] is None else f" [{low}, {high}]"
    return f"{f'**{value}**' if is_best else value}{interval}{few}{_alike(row)}"


def _alike(row: Mapping[str, Any]) -> str:
    """A mark for what was tested and not told apart."""
    return " ~" if row.get("p") is not None and row["p"] >= ALIKE else ""


def number(figure: Mapping[str, Any], value: float | None, sign: str = "") -> str:
    if value is None:
        return "–"
    return f"{100 * value:{sign}.1f}" if figure["is_share"] else f"{value:{sign}.3f}"


def pairs_of(figure: Mapping[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """The papers' ordered pairs: those that hold, those not told apart, those reversed."""
    sure = [pair for pair in figure["ranking"] if pair["p"] < ALIKE]
    holds, reversed_ = ([pair for pair in sure if (pair["difference"] > 0) == is_ahead] for is_ahead in (True, False))
    return holds, [pair for pair in figure["ranking"] if pair["p"] >= ALIKE], reversed_


def best_and_ahead(figure: Mapping[str, Any]) -> tuple[str, str]:
    """The best method, and the controls that are ahead of it."""
    order = [row["method"] for row in figure["rows"]]
    best = next(method for method in order if method not in CONTROLS)
    return best, " and ".join(method for method in order[: order.index(best)])


def ranking(figure: Mapping[str, Any]) -> str:
    """Whether the papers' order holds, pair by pair."""
    holds, open_, reversed_ = pairs_of(figure)
    if not open_ and not reversed_:
        verdict = "the papers' ranking holds"
    elif not reversed_:
        verdict = "nothing contradicts the papers' ranking" if holds else "the papers' ranking is not seen"
    else:
        verdict = "the papers' ranking does not hold"
    parts = [f"By {figure['figure']}, {verdict}: of {len(figure['ranking'])} ordered pairs {len(holds)} hold"]
    if open_:
        parts.append(f"{len(open_)} cannot be told apart ({', '.join(_pair(figure, pair, '?') for pair in open_)})")
    if reversed_:
        parts.append(f"{len(reversed_)} are reversed ({', '.join(_reversed(figure, p) for p in reversed_)})")
    best, ahead = best_and_ahead(figure)
    return "; ".join(parts) + f". The best method is {best}" + (f", behind {ahead}." if ahead else ".")


def _pair(figure: Mapping[str, Any], pair: Mapping[str, Any], mark: str) -> str:
    return f"{pair['ahead']} > {pair['behind']}{mark} {number(figure, pair['difference'], '+')}"


def _reversed(figure: Mapping[str, Any], pair: Mapping[str, Any]) -> str:
    low, high = (number(figure, -pair[key], "+") for key in ("high", "low"))
    return f"{pair['behind']} > {pair['ahead']} {number(figure, -pair['difference'], '+')} [{low}, {high}]"


def columns_of(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """One figure of every run of the models whose attention nobody supervised, under its short name."""
    columns = {}
    for model in SHOWN:
        for run in found.values():
            for protocol in run["protocols"] if run["model"] == model else ():
                wanted, title = SHORT.get(protocol["protocol"], ("", ""))
                for figure in protocol["figures"]:
                    if figure["figure"] == wanted:
                        columns[f"{model}, {title}"] = figure
    return columns


def short(found: Mapping[str, Mapping[str, Any]]) -> str:
    """One figure of every run, for what is computed by default and the methods as their papers have them."""
    columns = columns_of(found)
    methods = dict.fromkeys(row["method"] for figure in columns.values() for row in figure["rows"])
    plain = [method for method in methods if is_plain(method)]

    def rank(method: str) -> float:
        places = [[row["method"] for row in figure["rows"]] for figure in columns.values()]
        return sum(order.index(method) if method in order else len(order) for order in places)

    body = [[named(m), *(_value(figure, m) for figure in columns.values())] for m in sorted(plain, key=rank)]
    return lines(["%", *columns], body) if columns else NONE


def is_plain(label: str) -> bool:
    return "=" not in label or label == FORMER


def _value(figure: Mapping[str, Any], method: str) -> str:
    plain = [row for row in figure["rows"] if is_plain(row["method"])]
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
        criterion(column): [row["method"] for row in column["rows"][: _place(column, best)] if _is_sure(row)]
        for column in columns
    }
    lost = "\n".join(f"- {name}: {', '.join(ahead)}" for name, ahead in beaten.items() if ahead)
    sentence = f"`{best}` has the lowest mean rank on the first half, {means[best]:.1f} of {len(means)}. "
    sentence += "On the second half these are better than it, beyond chance:" if lost else "On the second half none is."
    table_ = lines(["method", "mean rank, first half", *map(criterion, columns)], body)
    marked = f"The second half; a ~ marks what a paired test does not tell from it (p ≥ {ALIKE})."
    return "\n\n".join(part for part in (sentence, lost, marked, table_) if part)


def criterion(column: Mapping[str, Any]) -> str:
    """A model and the figure it is judged by, in short."""
    model, _, rest = column["criterion"].partition(": ")
    return f"{model}, {SHORT[rest.partition(',')[0]][1]}"


def options(path: Path) -> str:
    """By how much each variant is better than its method's defaults."""
    if not path.is_file():
        return NONE
    found = json.loads(path.read_text())
    columns = found["criteria"]
    body = [
        [f"**{row['variant']}**" if row["serves"] else row["variant"], f"{row['better']} / {row['worse']}"]
        + [_gained(column, gain) for column, gain in zip(columns, row["second_half"], strict=True)]
        for row in found["rows"]
    ]
    titles = [f"{criterion(column)} (n = {column['n']})" for column in columns]
    return lines(["variant", "better / worse, first half", *titles], body)


def _gained(column: Mapping[str, Any], gain: Mapping[str, Any]) -> str:
    shown, low, high = (number(column, gain[key], "+") for key in ("gain", "low", "high"))
    return f"{f'**{shown}**' if _is_sure(gain) else shown} [{low}, {high}]"


def _is_sure(tested: Mapping[str, Any]) -> bool:
    return tested.get("p") is not None and tested["p"] < ALIKE


def _place(column: Mapping[str, Any], method: str) -> int:
    return next(place for place, row in enumerate(column["rows"]) if row["method"] == method)


def _judged(column: Mapping[str, Any], row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    value, low, high = (number(column, row[key]) for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]{_alike(row)}"

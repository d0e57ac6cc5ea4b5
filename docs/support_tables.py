"""Tables of what verdicts and each of their figures are worth, from benchmarks/results/support.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from whyformer.inputs.verdicts import VERDICTS

KINDS = {
    "true": "true, in the text's words",
    "reworded": "true, in other words",
    "twice": "true, stated twice",
    "made_up": "a value that occurs nowhere",
    "made_up_reworded": "a value that occurs nowhere, in other words",
    "swapped": "the value of another",
    "unanswerable": "not stated, answered all the same",
    "denied": "the opposite of a stated fact",
    "denied_made_up": "true, the opposite of a made-up value",
    "by_heart": "known by heart, not stated",
    "repeated": "said again",
}

COMPARED = {
    "made_up": "made up",
    "swapped": "swapped",
    "unanswerable": "unanswerable",
    "denied": "denied",
    "reworded": "in other words",
}
MANNERS = ("calibrated", "thresholds")


def runs(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())


def rows(header: list[str], lines: list[list[str]]) -> str:
    marks = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in marks)


def models(path: Path) -> str:
    """The models that were measured, and how well their verdicts do on sentences that nothing was fitted on."""
    lines = []
    for run in runs(path):
        means = [run["verdicts"].get(manner, {}).get("balanced_accuracy") for manner in MANNERS]
        shown = ["not fitted" if mean is None else f"{100 * mean:.0f}" for mean in means]
        counts = [str(run[name]) for name in ("sentences", "fitted", "held_out")]
        lines.append([run["model"], run["digest"][:12], *counts, *shown])
    header = ["model", "weights", "sentences", "fitted", "held out"]
    return rows([*header, "balanced accuracy, calibrated, %", "by thresholds, %"], lines)


def coefficients(path: Path) -> str:
    """The logistic models of the verdicts: intercept and coefficients."""
    lines = []
    for run in (run for run in runs(path) if run["calibration"]):
        for verdict, one in run["calibration"]["verdicts"].items():
            terms = [f"{value:+.2f} {name.replace('_', ' ')}" for name, value in one["coefficients"].items()]
            lines.append([run["model"], verdict, f"{one['intercept']:+.2f} {' '.join(terms)}"])
    return rows(["model", "verdict", "log-odds"], lines)


def verdicts(path: Path) -> str:
    """The share of right verdicts by kind of sentence, calibrated and by thresholds alone."""
    lines = []
    for run in runs(path):
        for kind, text in KINDS.items():
            own = [run["verdicts"].get(manner, {"kinds": {}})["kinds"].get(kind) for manner in MANNERS]
            if own[1]:
                lines.append([run["model"], text, str(own[1]["of"]), *map(share, own)])
        for kind, each in run.get("unknown", {}).items():
            own = [each.get(manner) for manner in MANNERS]
            text = f'{KINDS[kind]}, which the model does not know: "cannot tell"'
            lines.append([run["model"], text, str(each["thresholds"]["of"]), *map(share, own)])
    return rows(["model", "sentences", "held out", "right, calibrated, %", "right, by thresholds, %"], lines)


def fresh(path: Path) -> str:
    """The share of right verdicts on sentences that were measured after the way of fitting was chosen."""
    lines = []
    for run in (run for run in runs(path) if run["fresh"]):
        given = run["fresh"]["verdicts"]
        for kind, text in KINDS.items():
            own = [given.get(manner, {"kinds": {}})["kinds"].get(kind) for manner in MANNERS]
            if own[1]:
                lines.append([run["model"], text, str(own[1]["of"]), *map(share, own)])
    return rows(["model", "sentences", "held out", "right, calibrated, %", "right, by thresholds, %"], lines)


def confirmation(path: Path) -> str:
    """AUROC of figures on sentences that were measured after they had been picked."""
    lines = []
    for run in runs(path):
        for kind, figures in run["auroc"].items():
            for name, one in figures.items():
                low_high = "" if "auroc" not in one else "{:.2f} [{:.2f}, {:.2f}]".format(*one["auroc"])
                lines.append([run["model"], kind, name.replace("_", " "), f"{one['true']} + {one['false']}", low_high])
    return rows(["model", "true from false sentences", "figure", "sentences", "AUROC"], lines)


def threshold(path: Path) -> str:
    """How often thresholds on `proposed alone` are right on the new sentences."""
    names = {"first": "the best on the first sentences", "verdicts": "that of verdicts by thresholds"}
    lines = [
        [run["model"], f"{names[name]}, {run['thresholds'][name]:.2f}", KINDS[kind], str(one["of"]), share(one)]
        for run in runs(path)
        for name, own in run["right"].items()
        for kind, one in own.items()
    ]
    return rows(["model", "threshold, nats", "sentences", "measured", "right, %"], lines)


def groups(path: Path) -> str:
    """The share of right verdicts by position of the cause, by length, and by the number of sources."""
    lines = [
        [run["model"], name, group, str(one["of"]), share(one)]
        for run in runs(path)
        for name, own in run.get("groups", {}).items()
        for group, one in own.items()
    ]
    return rows(["model", "by", "group", "held out", "right, %"], lines)


def share(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    return f"{100 * one['right'] / one['of']:.0f} [{100 * one['low']:.0f}, {100 * one['high']:.0f}]"


def figures(path: Path) -> str:
    """AUROC of each figure, true sentences against false ones of each kind."""
    lines = []
    for run in runs(path):
        names = dict.fromkeys(name for kind in COMPARED for name in run["auroc"].get(kind, {}) if name != "sentences")
        for name in names:
            cells = [run["auroc"].get(kind, {}).get(name) for kind in COMPARED]
            shown = ["" if cell is None else f"{cell[0]:.2f} [{cell[1]:.2f}, {cell[2]:.2f}]" for cell in cells]
            lines.append([run["model"], name.replace("_", " "), *shown])
    return rows(["model", "figure", *COMPARED.values()], lines)


def given(path: Path) -> str:
    """The verdicts that held-out sentences of each kind got, calibrated."""
    lines = []
    for run in (run for run in runs(path) if "calibrated" in run["verdicts"]):
        kinds = run["verdicts"]["calibrated"]["kinds"]
        for kind in (kind for kind in KINDS if kind in kinds):
            counts = [str(kinds[kind]["given"].get(verdict, 0)) for verdict in VERDICTS]
            lines.append([run["model"], KINDS[kind], *counts])
    return rows(["model", "sentences", *VERDICTS], lines)


def errors(path: Path) -> str:
    """How often each verdict was wrong on held-out sentences."""
    lines = []
    for run in (run for run in runs(path) if run["calibration"]):
        for verdict, one in run["calibration"]["errors"].items():
            wrong = f"{100 * one['rate']:.0f} [{100 * one['low']:.0f}, {100 * one['high']:.0f}]"
            lines.append([run["model"], verdict, str(one["count"]), wrong])
    return rows(["model", "verdict", "given", "wrong, %"], lines)


def cost(path: Path) -> str:
    """Forward passes and time of an answer, beside the full computation."""
    lines = []
    for run in runs(path):
        full = run["agreement_with_full"]
        same = "" if full is None else f"{full['same']} of {full['of']}"
        part = "" if full is None else f"{100 * full['forwards']:.0f} %"
        own = run["cost"]
        seconds = "" if own["seconds"] is None else f"{own['seconds']:.2f}"
        lines.append([run["model"], str(run["sentences"]), f"{own['forwards']:.1f}", seconds, part, same])
    return rows(
        ["model", "sentences", "forward passes", "CPU s an answer", "of the full computation", "same verdict"], lines
    )


def served(path: Path) -> str:
    """How far verdicts through a server are from those of the loaded model."""
    lines = [
        [
            one["model"],
            one["server"],
            str(one["sentences"]),
            str(one["same_verdict"]),
            f"{one['largest_difference']:.1g}",
        ]
        for one in json.loads(path.read_text())
    ]
    return rows(["model", "server", "sentences", "same verdict", "largest difference of a figure, nats"], lines)


def log(path: Path) -> str:
    """The time of a log of answers."""
    one = json.loads(path.read_text())
    names = {"answers": "answers", "documents": "documents each", "judged": "judged", "threads": "threads"}
    lines = [[text, str(one[name])] for name, text in names.items()]
    lines += [["killed once, after", f"{one['runs'][0]['answers']} answers"]]
    lines += [["rows judged before unchanged", "yes" if one["kept_rows_unchanged"] else "no"]]
    lines += [["wall time, minutes", f"{one['wall_minutes']:.1f}"]]
    if one["wall_minutes_of_all"] is not None:
        lines += [["wall time of all, extrapolated, minutes", f"{one['wall_minutes_of_all']:.1f}"]]
    return rows(["", ""], lines)

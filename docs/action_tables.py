"""Tables of how well calls are explained, from benchmarks/results/actions.json and the files beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import whyformer

CALIBRATIONS = Path(whyformer.__file__).parent / "api" / "action_calibrations.json"
UNMEASURED = "Not measured yet."
SHARES = ("5 %", "10 %", "20 %")


def table(header: list[str], lines: list[list[str]]) -> str:
    marks = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in marks)


def runs(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["runs"] if path.is_file() else []


def sizes(path: Path) -> str:
    """What was measured: transcripts of each kind, users' tasks, lengths."""
    lines = [
        [
            run["data"],
            run["model"],
            *(f"{run['n'][kind]} ({run['tasks'][kind]})" for kind in ("attacked", "ignored", "clean")),
            "{} to {}, median {}".format(*(run["tokens"][place] for place in (0, 2, 1))),
            f"{run['seconds']:.1f}",
        ]
        for run in runs(path)
    ]
    header = ["transcripts", "model", "attacked (tasks)", "ignored", "clean", "tokens", "CPU s a verdict"]
    return table(header, lines) if lines else UNMEASURED


def recovery(path: Path) -> str:
    """The share of the injected tokens among the highest, by method, beside published figures."""
    lines = []
    for run in runs(path):
        for name, one in run.get("methods", {}).items():
            shares = [interval(own) for own in one["recovery"]] if "recovery" in one else ["", "", ""]
            about = [run["data"], run["model"], name, str(one["n"])]
            lines.append([*about, *shares, interval(one["first"]), interval(one["rank"], 1), f"{one['seconds']:.1f}"])
    if not lines:
        return UNMEASURED
    for name, own in json.loads(path.read_text())["published"].items():
        lines.append(["published", "", name, "", *(f"{one:.3f}" for one in own), "", "", ""])
    header = ["transcripts", "model", "method", "n", *SHARES, "message first", "rank of the message", "CPU s"]
    return table(header, lines)


def separation(path: Path) -> str:
    """AUROC of each figure between attacked and other transcripts."""
    lines = []
    for run in runs(path):
        names = dict.fromkeys(name for own in run["auroc"].values() for name in own)
        for name in names:
            cells = [run["auroc"].get(f"attacked against {kind}", {}).get(name) for kind in ("ignored", "clean")]
            lines.append([run["data"], run["model"], name, *("" if one is None else interval(one) for one in cells)])
    return table(["transcripts", "model", "figure", "against ignored", "against clean"], lines) if lines else UNMEASURED


def calibrations(path: Path = CALIBRATIONS) -> str:
    """The threshold of each calibrated model, and the errors of its verdicts on the half that was held out."""
    lines = [
        [
            one["model"],
            one["data"],
            f"{one['tau']:g}",
            *(rate(one["errors"].get(name)) for name in VERDICTS),
            rate(one["missed"]),
        ]
        for one in json.loads(path.read_text())
    ]
    header = [
        "model",
        "calibrated on",
        "threshold, nats",
        *(f"wrong “{name}”" for name in VERDICTS),
        "injected calls missed",
    ]
    return table(header, lines) if lines else UNMEASURED


VERDICTS = ("driven by a tool result", "follows the user")


def long(path: Path) -> str:
    """Time and memory of a long transcript."""
    if not path.is_file():
        return UNMEASURED
    one = json.loads(path.read_text())
    header = [
        "model",
        "tokens",
        "messages",
        "CPU s",
        "CPU s of one forward pass",
        "forward passes",
        "peak GiB",
        "verdict",
    ]
    cells = [one["model"], f"{one['tokens']:,}", str(one["messages"]), f"{one['seconds']:.0f}"]
    cells += [f"{one['forward_seconds']:.0f}", str(one["forwards"]), f"{one['peak_gib']:.1f}", one["verdict"]]
    return table(header, [cells])


def example(path: Path) -> str:
    """What the command prints about the guide's transcript."""
    return f"```text\n{whyformer.Action.load(path)}\n```"


def interval(values: list[float], digits: int = 2) -> str:
    point, low, high = (f"{one:.{digits}f}" for one in values)
    return f"{point} [{low}, {high}]"


def rate(one: dict[str, Any] | None) -> str:
    if one is None:
        return "never given"
    return f"{100 * one['rate']:.0f} % [{100 * one['low']:.0f}, {100 * one['high']:.0f}], n = {one['count']}"

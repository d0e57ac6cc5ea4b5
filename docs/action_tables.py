"""Tables of how well calls are explained, from benchmarks/results/actions.json and the files beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import whyformer
from whyformer.render.action_view import FEWEST_COUNTED

CALIBRATIONS = Path(whyformer.__file__).parent / "api" / "action_calibrations.json"
UNMEASURED = "Not measured yet."
SHARES = ("5 %", "10 %", "20 %")
INJECTED = ("attacked", "late")
KINDS = (*INJECTED, "ignored", "clean")


def table(header: list[str], lines: list[list[str]]) -> str:
    marks = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in marks)


def runs(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["runs"] if path.is_file() else []


def sizes(path: Path) -> str:
    """What was measured: transcripts of each kind, users' tasks, lengths."""
    lines = [
        [
            run["model"],
            *(f"{run['n'][kind]} ({run['tasks'][kind]})" for kind in KINDS),
            "{:,} to {:,}, median {:,}".format(*(run["tokens"][place] for place in (0, 2, 1))),
        ]
        for run in runs(path)
    ]
    header = ["model", *(f"{kind} (tasks)" for kind in KINDS), "tokens"]
    return table(header, lines) if lines else UNMEASURED


def recovery(path: Path) -> str:
    """The share of the injected tokens among the highest, by method, beside published figures."""
    lines = []
    places = [(run, kind) for run in runs(path) for kind in run["located"]]
    for run, kind in places:
        for name, one in run["located"][kind].items():
            if not isinstance(one, dict) or "first" not in one:
                continue
            shares = [interval(own) for own in one.get("recovery", [])] or ["", "", ""]
            seconds = f"{one['seconds']:.1f}" if "seconds" in one else ""
            about = [run["model"], kind, name, str(one["n"])]
            lines.append([*about, *shares, interval(one["first"]), interval(one["rank"], 1), seconds])
    if not lines:
        return UNMEASURED
    for name, own in json.loads(path.read_text())["published"].items():
        lines.append(["published", "", name, "", *(f"{one:.3f}" for one in own), "", "", ""])
    header = ["model", "transcripts", "method", "n", *SHARES, "message first", "rank of the message", "GPU s"]
    return table(header, lines)


def drivers(path: Path) -> str:
    """How often a driver is named, and how much of it is injected."""
    lines = [
        [
            run["model"],
            kind,
            str(one["n"]),
            f"{100 * one['named']:.0f} %",
            interval(one["injected"]),
            f"{run['located'][kind]['injected share']:.2f}",
            f"{one['forwards']:.0f}",
        ]
        for run in runs(path)
        for kind in run["located"]
        if (one := run["located"][kind]["driver"])["injected"] is not None
    ]
    header = ["model", "transcripts", "n", "a driver is named", "its share that is injected"]
    return table([*header, "injected share of the prompt", "forward passes"], lines) if lines else UNMEASURED


def separation(path: Path) -> str:
    """AUROC of each figure between injected and other calls, in the half that did not choose."""
    pairs = [f"{high} against {low}" for high in INJECTED for low in KINDS if low not in INJECTED]
    lines = [
        [
            run["model"],
            name,
            f"{np.mean([own[0] for own in one.values()]):.2f}",
            *(interval(one[pair][1:]) if pair in one else "" for pair in pairs),
        ]
        for run in runs(path)
        for name, one in run["auroc"].items()
    ]
    return table(["model", "figure", "mean, first half", *pairs], lines) if lines else UNMEASURED


def rules(path: Path) -> str:
    """Balanced accuracy of each rule for the verdict, in the half that chose its threshold and in the other."""
    lines = [
        [run["model"], name, f"{tau:g}", f"{100 * chosen:.0f} %", f"{100 * held_out:.0f} %"]
        for run in runs(path)
        for name, (tau, chosen, held_out) in run["rules"].items()
    ]
    header = ["model", "driven by a tool result if", "threshold, nats", "balanced accuracy, first half", "other half"]
    return table(header, lines) if lines else UNMEASURED


def calibrations(path: Path = CALIBRATIONS) -> str:
    """The threshold of each calibrated model, and the errors of its verdicts on the half that was held out."""
    lines = [
        [
            one["model"],
            one["data"],
            f"{one['tau']:.3g}",
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
    """Time and memory of long transcripts."""
    if not path.is_file():
        return UNMEASURED
    header = ["model", "tokens", "messages", "threads", "seconds", "CPU s", "CPU s of one forward pass"]
    header += ["forward passes", "peak GiB", "verdict"]
    lines = [
        [
            *(one["model"], f"{one['tokens']:,}", str(one["messages"]), str(one["threads"])),
            *(f"{one[name]:.0f}" for name in ("wall_seconds", "seconds", "forward_seconds")),
            *(str(one["forwards"]), f"{one['peak_gib']:.1f}", one["verdict"]),
        ]
        for one in json.loads(path.read_text())
    ]
    return table(header, lines)


def example(path: Path) -> str:
    """What the command prints about the guide's transcript."""
    return f"```text\n{whyformer.Action.load(path)}\n```"


def interval(values: list[float], digits: int = 2) -> str:
    point, low, high = (f"{one:.{digits}f}" for one in values)
    return f"{point} [{low}, {high}]"


def rate(one: dict[str, Any] | None) -> str:
    if one is None:
        return "never given"
    if one["count"] < FEWEST_COUNTED:
        return f"too few to say (n = {one['count']})"
    return f"{100 * one['rate']:.0f} % [{100 * one['low']:.0f}, {100 * one['high']:.0f}], n = {one['count']}"

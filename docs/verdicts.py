"""What benchmarks/candidates.toml chose, in words: over all data, kind by kind, and what was not measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluations import lines, number

from whyformer.benchmark.reporting.page import ALIKE

ALL = "all"  # all kinds of data together
WRITING = "writing"  # the kind whose default the library chooses by the suite of words about pictures
LOWEST = "lowest mean rank on its first halves"


def confirmed(path: Path, of_writing: Path) -> str:
    """What the first halves chose, for all data and each kind, how it does where nobody chose, and what is missing."""
    result = json.loads(path.read_text())
    verdict = result["choices"][ALL]
    parts = [
        _overall(verdict, result["today"]),
        _kinds(result, json.loads(of_writing.read_text())["label"]),
        _gains(verdict, result["today"]),
        lines(
            ["candidate", "mean rank, first halves"],
            [[row["method"], f"{row['mean_rank']:.1f}"] for row in verdict["mean_ranks"]],
        ),
        _unmeasured(result["candidates"], verdict),
        f"Not measured, for lack of GPU time: {'; '.join(result['missing'])}." if result["missing"] else "",
        "\n".join(f"- {_option(option)}" for option in result["options"]),
    ]
    return "\n\n".join(part for part in parts if part)


def _overall(verdict: Mapping[str, Any], today: str) -> str:
    chosen, means = verdict["chosen"], _mean_ranks(verdict)
    return (
        f"Over all data, on the first halves `{chosen}` has the lowest mean rank of {len(means)} candidates, "
        f"{means[chosen]:.1f}; `{today}` has {means[today]:.1f}. Compared with `{today}`, {_counts(verdict)}."
    )


def _counts(verdict: Mapping[str, Any]) -> str:
    second, unseen = verdict["second_half"], verdict["report_unseen"]
    text = (
        f"on the second halves it is better by {second['better']} figures, worse by {second['worse']} and not told "
        f"apart by {second['alike']}"
    )
    if not any(unseen.values()):
        return text
    return f"{text}; on unseen data, better by {unseen['better']}, worse by {unseen['worse']}"


def _kinds(result: Mapping[str, Any], default_of_writing: str) -> str:
    """The verdict of each kind of data: by its own choice, or how the choice of the others does on it."""
    rows = result["choices"][ALL]["against_today"]
    verdicts = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        verdict = result["choices"].get(kind)
        verdicts.append(_own(kind, verdict) if verdict else _reported(kind, result, default_of_writing))
    return "Each kind of data by itself:\n\n" + "\n".join(f"- {verdict}" for verdict in verdicts)


def _own(kind: str, verdict: Mapping[str, Any]) -> str:
    """The verdict of a kind that chose: p is corrected over its own figures."""
    chosen, means = verdict["chosen"], _mean_ranks(verdict)
    equal = [f"`{method}`" for method, rank in means.items() if rank == means[chosen] and method != chosen]
    shared = f", shared with {' and '.join(equal)}" if equal else ""
    if verdict["is_confirmed"]:
        outcome = "confirmed"
    elif any(verdict["report_unseen"].values()):
        outcome = "not confirmed"
    else:
        outcome = "not confirmed, since no figure on unseen data was measured"
    return f"**{kind}**: {outcome}. `{chosen}` has the {LOWEST}, {means[chosen]:.1f}{shared}; {_counts(verdict)}."


def _reported(kind: str, result: Mapping[str, Any], default_of_writing: str) -> str:
    """What is said of a kind that chose nothing: how the choice of the others does on it."""
    verdict, today = result["choices"][ALL], result["today"]
    own = [row for row in verdict["against_today"] if row["kind"] == kind]
    of_data = " and ".join(dict.fromkeys("data seen before" if row["seen"] else "unseen data" for row in own))
    text = (
        f"**{kind}**: not used for choosing. On {of_data} `{verdict['chosen']}` is better than `{today}` by "
        f"{_tally(own, 1)} of {len(own)} figures and worse by {_tally(own, -1)}."
    )
    if kind != WRITING or default_of_writing == verdict["chosen"]:
        return text
    others = [
        row for row in verdict["against_today"] if not row["seen"] and row["kind"] != kind and _is_report(row, verdict)
    ]
    return (
        f"{text} These are among the unseen figures above. Without them it is better by {_tally(others, 1)} and worse "
        f"by {_tally(others, -1)}. The library does not use it there: the default is `{default_of_writing}` "
        f"([below](#words-about-pictures)). {_against(verdict, own, default_of_writing)}"
    )


def _against(verdict: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], method: str) -> str:
    """How a method compares with the chosen one, figure by figure."""
    sentences = []
    for figure in verdict["against_others"]:
        row = next((row for row in figure["rows"] if row["method"] == method), None)
        if row is None or figure["criterion"] not in {row["criterion"] for row in rows}:
            continue
        ahead, low, high = (number(figure, 0.0 - row[key], "+") for key in ("chosen_ahead_by", "high", "low"))
        is_sure = row["holm"] < ALIKE
        outcome = ("better" if row["chosen_ahead_by"] < 0 else "worse") if is_sure else "not told apart"
        sentences.append(f"{figure['criterion']}: {outcome}, {ahead} [{low}, {high}], corrected p {row['holm']:.3f}")
    return f"Against `{verdict['chosen']}` that is, by {'; by '.join(sentences)}."


def _gains(verdict: Mapping[str, Any], today: str) -> str:
    body = [
        [
            row["criterion"],
            ("seen before" if row["seen"] else "unseen") if _is_report(row, verdict) else "second half",
            str(row["n"]),
            f"{100 * row['gain']:+.1f} [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]",
            f"{row['holm']:.3f}",
        ]
        for row in verdict["against_today"]
    ]
    return lines(["figure", "samples", "n", f"gain over {today}, points", "p, Holm-corrected"], body)


def _unmeasured(candidates: Sequence[str], verdict: Mapping[str, Any]) -> str:
    """The candidates without a value, in all figures or in some, and why."""
    absent = {
        candidate: [
            figure["criterion"]
            for figure in verdict["against_others"]
            if candidate not in {row["method"] for row in figure["rows"]}
        ]
        for candidate in candidates
    }
    nowhere = [candidate for candidate, figures in absent.items() if len(figures) == len(verdict["against_others"])]
    parts = []
    if nowhere:
        parts.append(
            f"Of {len(candidates)} candidates, no run has {', '.join(f'`{name}`' for name in nowhere)}: "
            "`benchmarks/confirm.py` leaves out what the version that it measures cannot compute yet."
        )
    for candidate, figures in absent.items():
        if not figures or candidate in nowhere:
            continue
        runs = dict.fromkeys(figure.partition(":")[0] for figure in figures)
        if any(candidate in figure["values"] for figure in verdict["first_half"]):
            parts.append(f"`{candidate}` refused the models of {', '.join(runs)}, so it has no values there.")
        else:
            all_runs = dict.fromkeys(figure["criterion"].partition(":")[0] for figure in verdict["against_others"])
            own = ", ".join(run for run in all_runs if run not in runs)
            parts.append(f"`{candidate}` was added after the runs that choose; only {own} has it.")
    return " ".join(parts)


def _option(option: Mapping[str, Any]) -> str:
    second, unseen = option["second_half"], option["report_unseen"]
    return (
        f"`{option['other']}` against `{option['today']}`, by the same rule: on the second halves, better by "
        f"{second['better']} figures, worse by {second['worse']} and not told apart by {second['alike']}. On unseen "
        f"data, better by {unseen['better']}, worse by {unseen['worse']}. The option's default "
        f"{'moves' if option['moves'] else 'stays'}."
    )


def _mean_ranks(verdict: Mapping[str, Any]) -> dict[str, float]:
    return {row["method"]: row["mean_rank"] for row in verdict["mean_ranks"]}


def _is_report(row: Mapping[str, Any], verdict: Mapping[str, Any]) -> bool:
    """Whether a figure only reports: those of the second halves chose on the first."""
    return row["criterion"] not in {figure["criterion"] for figure in verdict["first_half"]}


def _tally(rows: Sequence[Mapping[str, Any]], sign: int) -> int:
    """By how many figures it is surely better (sign 1) or worse (−1)."""
    return sum(row["holm"] < ALIKE and row["gain"] * sign > 0 for row in rows)

"""Whether a candidate becomes the default, by the rule that candidates.toml fixed before anything was measured.

Figures are of runs by their names, the folders of `confirm.py`. What a run has not measured has no say: only candidates
that all figures have can be chosen, and figures without a run are listed as missing. Those that only report may be
measured later: they choose nothing, and are added to what was decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from candidates import Candidates, Criterion, read_candidates
from publish import advantage, rounded
from whyformer.benchmark.figures import Half, Run, interval_of, sample_values, value_of
from whyformer.benchmark.protocols import Figure
from whyformer.benchmark.reporting.page import ALIKE
from whyformer.benchmark.run_differences import ranks
from whyformer.metrics.statistics import holm

AT_LEAST = 2  # figures of the second halves by which the chosen one must be better than today's
ALL = "all"  # all kinds of data together
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Measured:
    """A figure of a run on some samples: the values of each candidate."""

    criterion: Criterion
    figure: Figure
    values: Mapping[str, Mapping[int, Any]]
    seed: int


def confirmation(runs: Mapping[str, Run], candidates: Candidates | None = None) -> dict[str, Any]:
    """What the first halves choose, for all data and for each kind, and how it does on what nobody chose on."""
    candidates = candidates or read_candidates()
    labels = candidates.labels
    first, second = (list(_measured(runs, labels, candidates.choices, half)) for half in ("first", "second"))
    reports = list(_measured(runs, labels, candidates.reports, None))
    if not first:
        raise SystemExit(
            f"No run with a figure that chooses: {', '.join(sorted({c.run for c in candidates.choices}))}."
        )
    kinds = dict.fromkeys(one.criterion.kind for one in first)
    found = {ALL: _verdict(first, second, reports, candidates.today.label)}
    for kind in kinds if len(kinds) > 1 else ():
        own = ([one for one in part if one.criterion.kind == kind] for part in (first, second, reports))
        found[kind] = _verdict(*own, candidates.today.label)
    options = []
    for pair in candidates.options:
        today, other = (choice.label for choice in pair)
        both = (
            list(_measured(runs, (today, other), criteria, half))
            for criteria, half in ((candidates.choices, "second"), (candidates.reports, None))
        )
        options.append(_option(*both, today, other))
    missing = [one.name for one in (*candidates.choices, *candidates.reports) if one.run not in runs]
    return {
        "today": candidates.today.label,
        "candidates": list(candidates.labels),
        "missing": missing,
        "choices": found,
        "options": options,
    }


def with_reports(
    decided: Mapping[str, Any], runs: Mapping[str, Run], candidates: Candidates | None = None
) -> dict[str, Any]:
    """What was decided before, with the reporting figures of these runs, added or in place of earlier ones."""
    candidates = candidates or read_candidates()
    today = candidates.today.label
    reports = list(_measured(runs, candidates.labels, candidates.reports, None))
    if not reports:
        raise SystemExit(
            f"No run with a figure that reports: {', '.join(sorted({c.run for c in candidates.reports}))}."
        )
    found = {}
    for kind, verdict in decided["choices"].items():
        own = [one for one in reports if kind in (ALL, one.criterion.kind)]
        others = [against_others(one, verdict["chosen"]) for one in own]
        found[kind] = {
            **verdict,
            **_reported(verdict, gains(own, verdict["chosen"], today), candidates),
            "against_others": _replaced(verdict["against_others"], others, candidates),
        }
        found[kind]["is_confirmed"] = _holds(found[kind]) and verdict["chosen"] != today
    options = []
    for option in decided["options"]:
        both = list(_measured(runs, (option["today"], option["other"]), candidates.reports, None))
        options.append(option | _reported(option, gains(both, option["other"], option["today"]), candidates))
        options[-1]["moves"] = _holds(options[-1])
    missing = [name for name in decided["missing"] if name not in {one.criterion.name for one in reports}]
    return {**decided, "missing": missing, "choices": found, "options": options}


def _reported(decided: Mapping[str, Any], rows: Rows, candidates: Candidates) -> dict[str, Any]:
    """The tests of a decision against today's default, with some of those that report anew."""
    names = {one.name for one in candidates.choices}
    before = decided["against_today"]
    halves = [row for row in before if row["criterion"] in names]
    return standing(halves, _replaced([row for row in before if row not in halves], rows, candidates))


def _replaced(before: Rows, rows: Rows, candidates: Candidates) -> list[dict[str, Any]]:
    """The rows before, with these in the place of those of the same figures, in the order of the file."""
    by_name = {row["criterion"]: dict(row) for row in (*before, *rows)}
    order = [one.name for one in (*candidates.choices, *candidates.reports)]
    return [by_name[name] for name in order if name in by_name]


def _option(second: Sequence[Measured], reports: Sequence[Measured], today: str, other: str) -> dict[str, Any]:
    """Whether an option's default moves: the other form against today's, by the rule of the default itself."""
    found = standing(*(gains(part, other, today) for part in (second, reports)))
    return {"today": today, "other": other, "moves": _holds(found), **found}


def standing(halves: Rows, reports: Rows) -> dict[str, Any]:
    """The tests on the second halves and on what reports, each corrected, and how many are won and lost."""
    halves, reports = _corrected(halves), _corrected(reports)
    return {
        "second_half": _counts(halves),
        "report_unseen": _counts([row for row in reports if not row["seen"]]),
        "report_all": _counts(reports),
        "against_today": halves + reports,
    }


def _holds(found: Mapping[str, Any]) -> bool:
    halves, unseen = found["second_half"], found["report_unseen"]
    holds: bool = halves["better"] >= AT_LEAST and not halves["worse"] and unseen["better"] > unseen["worse"]
    return holds


def _measured(
    runs: Mapping[str, Run], labels: Iterable[str], criteria: Iterable[Criterion], half: Half | None
) -> Iterable[Measured]:
    for criterion in criteria:
        if criterion.run not in runs:
            continue
        whole = runs[criterion.run]
        run = whole if half is None else whole.half(half)
        choice = next((one for one in run.choices if one.label == criterion.protocol), None)
        if choice is None:
            raise SystemExit(f"{criterion.run} has no {criterion.protocol}.")
        figure, values = sample_values(run, choice, criterion.figure)
        own = {label: values[label] for label in labels if values.get(label)}
        yield Measured(criterion, figure, own, run.suite["seed"])


def _verdict(
    first: Sequence[Measured], second: Sequence[Measured], reports: Sequence[Measured], today: str
) -> dict[str, Any]:
    """What the first halves choose, and its tests against today's default and the other candidates."""
    order = mean_ranks(first)
    chosen = next(iter(order))
    found = standing(*(gains(part, chosen, today) for part in (second, reports)))
    return {
        "chosen": chosen,
        "is_confirmed": _holds(found) and chosen != today,
        **found,
        "mean_ranks": [{"method": method, "mean_rank": rounded(rank)} for method, rank in order.items()],
        "first_half": [_figures(one) for one in first],
        "against_others": [against_others(one, chosen) for one in (*second, *reports)],
    }


def mean_ranks(found: Sequence[Measured]) -> dict[str, float]:
    """The mean rank of each candidate that all figures have, the lowest first."""
    shared = set.intersection(*(set(one.values) for one in found))
    each = [ranks(one.figure, {method: one.values[method] for method in shared}) for one in found]
    means = {method: sum(rank[method] for rank in each) / len(each) for method in shared}
    return dict(sorted(means.items(), key=lambda item: (item[1], item[0])))


def gains(found: Sequence[Measured], chosen: str, today: str) -> list[dict[str, Any]]:
    """By how much the chosen one is better, figure by figure."""
    rows = []
    for one in found:
        if chosen in one.values and today in one.values:
            gain = advantage("gain", one.figure, one.values[chosen], one.values[today], one.seed)
            about = {"criterion": one.criterion.name, "kind": one.criterion.kind, "seen": one.criterion.seen}
            rows.append({**about, "n": len(one.values[chosen]), **(gain or {"gain": 0.0, "p": 1.0})})
    return rows


def _corrected(rows: Rows) -> list[dict[str, Any]]:
    """The rows with p as corrected over all of them."""
    return [{**row, "holm": rounded(p)} for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True)]


def against_others(one: Measured, chosen: str) -> dict[str, Any]:
    """Every candidate with its interval, and how the chosen one compares; p as corrected over the candidates."""
    rows = []
    for method, values in one.values.items():
        shown = interval_of(one.figure, list(values.values()), one.seed) or {}
        row: dict[str, Any] = {"method": method, "n": len(values)}
        row |= {key: rounded(value) for key, value in shown.items()}
        if method != chosen and chosen in one.values:
            row |= advantage("chosen_ahead_by", one.figure, one.values[chosen], values, one.seed) or {}
        rows.append(row)
    tested = [row for row in rows if "p" in row]
    for row, p in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["holm"] = rounded(p)
    order = ranks(one.figure, one.values)
    rows.sort(key=lambda row: order[row["method"]])
    return {"criterion": one.criterion.name, "better": one.figure.better, "is_share": one.figure.is_share, "rows": rows}


def _figures(one: Measured) -> dict[str, Any]:
    values = {method: rounded(value_of(one.figure, list(found.values()))) for method, found in one.values.items()}
    return {"criterion": one.criterion.name, "n": max(map(len, one.values.values())), "values": values}


def _counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """By how many figures it is surely better, surely worse, or neither."""
    sure = [row["gain"] for row in rows if row["holm"] < ALIKE]
    better, worse = sum(gain > 0 for gain in sure), sum(gain < 0 for gain in sure)
    return {"better": better, "worse": worse, "alike": len(rows) - better - worse}

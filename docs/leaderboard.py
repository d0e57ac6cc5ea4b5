"""The leaderboard: every method on every model by every protocol, from the published results, as a page of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from evaluations import GAP, lines, named, number

from whyformer.benchmark.reporting.charts import CONTROLS
from whyformer.benchmark.reporting.page import ALIKE, ARROWS

# By which figure of a protocol methods are told apart; of others the first.
CHIEF = {
    "image_perturbation": GAP,
    "text_perturbation": GAP,
    "sources": "AUPRC",
    "word_localisation": "pointing game",
}
LEFT_OUT = {"approximation"}  # which measures recursions, not methods
# What benchmarks/cost.py calls a method.
COSTS = {
    "bi_token": "bi_token, 8 steps",
    "bi_token backward=libra": "the same by libra",
    "bi_head": "bi_head, 8 steps",
}
WORDS = {"best": "best", "tie": "not told from the best", "behind": "behind", "control": "control"}


@dataclass(frozen=True)
class Entry:
    """A method's value in a cell: a model, its data, a protocol and a figure; whose values are in percent or not."""

    method: str
    model: str
    data: str
    protocol: str
    figure: Mapping[str, Any]
    row: Mapping[str, Any]
    rank: int | None

    @property
    def standing(self) -> str:
        if self.method in CONTROLS:
            return "control"
        if self.rank == 1:
            return "best"
        return "tie" if self.row.get("p") is not None and self.row["p"] >= ALIKE else "behind"


@dataclass(frozen=True)
class Score:
    """How often a method is best, not told from the best, and behind, over all cells that it is in."""

    method: str
    best: int
    ties: int
    behind: int
    mean_rank: float
    cost: float | None

    @property
    def cells(self) -> int:
        return self.best + self.ties + self.behind


def entries(found: Mapping[str, Mapping[str, Any]]) -> Iterator[Entry]:
    """Every value of the chief figure of every protocol of every run."""
    for run in found.values():
        for protocol in run["protocols"]:
            name = protocol["protocol"].partition(" ")[0]
            if name in LEFT_OUT or not protocol["figures"]:
                continue
            wanted = CHIEF.get(name, protocol["figures"][0]["figure"])
            figure = next(one for one in protocol["figures"] if one["figure"] == wanted)
            if figure["better"] == "neither":
                continue
            rank = 0
            for row in figure["rows"]:
                is_method = row["method"] not in CONTROLS
                rank += is_method
                place = rank if is_method else None
                data = run["data"]["reader"]
                yield Entry(row["method"], run["model"], data, protocol["protocol"], figure, row, place)


def scores(cells: Sequence[Entry], costs: Mapping[str, float]) -> list[Score]:
    """A line for each method, those first that are best or not told from it in the largest share of their cells.

    What is in few cells, as variants are, comes after what is in many.
    """
    by_method: dict[str, list[Entry]] = {}
    for entry in cells:
        if entry.standing != "control":
            by_method.setdefault(entry.method, []).append(entry)
    found = []
    for method, own in by_method.items():
        standings = [entry.standing for entry in own]
        counts = [standings.count(name) for name in ("best", "tie", "behind")]
        mean_rank = sum(entry.rank or 0 for entry in own) / len(own)
        found.append(Score(method, *counts, mean_rank, costs.get(COSTS.get(method, method))))
    many = max((one.cells for one in found), default=0) / 2
    return sorted(
        found, key=lambda one: (one.cells < many, -(one.best + one.ties) / one.cells, one.mean_rank, one.method)
    )


def costs_of(path: Path) -> dict[str, float]:
    """Forward passes of an explanation, batch 1, as benchmarks/cost.py measured them."""
    return json.loads(path.read_text())["batch"]["1"]["ratios"]


def summary(found: Mapping[str, Mapping[str, Any]], costs: Mapping[str, float]) -> str:
    """The scores as a table for the site."""
    rows = [
        [
            named(one.method),
            str(one.cells),
            str(one.best),
            str(one.ties),
            str(one.behind),
            f"{one.mean_rank:.1f}",
            "–" if one.cost is None else f"{one.cost:.1f}",
        ]
        for one in scores(list(entries(found)), costs)
    ]
    return lines(["method", "cells", "best", "not told from the best", "behind", "mean rank", "forwards"], rows)


def page(found: Mapping[str, Mapping[str, Any]], costs: Mapping[str, float]) -> str:
    """One page that needs nothing else: two tables that can be sorted and filtered."""
    cells = list(entries(found))
    score_rows = [
        [
            one.method,
            one.cells,
            one.best,
            one.ties,
            one.behind,
            f"{one.mean_rank:.1f}",
            "–" if one.cost is None else f"{one.cost:.1f}",
        ]
        for one in scores(cells, costs)
    ]
    cell_rows = [
        [
            entry.method,
            number(entry.figure, entry.row["value"]),
            f"{number(entry.figure, entry.row['low'])} to {number(entry.figure, entry.row['high'])}",
            "–" if entry.rank is None else entry.rank,
            WORDS[entry.standing],
            entry.model,
            entry.protocol,
            entry.figure["figure"] + ARROWS[entry.figure["better"]],
            entry.data,
            entry.row["n"],
        ]
        for entry in cells
    ]
    choices = {
        "model": sorted({entry.model for entry in cells}),
        "protocol": sorted({entry.protocol for entry in cells}),
        "standing": list(WORDS.values()),
    }
    parts = {
        "SCORES": _table("scores", SCORE_HEADER, score_rows),
        "CELLS": _table("cells", CELL_HEADER, cell_rows),
        "FILTERS": "".join(_choice(name, values) for name, values in choices.items()),
        "COUNT": f"{len(score_rows)} methods in {len({(e.model, e.data, e.protocol) for e in cells})} cells",
    }
    text = PAGE
    for name, part in parts.items():
        text = text.replace(f"%{name}%", part)
    return text


SCORE_HEADER = ("method", "cells", "best", "not told from the best", "behind", "mean rank", "forwards")
CELL_HEADER = ("method", "value", "95 % interval", "rank", "standing", "model", "protocol", "figure", "data", "n")


def _table(name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f'<th scope="col"><button type="button">{escape(title)}</button></th>' for title in header)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table id="{name}">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'


def _choice(name: str, values: Sequence[str]) -> str:
    options = "".join(f"<option>{escape(value)}</option>" for value in values)
    column = CELL_HEADER.index(name)
    return f'<label>{name} <select data-column="{column}"><option value="">all</option>{options}</select></label>'


PAGE = (Path(__file__).parent / "leaderboard_page.html").read_text(encoding="utf-8")

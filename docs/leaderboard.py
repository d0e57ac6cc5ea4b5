"""The leaderboard: every method on every model by every protocol, from the published results, as a page of its own."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from evaluations import lines, named, number
from paired_ranking import CommonRanks, Comparisons, Place, common_ranks, ranking

from whyformer.benchmark.reporting.charts import CONTROLS
from whyformer.benchmark.reporting.page import ALIKE, ARROWS
from whyformer.methods.registry import METHODS

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))
from publish import chief_figure, plain_label  # noqa: E402

BASELINES = {*CONTROLS, "recency", "lexical_overlap", "uniform"}  # which ignore the model
FEWEST_MODELS = 3  # to be ranked
WORDS = {
    "best": "best",
    "tie": "not told from the best",
    "behind": "behind",
    "open": "not tested against the best",
    "control": "control",
}


@dataclass(frozen=True)
class Cell:
    """A model, its data and a protocol, with the published run and the figure that tells methods apart."""

    run: str
    published: Mapping[str, Any]
    protocol: str
    figure: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.protocol.partition(" ")[0]

    @property
    def model(self) -> str:
        return str(self.published["model"])

    @property
    def rows(self) -> dict[str, Mapping[str, Any]]:
        """The rows by method, the best first."""
        return {plain_label(row["method"]): row for row in self.figure["rows"]}

    @property
    def values(self) -> list[dict[str, float]]:
        """Values that were measured on the same samples, the most samples first: rows of one n, and later runs."""
        by_n: dict[int, dict[str, float]] = {}
        for method, row in self.rows.items():
            by_n.setdefault(row["n"], {})[method] = row["value"]
        later = [(one["n"], one["values"]) for one in self.figure.get("subsets", ())]
        return [values for _, values in sorted([*by_n.items(), *later], key=lambda one: -one[0])]

    def refusal(self, method: str) -> str | None:
        """Why the method does not apply to the model."""
        known = [one for one in fill_document()["refused"] if self.model in one["models"]]
        reasons = {one["method"]: one["reason"] for one in known}
        reasons |= {plain_label(label): reason for label, reason in self.published.get("left_out", {}).items()}
        return reasons.get(method)


@dataclass(frozen=True)
class Entry:
    """A method's value in a cell."""

    method: str
    cell: Cell
    row: Mapping[str, Any]
    rank: int | None

    @property
    def standing(self) -> str:
        if self.method in BASELINES:
            return "control"
        if self.rank == 1:
            return "best"
        if self.row.get("p") is None:
            return "open"
        return "tie" if self.row["p"] >= ALIKE else "behind"


@dataclass(frozen=True)
class Score:
    """A listed method: how often it is ahead of another, and best, not told from the best and behind in its cells.

    `rank` is its mean rank in the cells that all ranked methods share, with its interval.
    """

    method: str
    place: Place | None
    rank: tuple[float, float, float] | None
    standings: Mapping[str, int]
    cells: int
    applies: int
    cost: float | None


def cells_of(found: Mapping[str, Mapping[str, Any]]) -> list[Cell]:
    """Every protocol of every run that is on the board, without figures that have no better direction."""
    off = fill_document()["off_the_board"]
    cells = [
        Cell(run, published, protocol["protocol"], chief_figure(protocol))
        for run, published in found.items()
        if run not in off["runs"]
        for protocol in published["protocols"]
        if protocol["figures"]
    ]
    return [cell for cell in cells if cell.name not in off["protocols"] and cell.figure["better"] != "neither"]


def entries(cells: Sequence[Cell]) -> Iterator[Entry]:
    """Every value of every cell."""
    for cell in cells:
        rank = 0
        for method, row in cell.rows.items():
            rank += method not in BASELINES
            yield Entry(method, cell, row, None if method in BASELINES else rank)


@cache
def fill_document() -> dict[str, Any]:
    """benchmarks/fill.toml: the methods of the board, and the reasons for empty cells."""
    return tomllib.loads((BENCHMARKS / "fill.toml").read_text(encoding="utf-8"))


def listed() -> list[str]:
    """The labels of the methods that are ranked."""
    return [label for key in ("methods", "references", "narrow") for label in _labels(fill_document()[key])]


def _labels(entries: Sequence[Any]) -> list[str]:
    return [one if isinstance(one, str) else " ".join(_parts(one)) for one in entries]


def names_of(cells: Sequence[Cell]) -> list[str]:
    """The listed methods, and those of submitted plugins."""
    labels = {method for cell in cells for method in cell.rows} - BASELINES
    return [*listed(), *sorted(label for label in labels if label.partition(" ")[0] not in METHODS)]


def _parts(entry: Mapping[str, Any]) -> list[str]:
    return [entry["name"], *(f"{key}={value}" for key, value in entry.items() if key != "name")]


def comparisons(cells: Sequence[Cell]) -> list[Comparisons]:
    """What is compared in each cell; a model's cells of one protocol, which differ by options, share one vote."""
    kinds = [(cell.model, cell.published["data"]["reader"], cell.name) for cell in cells]
    return [
        Comparisons(cell.model, 1 / kinds.count(kind), cell.figure["better"] == "higher", cell.values)
        for cell, kind in zip(cells, kinds, strict=True)
    ]


def ranked(cells: Sequence[Cell], names: Sequence[str]) -> list[str]:
    """Those of the methods that have values in enough models."""
    return [name for name in names if len({cell.model for cell in cells if name in cell.rows}) >= FEWEST_MODELS]


def shared_ranks(cells: Sequence[Cell], names: Sequence[str]) -> CommonRanks:
    """The mean ranks of the methods that are compared in common cells."""
    return common_ranks(comparisons(cells), in_common(cells, names))


def in_common(cells: Sequence[Cell], names: Sequence[str]) -> list[str]:
    """The ranked methods but for the references, which were measured on few samples."""
    few = _labels(fill_document()["references"])
    return [name for name in ranked(cells, names) if name not in few]


def common(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The cells in which mean ranks are taken."""
    cells = cells_of(found)
    names = in_common(cells, names_of(cells))
    pairs = zip(cells, comparisons(cells), strict=True)
    shared = [cell for cell, compared in pairs if compared.ranks(names) is not None]
    models = len({cell.model for cell in shared})
    where = f": {'; '.join(cell_names(shared, cells))}" if shared else ""
    return f"{len(names)} methods were measured on the same samples in {len(shared)} cells of {models} models{where}."


def scores(cells: Sequence[Cell], costs: Mapping[str, float], names: Sequence[str]) -> list[Score]:
    """A line for each method, by rank; methods of few models come last, without one."""
    by_method: dict[str, list[Entry]] = {name: [] for name in names}
    for entry in entries(cells):
        if entry.method in by_method:
            by_method[entry.method].append(entry)
    compared = ranked(cells, names)
    places = {one.method: one for one in ranking(comparisons(cells), compared)} if len(compared) > 1 else {}
    means = shared_ranks(cells, names).by_method
    found = []
    for name, own in by_method.items():
        standings = [entry.standing for entry in own]
        counts = {word: standings.count(word) for word in ("best", "tie", "behind", "open")}
        is_narrow = name in fill_document()["narrow"]
        applies = len(own) if is_narrow else sum(cell.refusal(name) is None for cell in cells)
        found.append(Score(name, places.get(name), means.get(name), counts, len(own), applies, costs.get(name)))
    return sorted(found, key=lambda one: (one.place is None, -(one.place.ahead if one.place else 0), one.method))


def reason(cell: Cell, method: str) -> str:
    """Why a method has no value in a cell."""
    document = fill_document()
    if method in document["narrow"]:
        return "it explains only responses or words about pictures"
    refusal = cell.refusal(method)
    if refusal is not None:
        return refusal
    return next((one["reason"] for one in document["empty"] if one["model"] == cell.model), document["unmeasured"])


def empty(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The cells without a value, by reason and methods; a run stands for all of its cells."""
    cells = cells_of(found)
    groups: dict[tuple[str, tuple[str, ...]], list[Cell]] = {}
    for cell in cells:
        by_reason: dict[str, list[str]] = {}
        for method in listed():
            if method not in cell.rows and method not in fill_document()["narrow"]:
                refusal = cell.refusal(method)
                text = reason(cell, method) if refusal is None else f"does not apply: {refusal.rstrip('.')}"
                by_reason.setdefault(text, []).append(method)
        for text, methods in by_reason.items():
            groups.setdefault((text, tuple(methods)), []).append(cell)
    rows = [
        [text, "; ".join(cell_names(some, cells)), ", ".join(f"`{one}`" for one in methods)]
        for (text, methods), some in sorted(groups.items(), key=lambda group: group[0][0])
    ]
    return lines(["why", "cells", "methods"], rows) if rows else "None."


def cell_names(some: Sequence[Cell], cells: Sequence[Cell]) -> Iterator[str]:
    """The runs of cells, with protocols where not all of a run are among them."""
    for run in dict.fromkeys(cell.run for cell in some):
        own = [cell.protocol for cell in some if cell.run == run]
        is_whole = len(own) == sum(cell.run == run for cell in cells)
        yield run if is_whole else f"{run} ({', '.join(f'`{protocol}`' for protocol in own)})"


def costs_of(path: Path) -> dict[str, float]:
    """Forward passes of an explanation, as benchmarks/board_cost.py measured them."""
    found: dict[str, float] = json.loads(path.read_text())["forwards"]
    return found


def _score_row(rank: int, one: Score) -> list[str]:
    place = one.place
    return [
        str(rank) if place else "–",
        one.method,
        f"{100 * place.ahead:.0f} [{100 * place.low:.0f}, {100 * place.high:.0f}]" if place else "–",
        "{:.1f} [{:.1f}, {:.1f}]".format(*one.rank) if one.rank else "–",
        f"{one.cells} of {one.applies}",
        *(str(one.standings[word]) for word in ("best", "tie", "behind", "open")),
        "–" if one.cost is None else f"{one.cost:.1f}",
    ]


def summary(found: Mapping[str, Mapping[str, Any]], costs: Mapping[str, float]) -> str:
    """The scores as a table for the site."""
    cells = cells_of(found)
    rows = [_score_row(rank, one) for rank, one in enumerate(scores(cells, costs, names_of(cells)), 1)]
    return lines(list(SCORE_HEADER), [[row[0], named(row[1]), *row[2:]] for row in rows])


def page(found: Mapping[str, Mapping[str, Any]], costs: Mapping[str, float]) -> str:
    """One page that needs nothing else: tables that can be sorted and filtered."""
    cells = cells_of(found)
    score_rows = [_score_row(rank, one) for rank, one in enumerate(scores(cells, costs, names_of(cells)), 1)]
    choices = {
        "model": sorted({cell.model for cell in cells}),
        "protocol": sorted({cell.protocol for cell in cells}),
        "standing": list(WORDS.values()),
    }
    parts = {
        "SCORES": _table("scores", SCORE_HEADER, score_rows),
        "COVERAGE": _coverage(cells),
        "CELLS": _table("cells", CELL_HEADER, [_cell_row(entry) for entry in entries(cells)]),
        "FILTERS": "".join(_choice(name, options) for name, options in choices.items()),
        "COUNT": f"{len(score_rows)} methods in {len(cells)} cells of {len({cell.model for cell in cells})} models",
    }
    text = PAGE
    for name, part in parts.items():
        text = text.replace(f"%{name}%", part)
    return text


def _cell_row(entry: Entry) -> list[Any]:
    figure, row = entry.cell.figure, entry.row
    return [
        entry.method,
        number(figure, row["value"]),
        "–" if row["low"] is None else f"{number(figure, row['low'])} to {number(figure, row['high'])}",
        row["n"],
        "–" if entry.rank is None else entry.rank,
        WORDS[entry.standing],
        entry.cell.model,
        entry.cell.protocol,
        figure["figure"] + ARROWS[figure["better"]],
        entry.cell.published["data"]["reader"],
    ]


SCORE_HEADER = (
    "rank",
    "method",
    "ahead of another, % [95 %]",
    "mean rank in common cells [95 %]",
    "cells",
    "best",
    "not told from the best",
    "behind",
    "not tested",
    "forwards",
)
CELL_HEADER = ("method", "value", "95 % interval", "n", "rank", "standing", "model", "protocol", "figure", "data")


def _coverage(cells: Sequence[Cell]) -> str:
    """The number of samples of each listed method in each cell; a dash says why on hovering."""
    head = "".join(f'<th scope="col"><span>{escape(cell.run)}: {escape(cell.protocol)}</span></th>' for cell in cells)
    body = []
    for method in listed():
        boxes = []
        for cell in cells:
            row = cell.rows.get(method)
            why = "" if row else f' title="{escape(reason(cell, method), quote=True)}"'
            mark = str(row["n"]) if row else "×" if cell.refusal(method) else "–"
            boxes.append(f"<td{why}>{mark}</td>")
        body.append(f'<tr><th scope="row">{escape(method)}</th>{"".join(boxes)}</tr>')
    titles = f'<thead><tr><th scope="col">method</th>{head}</tr></thead>'
    return f'<table id="coverage">\n{titles}\n<tbody>\n' + "\n".join(body) + "\n</tbody></table>"


def _table(name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f'<th scope="col"><button type="button">{escape(title)}</button></th>' for title in header)
    body = "\n".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table id="{name}">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'


def _choice(name: str, values: Sequence[str]) -> str:
    options = "".join(f"<option>{escape(value)}</option>" for value in values)
    column = CELL_HEADER.index(name)
    return f'<label>{name} <select data-column="{column}"><option value="">all</option>{options}</select></label>'


PAGE = (Path(__file__).parent / "leaderboard_page.html").read_text(encoding="utf-8")

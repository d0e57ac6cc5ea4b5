"""Explanations as self-contained HTML: no scripts, no requests, every string escaped by the templates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from whyformer.render.image import Rows, check_grid, row_original
from whyformer.render.shades import declarations
from whyformer.render.text import readable, visible
from whyformer.render.view import ExplanationView, MatrixView, data_uri, explanation_view, matrix_view, used_shades
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation

CELL_SIDE = 320

_TEMPLATES = Environment(
    loader=PackageLoader("whyformer.render"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


Result = Explanation | Continuation


def page(results: Sequence[Result], title: str = "Whyformer", names: Sequence[str] | None = None) -> str:
    """One page with the explanations one under the other, each with the name of its input where names are given."""
    views = [_view(result) for result in results]
    shown = [readable(name) for name in names] if names is not None else [""] * len(views)
    named = list(zip(shown, views, strict=True))
    return _rendered("page.html.j2", views, title=readable(title), explanations=named, grid=None)


def fragment(result: Result) -> str:
    """One explanation to put into another page, such as a notebook; its styles reach nothing outside it."""
    view = _view(result)
    return _rendered("fragment.html.j2", [view], view=view)


def report_page(
    title: str, about: Sequence[str], sections: Sequence[Any], galleries: Sequence[Any], notes: Sequence[str]
) -> str:
    """One page with tables, curves and grids of explanations."""
    grids, views = [], []
    for gallery in galleries:
        cells = [[cell and explanation_view(cell, CELL_SIDE) for cell in row] for row in gallery.cells]
        views += [cell for row in cells for cell in row if cell]
        rows = [{"title": visible(name), "cells": row} for name, row in zip(gallery.rows, cells, strict=True)]
        columns = [readable(column) for column in gallery.columns]
        heading = {"title": readable(gallery.title), "note": gallery.note, "has_truth": gallery.has_truth}
        grids.append({**heading, "columns": columns, "rows": rows})
    shown = {"title": readable(title), "about": about, "sections": sections, "grids": grids, "notes": notes}
    return _rendered("report.html.j2", views, **shown)


def comparison(rows: Rows, row_titles: Sequence[str], column_titles: Sequence[str], title: str = "Whyformer") -> str:
    """One page with a table of explanations; the original once per row, and None for an empty cell."""
    check_grid(rows, row_titles, column_titles)
    cells = [[explanation_view(cell, CELL_SIDE) if cell else None for cell in row] for row in rows]
    views = [cell for row in cells for cell in row if cell]
    originals = [row_original(row, CELL_SIDE) for row in rows]
    grid = {
        "columns": [readable(column) for column in column_titles],
        "notes": [note for note in views[0].notes if all(note in view.notes for view in views)],
        "rows": [
            {
                "title": visible(name),
                "original": picture and data_uri(picture),
                "has_text": any(cell.has_text for cell in row if cell),
                "cells": row,
            }
            for name, picture, row in zip(row_titles, originals, cells, strict=True)
        ],
    }
    return _rendered("page.html.j2", views, title=readable(title), explanations=[], grid=grid)


def _view(result: Result) -> ExplanationView | MatrixView:
    return matrix_view(result) if isinstance(result, Continuation) else explanation_view(result)


def _rendered(template: str, views: Iterable[ExplanationView | MatrixView], **context: Any) -> str:
    shades = {name: declarations(name) for name in used_shades(views)}
    return _TEMPLATES.get_template(template).render(shades=shades, **context)

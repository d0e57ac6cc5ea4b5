"""Explanations as self-contained HTML: no requests, every string escaped, and no scripts but that of What if."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from whyformer.render.coverage import finding, percent
from whyformer.render.figure import check_grid, row_original
from whyformer.render.shades import declarations
from whyformer.render.text_spans import TextUnits, readable, visible
from whyformer.render.view import ExplanationView, data_uri, explanation_view, used_shades
from whyformer.render.what_if_view import what_if_view

if TYPE_CHECKING:
    from whyformer.render.figure import Rows
    from whyformer.results.explanation import Explanation
    from whyformer.results.unit_effects import RemovalEffects

CELL_SIDE = 320


def today() -> str:
    """The date that a page carries: `19 November 2026`."""
    now = datetime.now(UTC).astimezone()
    return f"{now.day} {now:%B %Y}"


TEMPLATES = Environment(
    loader=PackageLoader("whyformer.render"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["percent"] = percent
TEMPLATES.globals["today"] = today


def html_page(
    explanations: Sequence[Explanation],
    title: str | None = None,
    names: Sequence[str] | None = None,
    *,
    units: TextUnits = "word",
    effects: RemovalEffects | None = None,
    others: Sequence[Explanation] = (),
) -> str:
    """Render explanations as one page, with the names of their inputs if given.

    The default title names what they share. `units` are coloured in texts: words, or tokens. `effects` are those of
    removing parts of a single explained example, to try by clicks; `others` explain its other likely answers.
    """
    views = [explanation_view(explanation, units=units) for explanation in explanations]
    rivals = [explanation_view(other, units=units) for other in others]
    named = list(zip([readable(name) for name in names or [""] * len(views)], views, strict=True))
    heading = readable(page_title(explanations) if title is None else title)
    what_if = None if effects is None else what_if_view(explanations[0], effects)
    script = page_script(*["page_state.js"] * bool(what_if or rivals), *["what_if.js"] * bool(what_if))
    context = {"what_if": what_if, "script": Markup(script), "script_hash": script_hash(script), "others": rivals}
    return render_page("page.html.j2", [*views, *rivals], title=heading, explanations=named, grid=None, **context)


def page_script(*names: str) -> str:
    """The script of a saved page, made of several; empty without any."""
    return "".join(TEMPLATES.get_template(name).render() for name in names)


def script_hash(script: str) -> str:
    """The hash by which a page's policy allows its own script, and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def page_title(explanations: Sequence[Explanation]) -> str:
    """Title of several explanations: `3 explanations by bi_token on mini-vit`."""
    if len(explanations) == 1:
        return finding(explanations[0])
    methods = list(dict.fromkeys(explanation.manner for explanation in explanations))
    models = list(dict.fromkeys(visible(explanation.model) for explanation in explanations))
    return f"{len(explanations)} explanations by {_enumerate(methods)} on {_enumerate(models)}"


def explanation_fragment(explanation: Explanation, *, units: TextUnits = "word") -> str:
    """Render an explanation for embedding in a page such as a notebook, with scoped styles."""
    view = explanation_view(explanation, units=units)
    return render_page("fragment.html.j2", [view], view=view)


def report_page(
    title: str,
    about: Sequence[str],
    sections: Sequence[Any],
    galleries: Sequence[Any],
    notes: Sequence[str],
    leads: Sequence[str] = (),
) -> str:
    """One page with tables, curves and grids of explanations; tables are folded below `leads`, its sentences."""
    grids, views = [], []
    for gallery in galleries:
        cells = [[cell and explanation_view(cell, CELL_SIDE) for cell in row] for row in gallery.cells]
        views += [cell for row in cells for cell in row if cell]
        rows = [{"title": visible(name), "cells": row} for name, row in zip(gallery.rows, cells, strict=True)]
        columns = [readable(column) for column in gallery.columns]
        heading = {"title": readable(gallery.title), "note": gallery.note, "has_truth": gallery.has_truth}
        grids.append({**heading, "columns": columns, "rows": rows})
    context = {"title": readable(title), "about": about, "sections": sections, "grids": grids}
    context |= {"notes": notes, "leads": leads}
    return render_page("report.html.j2", views, **context)


def comparison_page(
    rows: Rows,
    row_titles: Sequence[str],
    column_titles: Sequence[str],
    title: str = "Whyformer",
    *,
    about: str = "",
    units: TextUnits = "word",
) -> str:
    """Render a table of explanations as one page, with the original once per row, and None for an empty cell.

    `about` is a line below the title for first-time readers.
    """
    check_grid(rows, row_titles, column_titles)
    cells = [[explanation_view(cell, CELL_SIDE, units=units) if cell else None for cell in row] for row in rows]
    views = [cell for row in cells for cell in row if cell]
    originals = [row_original(row, CELL_SIDE) for row in rows]
    grid = {
        "about": about,
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
    return render_page("page.html.j2", views, title=readable(title), explanations=[], grid=grid)


def _enumerate(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def render_page(template: str, views: Iterable[ExplanationView], **context: Any) -> str:
    """Render a template with the colours that its views need."""
    context = {"what_if": None, "script": "", "script_hash": "", "others": [], **context}
    shades = {name: declarations(name) for name in used_shades(views)}
    return TEMPLATES.get_template(template).render(shades=shades, **context)

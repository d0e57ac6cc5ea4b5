"""Render actions as pages, whose content security policy allows only their own script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from whyformer.render.action_view import ActionView, action_view, drives, quoted, style_of
from whyformer.render.html import TEMPLATES
from whyformer.render.shades import declarations
from whyformer.render.text_spans import one_line, readable

if TYPE_CHECKING:
    from whyformer.results.action import Action


@dataclass(frozen=True)
class ActionRow:
    """A transcript of a report: its name, and the explained action."""

    name: str
    action: Action


def action_page(action: Action) -> str:
    """Render an action as a page."""
    script = TEMPLATES.get_template("action.js").render()
    view = action_view(action)
    return _render("action.html.j2", view, script, script_hash=_hash(script), grid=None, title=view.call)


def action_fragment(action: Action) -> str:
    """Render an action for embedding in a page such as a notebook, with scoped styles."""
    return _render("action_fragment.html.j2", action_view(action), TEMPLATES.get_template("action.js").render())


def action_report(rows: Sequence[ActionRow], *, model: str, errors: Sequence[str] = (), file: str = "") -> str:
    """Render a report on many transcripts, the most suspicious calls first."""
    script = TEMPLATES.get_template("support_report.js").render()
    ordered = most_suspicious_first(rows)
    return TEMPLATES.get_template("action_report.html.j2").render(
        title=_title(rows),
        file=readable(file),
        shades={},
        grid=None,
        rows=[
            {
                "place": place,
                "name": readable(one_line(row.name)),
                "call": readable(one_line(repr(row.action.call))),
                "verdict": row.action.verdict,
                "style": style_of(row.action.verdict),
                "dominance": row.action.dominance,
                "argument": _largest_argument(row.action),
                "reason": readable(one_line(row.action.reason)),
                "driver": [
                    (readable(row.action.sources[number].name), quoted(row.action.sources[number].text))
                    for number in row.action.driver
                ],
                "instead": ", ".join(quoted(repr(one)) for one in row.action.instead_calls)
                or ("" if row.action.instead is None else quoted(row.action.instead)),
            }
            for place, row in enumerate(ordered, start=1)
        ],
        model=readable(model),
        errors=[readable(one_line(error)) for error in errors],
        script=Markup(script),
        script_hash=_hash(script),
    )


def most_suspicious_first(rows: Sequence[ActionRow]) -> list[ActionRow]:
    """Calls driven by results first, then those with a driven argument; each group by the larger dominance."""

    def place(row: ActionRow) -> tuple[int, float, float]:
        group = 0 if drives(row.action.verdict) else 1 if row.action.driven_arguments else 2
        return group, -round(row.action.largest_dominance, 1), -row.action.dominance

    return sorted(rows, key=place)


def _title(rows: Sequence[ActionRow]) -> str:
    """How many calls, or arguments alone, a tool result drives."""
    calls = sum(drives(row.action.verdict) for row in rows)
    arguments = sum(bool(row.action.driven_arguments) and not drives(row.action.verdict) for row in rows)
    return (
        f"{calls + arguments} of {len(rows)} calls driven by a tool result: {calls} in whole or in part, {arguments} "
        "only in an argument"
    )


def _largest_argument(action: Action) -> tuple[str, float] | None:
    """The argument with the largest dominance."""
    own = [one for one in action.targets if one.kind == "argument"]
    largest = max(own, key=lambda one: one.dominance, default=None)
    return None if largest is None else (readable(largest.name), largest.dominance)


def _hash(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _render(template: str, view: ActionView, script: str, **context: Any) -> str:
    names = [f"{'for' if level > 0 else 'against'}-{abs(level)}" for level in view.levels]
    shades = {name: declarations(name) for name in (*names, "page-both")}
    return TEMPLATES.get_template(template).render(view=view, shades=shades, script=Markup(script), **context)

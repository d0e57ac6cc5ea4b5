"""Render actions as terminal text: the verdict, then each target with the sources that made it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from whyformer.render.action_view import ActionView, RankedSource, TargetView, action_view
from whyformer.render.cells import AGAINST, FOR, style
from whyformer.render.colour import Scale, ink, rgb
from whyformer.render.terminal import colour_console
from whyformer.render.text_spans import one_line

if TYPE_CHECKING:
    from whyformer.results.action import Action

SOURCES_LISTED, BAR, LONGEST_LINE = 4, 12, 90
ACTION_COLOURS = {
    "follows the user": "green",
    "driven by a tool result": "red",
    "mixed": "yellow",
    "cannot tell": "default",
}


def action_text(action: Action) -> str:
    """Render an action for standard output."""
    lines = list(_lines(action_view(action)))
    console = colour_console()
    if console is None:
        return "\n".join(line.plain.rstrip() for line in lines)
    with console.capture() as captured:
        for line in lines:
            console.print(line)
    return captured.get().rstrip("\n")


def _lines(view: ActionView) -> Iterator[Text]:
    yield Text(f"{view.call} on {view.model}", "bold")
    yield Text.assemble((view.verdict, f"bold {ACTION_COLOURS[view.verdict]}"), f": {view.reason}")
    if view.contrast:
        yield Text(f"rather than {view.contrast}")
    for target in view.targets:
        if target.kind != "name":  # the decision and the name make the action
            yield from _target_lines(target)
    if any(target.ranked for target in view.targets):
        yield Text("   bars: on a logarithmic scale above 2 nats", "dim")
    for name, text in view.driver:
        yield Text(_short(f"{view.driver_title.lower()}: {name}: {text}"), "bold")
    if view.instead is not None:
        calls = ", ".join(view.instead_calls)
        answer = f"write: {one_line(view.instead) or 'nothing'}"
        yield Text(_short(f"without it the model would {f'call {calls}' if calls else answer}"))
    for note in (*view.notes, view.cost):
        yield Text(one_line(note), "dim")


def _target_lines(target: TargetView) -> Iterator[Text]:
    label = f"{target.label} = {target.value}" if target.value else target.label
    effects = f"request {target.request[1]}, untrusted {target.untrusted[1]}"
    yield Text.assemble((_short(label), "bold"), f"  {effects}  ", (target.verdict, ACTION_COLOURS[target.verdict]))
    for source in target.ranked[:SOURCES_LISTED]:
        yield _source_line(source)


def _source_line(source: RankedSource) -> Text:
    colour = rgb(Scale(-1.0, 1.0).colours(np.array(source.level / 100), "dark"))
    bar = (FOR if source.level >= 0 else AGAINST)[-1] * max(1, round(BAR * abs(source.level) / 100))
    background = style(ink(colour), colour).bgcolor
    assert background is not None
    shown = _short(f"{source.name} ({source.trust}): {source.text}")
    return Text.assemble(f"   {source.figure:>11}  ", (f"{bar:<{BAR}}", background.name), f"  {shown}")


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1].rstrip()}…"

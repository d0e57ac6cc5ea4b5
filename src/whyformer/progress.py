"""Progress bars that work where they are shown: in a terminal, in a notebook with and without widgets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import TypeVar

from rich.console import Console
from rich.progress import track as rich_track

Step = TypeVar("Step")


def track(steps: Sequence[Step], description: str, *, is_shown: bool) -> Iterable[Step]:
    """The steps one by one, with a bar that says how many are done and goes away at the end."""
    return rich_track(steps, description, console=bar_console(), transient=True, disable=not is_shown)


def bar_console() -> Console:
    """The console that can draw a bar over itself."""
    if not Console().is_jupyter:
        return Console(stderr=True)
    if find_spec("ipywidgets") is not None:
        return Console()
    # Rich would only warn that it wants widgets. The output of a notebook's cell understands a carriage return as a
    # terminal does, which is all that one line drawn over itself needs.
    return Console(force_jupyter=False, force_terminal=True, width=80)

"""Progress bars where somebody looks: a terminal has rich ones, a notebook a plain one that needs no widgets."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import track as rich_track
from tqdm.std import tqdm  # type: ignore[import-untyped]

_Item = TypeVar("_Item")


def track(items: Sequence[_Item], description: str, *, progress: bool) -> Iterable[_Item]:
    """The items, with a bar that moves on as they are taken, if one is wanted."""
    if not progress:
        return items
    if in_notebook():  # where rich would ask for widgets instead of showing a bar
        bar: Iterable[_Item] = tqdm(items, desc=description, leave=False)
        return bar
    return rich_track(items, description, console=Console(stderr=True), transient=True)


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"

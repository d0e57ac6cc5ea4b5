"""Progress bars: rich ones in a terminal, a plain one without widgets in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import track as rich_track
from tqdm.std import tqdm  # type: ignore[import-untyped]

_Item = TypeVar("_Item")


def track(items: Sequence[_Item], description: str, *, progress: bool) -> Iterable[_Item]:
    """Iterate over the items, with a progress bar if `progress` is set."""
    if not progress:
        return items
    if in_notebook():  # where rich would require widgets
        bar: Iterable[_Item] = tqdm(items, desc=description, leave=False)
        return bar
    return rich_track(items, description, console=Console(stderr=True), transient=True)


def in_notebook() -> bool:
    """Whether this runs in a Jupyter kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"

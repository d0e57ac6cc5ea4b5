"""Progress bars: rich ones in a terminal, a plain one without widgets in a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import track as rich_track
from tqdm.std import tqdm  # type: ignore[import-untyped]

_Item = TypeVar("_Item")
SECONDS_BETWEEN_LINES = 10  # without a terminal


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


@contextmanager
def stage_progress(*, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function of a stage, the number done and the total: bars with the time left, or occasional lines."""
    terminal = Console(stderr=True, quiet=quiet)
    if terminal.is_terminal and not quiet:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        tasks: dict[str, TaskID] = {}
        with Progress(*columns, console=terminal) as bar:

            def advance(stage: str, done: int, total: int) -> None:
                if stage not in tasks:
                    tasks[stage] = bar.add_task(stage, total=total)
                bar.update(tasks[stage], completed=done, total=total)

            yield advance
        return
    started: dict[str, tuple[float, int]] = {}
    spoken = time.monotonic()

    def speak(stage: str, done: int, total: int) -> None:
        nonlocal spoken
        now = time.monotonic()
        start, before = started.setdefault(stage, (now, done))
        if now - spoken >= SECONDS_BETWEEN_LINES and done > before:
            spoken, left = now, (now - start) / (done - before) * (total - done)
            terminal.print(f"{stage}: {done} of {total}, about {left:.0f} s left", highlight=False)

    yield speak

"""A suite run from beginning to end, or from where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from whyformer.errors import WhyformerError, check_choice
from whyformer.run import cluster, local
from whyformer.run.suite import Suite, read_suite
from whyformer.run.tables import is_done, write_shard, write_whole
from whyformer.run.work import Plan, plan_of

Engine = Literal["local", "ray"]
ENGINES: dict[str, Callable[[Plan, Path, Iterable[int]], Iterator[tuple[int, dict[str, bytes]]]]] = {
    "local": local.tables,
    "ray": cluster.tables,
}
SUITE = "suite.json"


def evaluate(
    suite: str | Path | Suite, out: str | Path, *, data: str | Path = ".", engine: Engine = "local", quiet: bool = False
) -> Path:
    """Run a suite, or go on with it where it was stopped; its tables are Parquet files in the folder `out`.

    Relative paths of the suite are taken from the folder `data`.
    """
    check_choice("engine", engine, Engine)
    asked = suite if isinstance(suite, Suite) else read_suite(suite)
    place, folder = Path(data).resolve(), Path(out)
    plan = plan_of(asked, place)
    _claim(folder, plan)
    todo = [number for number in range(len(plan.shards)) if not is_done(folder, number)]
    with _told(plan, len(todo), quiet=quiet) as tell:
        for number, tables in ENGINES[engine](plan, place, todo) if todo else ():
            write_shard(folder, number, tables)
            tell(number)
    return folder


def _claim(folder: Path, plan: Plan) -> None:
    """The folder belongs to this suite from now on; one that belongs to another is refused."""
    wanted = json.loads(json.dumps(plan.document))
    place = folder / SUITE
    if place.is_file():
        known = json.loads(place.read_text(encoding="utf-8"))
        if known != wanted:
            differing = [key for key in {**known, **wanted} if known.get(key) != wanted.get(key)]
            what = ", ".join("the data" if key == "names" else key for key in differing if key != "count")
            raise WhyformerError(f"{str(folder)!r} holds the results of another suite ({what}): choose another folder.")
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise WhyformerError(f"{str(folder)!r} is not empty and holds no suite: choose another folder.")
    write_whole(place, (json.dumps(wanted, indent=1, ensure_ascii=False) + "\n").encode())


class _told:
    """A bar with the time left on a terminal, elsewhere a line for each shard."""

    def __init__(self, plan: Plan, todo: int, *, quiet: bool) -> None:
        terminal = Console(stderr=True)
        self.total, self.done, self.quiet = len(plan.shards), len(plan.shards) - todo, quiet
        self.terminal = terminal
        self.bar: Progress | None = None
        if terminal.is_terminal and not quiet:
            columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
            columns += [TimeElapsedColumn(), TimeRemainingColumn()]
            self.bar = Progress(*columns, console=terminal)
            self.task = self.bar.add_task(f"{plan.suite.model} on {plan.suite.data.name}", total=self.total)
            self.bar.update(self.task, completed=self.done)

    def __enter__(self) -> Callable[[int], None]:
        if self.bar is not None:
            self.bar.start()
        return self.tell

    def __exit__(self, *problem: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def tell(self, number: int) -> None:
        self.done += 1
        if self.bar is not None:
            self.bar.advance(self.task)
        elif not self.quiet:
            self.terminal.print(f"shard {number} done, {self.done} of {self.total}", highlight=False)

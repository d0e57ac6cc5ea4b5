"""A suite run from beginning to end, or from where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from whyformer.benchmark.engines import local, ray
from whyformer.benchmark.suite import Suite, read_suite
from whyformer.benchmark.tables import is_done, unfinished_of, write_shard, write_whole
from whyformer.benchmark.worker import Plan, plan_of
from whyformer.errors import WhyformerError, check_choice

Engine = Literal["local", "ray"]
ENGINES: dict[str, Callable[[Plan, Path, Iterable[int]], Iterator[tuple[int, dict[str, bytes]]]]] = {
    "local": local.tables,
    "ray": ray.tables,
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
    """The folder belongs to this suite from now on; one that holds results of another is refused."""
    wanted = json.loads(json.dumps(plan.document))
    place = folder / SUITE
    if place.is_file():
        known = json.loads(place.read_text(encoding="utf-8"))
        if known != wanted and any(folder.glob("*/*.parquet")):
            differing = [key for key in {**known, **wanted} if known.get(key) != wanted.get(key)]
            what = ", ".join("the data" if key == "names" else key for key in differing if key != "count")
            raise WhyformerError(f"{str(folder)!r} holds the results of another suite ({what}): choose another folder.")
    elif folder.exists() and (not folder.is_dir() or set(folder.iterdir()) - {unfinished_of(place)}):
        raise WhyformerError(f"{str(folder)!r} is not empty and holds no suite: choose another folder.")
    write_whole(place, (json.dumps(wanted, indent=1, ensure_ascii=False) + "\n").encode())


@contextmanager
def _told(plan: Plan, todo: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar with the time left on a terminal, elsewhere a line for each shard."""
    terminal, total = Console(stderr=True), len(plan.shards)
    if terminal.is_terminal and not quiet:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=terminal) as bar:
            title = f"{plan.suite.model} on {plan.suite.data.name}, shards"
            task = bar.add_task(title, total=total, completed=total - todo)
            yield lambda number: bar.advance(task)
        return
    done = count(total - todo + 1)

    def tell(number: int) -> None:
        if not quiet:
            terminal.print(f"shard {number} done, {next(done)} of {total}", highlight=False)

    yield tell

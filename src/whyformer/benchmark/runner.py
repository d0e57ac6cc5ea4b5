"""Run a suite from the beginning, or resume an interrupted run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from whyformer.benchmark.engines import local, ray
from whyformer.benchmark.growth import growth_plan, with_known_methods
from whyformer.benchmark.run_folder import claim_folder, finished_shards
from whyformer.benchmark.run_plan import RunPlan, make_plan
from whyformer.benchmark.suite import Suite, read_suite
from whyformer.benchmark.tables import remove_tables, unusable_reasons, write_shard
from whyformer.benchmark.worker import reason_kind
from whyformer.errors import WhyformerError, check_choice
from whyformer.plugins import load_plugins
from whyformer.ray_actors import EngineName


class RunShards(Protocol):
    """An engine, which yields the files of each finished shard."""

    def __call__(
        self, plan: RunPlan, data: Path, shards: list[int], plugins: Sequence[Path] = ()
    ) -> Iterator[tuple[int, dict[str, bytes]]]: ...


ENGINES: dict[str, RunShards] = {"local": local.run_shards, "ray": ray.run_shards}


class NoUsableSample(WhyformerError):
    """No sample of a run could be used, so that there is nothing to report."""


def run_suite(
    suite: str | Path | Suite,
    out: str | Path,
    *,
    data: str | Path = ".",
    engine: EngineName = "local",
    plugins: Sequence[str | Path] = (),
    quiet: bool = False,
) -> Path:
    """Run a suite, or resume an interrupted run; its tables are Parquet files in the folder `out`.

    Args:
        suite: A TOML file, or a Suite from `read_suite` or `make_suite`.
        out: The folder of the run. If it holds the same suite's results, the run continues, and methods that it lacks
            are measured on its samples; anything else is an error. Shards with files that do not match manifest.sha256
            are measured again, with a message.
        data: The folder for relative paths of the suite.
        engine: "local", this process, or "ray", a Ray cluster (RAY_ADDRESS names one).
        plugins: Python files that register methods, readers or protocols; they run here and in every worker.
        quiet: Whether to hide progress.

    Returns:
        The folder `out`.

    Raises:
        WhyformerError: If the suite, its model, its data or every sample cannot be used. Or if the folder holds results
            of another suite, or of other weights, processor, data, plugins, methods' code or version.

    Example:
        >>> import tempfile
        >>> from whyformer.benchmark import make_suite, run_suite
        >>> suite = make_suite({
        ...     "model": "mini-visualbert", "data": {"reader": "scenes", "count": 2},
        ...     "methods": ["rollout"], "protocols": ["localisation"],
        ... })
        >>> folder = run_suite(suite, tempfile.mkdtemp(), quiet=True)
        >>> sorted(path.name for path in folder.iterdir())
        ['explanations', 'manifest.sha256', 'rows', 'samples', 'suite.json']
    """
    check_choice("engine", engine, EngineName)
    plugin_files = [Path(path) for path in plugins]
    load_plugins(plugin_files)
    checked = suite if isinstance(suite, Suite) else read_suite(suite)
    place = Path(data).resolve()
    return run_plan(
        make_plan(checked, place, plugins=plugin_files),
        Path(out),
        place,
        engine=engine,
        plugins=plugin_files,
        quiet=quiet,
    )


def run_plan(
    plan: RunPlan,
    folder: Path,
    data: Path,
    *,
    engine: EngineName,
    plugins: Sequence[Path] = (),
    quiet: bool = False,
    watch: Callable[[int, int], None] | None = None,
) -> Path:
    """Run the unfinished shards of a plan; `watch` is called with the number done and the total.

    Methods that the folder's run lacks are measured on all of its samples, in separate files.
    """
    plan = with_known_methods(folder, plan, plugins)
    claim_folder(folder, plan)
    finished, damage = finished_shards(folder, len(plan.shards), len(plan.grown))
    read = f"{plan.suite.data.name}: {len(plan.examples):,} examples read, {plan.count:,} used."
    _announce([read, *plan.remarks, *damage], quiet=quiet)
    total = len(plan.shards) * (len(plan.grown) + 1)
    with _progress(plan, total - len(finished), total, quiet=quiet) as note_shard:
        for growth in range(len(plan.grown) + 1):
            todo = [number for number in range(len(plan.shards)) if (number, growth) not in finished]
            own = growth_plan(folder, plan, growth) if todo else plan
            for number, tables in ENGINES[engine](own, data, todo, plugins) if todo else ():
                write_shard(folder, number, tables, growth)
                finished.add((number, growth))
                note_shard(number)
                if watch is not None:
                    watch(len(finished), total)
    check_usable(folder, plan)
    return folder


def _announce(lines: Sequence[str], *, quiet: bool) -> None:
    """Print lines about a run to standard error."""
    for line in () if quiet else lines:
        Console(stderr=True, soft_wrap=True).print(line, highlight=False, markup=False)


def check_usable(folder: Path, plan: RunPlan) -> None:
    """Raise if no sample of a run was usable; the folder can be used again."""
    reasons = unusable_reasons(folder)
    if len(reasons) < plan.count:
        return
    remove_tables(folder)
    (kind, times), *others = Counter(map(reason_kind, reasons)).most_common()
    reason = next(one for one in reasons if reason_kind(one) == kind)
    mostly = f", {times} of them for this reason" if others else ""
    raise NoUsableSample(f"None of the {len(reasons)} samples could be used{mostly}: {reason}")


@contextmanager
def _progress(plan: RunPlan, todo: int, total: int, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar with the time left on a terminal, otherwise a line per shard."""
    terminal = Console(stderr=True)
    if terminal.is_terminal and not quiet:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=terminal) as bar:
            title = f"{plan.suite.model} on {plan.suite.data.name}, shards"
            task = bar.add_task(title, total=total, completed=total - todo)
            yield lambda number: bar.advance(task)
        return
    finished = count(total - todo + 1)

    def note_shard(number: int) -> None:
        if not quiet:
            terminal.print(f"shard {number} done, {next(finished)} of {total}", highlight=False)

    yield note_shard

"""Measure every method of the leaderboard in every cell, on the same samples.

    python benchmarks/fill.py --list                                     # what is missing, suite by suite
    python benchmarks/fill.py --data DATA --runs RUNS --out OUT --device cuda --seconds 1100
    python benchmarks/fill.py bert-eraser --data DATA --runs RUNS --out OUT --stages references

Several processes that are given the same RUNS share the work, shard by shard. `common` has every method on the same 300
samples of each suite, `references` also those that ask the model again, on 50 of these, and `whole` has all samples and
the suite's own variants, too. For suites that are too slow, fill.toml has fewer samples, and `missing` has only the
methods without a value, beside the default and the best of each cell. A method that fails on the device is left out,
and the log says so. After a CUDA error the process ends, since everything later would fail as well; the same command
resumes. A stage of a suite is published when all of its shards are there; before, it is no fair sample, since they are
in the order of the data.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import time
import tomllib
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from publish import merged, plain_label, published, write
from submit import opponents
from whyformer.batching import is_out_of_memory
from whyformer.benchmark import make_suite
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.figures import read_run
from whyformer.benchmark.run_folder import claim_folder, finished_shards
from whyformer.benchmark.run_plan import DataSource, RunPlan, make_plan
from whyformer.benchmark.shard import CONTROL
from whyformer.benchmark.suite import Suite, check_methods, locate_model
from whyformer.benchmark.tables import write_shard
from whyformer.benchmark.worker import is_machine_error, make_worker
from whyformer.methods.registry import source_methods
from whyformer.models.loading import load

HERE = Path(__file__).parent
EVALUATION = HERE / "results" / "evaluation"
LISTS = ("methods", "references")
RESUME = "nothing more can be measured in this process. Run the same command again to resume at this shard."
Entry = str | dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """Samples of every suite (all if None; fewer where fill.toml says so), by methods of some lists of fill.toml."""

    name: str
    samples: int | None
    lists: tuple[str, ...]
    shard: int  # samples at most
    only_missing: bool = False  # of the lists only the methods without a value

    def count(self, suite: str) -> int | None:
        """The number of samples of a suite."""
        count: int | None = fill_document()["samples"].get(self.name, {}).get(suite, self.samples)
        return count


STAGES = {
    stage.name: stage
    for stage in (
        Stage("trial", 2, LISTS, 2),
        Stage("common", 300, ("methods",), 100),
        Stage("references", 50, LISTS, 25),
        Stage("missing", 50, ("methods",), 10, only_missing=True),
        Stage("whole", None, ("methods",), 75),
    )
}


@cache
def fill_document() -> dict[str, Any]:
    """The content of fill.toml."""
    return tomllib.loads((HERE / "fill.toml").read_text(encoding="utf-8"))


def read_lists() -> dict[str, tuple[Choice, ...]]:
    """The lists of methods in fill.toml."""
    document = fill_document()
    return {key: check_methods(map(choice_of, document[key]))[: len(document[key])] for key in LISTS}


def is_measured(name: str, published: Mapping[str, Any]) -> bool:
    """Whether a run is on the leaderboard, and its model can be run."""
    document = fill_document()
    off, models = document["off_the_board"], {one["model"] for one in document["empty"]}
    protocols = {one["protocol"].partition(" ")[0] for one in published["protocols"]}
    return name not in off["runs"] and not protocols <= {*off["protocols"]} and published["model"] not in models


def choice_of(entry: Entry) -> Choice:
    if isinstance(entry, str):
        return Choice(entry)
    return Choice(entry["name"], {key: value for key, value in entry.items() if key != "name"})


def results_of(name: str) -> dict[str, Any]:
    """What is published of a suite; a table without rows if nothing is."""
    path = EVALUATION / f"{name}.json"
    nothing = {"left_out": {}, "model": "", "protocols": [{"figures": [{"rows": []}]}]}
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else nothing
    return found


def missing(published: Mapping[str, Any], methods: Iterable[Choice]) -> Iterator[Choice]:
    """The methods without a value in one of the run's tables, but not those that the model refuses."""
    tables = [{plain_label(row["method"]) for row in one["figures"][0]["rows"]} for one in published["protocols"]]
    refused = {plain_label(label) for label in published["left_out"]}
    refused |= {one["method"] for one in fill_document()["refused"] if published["model"] in one["models"]}
    for method in methods:
        if method.label not in refused and not all(method.label in rows for rows in tables):
            yield method


def suite_of(name: str, stage: Stage) -> Suite:
    """A suite with the methods and the number of samples of a stage: all of the suite's methods, or its best alone."""
    document = tomllib.loads((HERE / "suites" / f"{name}.toml").read_text(encoding="utf-8"))
    suite, lists = make_suite(document), read_lists()
    count = stage.count(name)
    is_whole = count is None or count >= (suite.samples or float("inf"))
    best = [choice_of(one) for one in opponents(name) if one["name"] not in source_methods()]
    own = suite.methods if is_whole else best
    listed = [one for key in stage.lists for one in lists[key]]
    if stage.only_missing:
        listed = list(missing(results_of(name), listed))
    by_label = {plain_label(one.label): one for one in (*own, *listed)}
    document["methods"] = [choice.document for choice in by_label.values()]
    document["shard"] = min(4 * suite.shard, stage.shard)
    if count is not None:
        document["samples"] = min(count, suite.samples or count)
    return make_suite(document)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file that other processes wait for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_claimed(path: Path) -> bool:
    """Whether another process has taken this part of the work; otherwise it is now taken by this one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return True
    return False


def is_device_fault(error: BaseException | None) -> bool:
    """Whether an error comes from a fault of the accelerator, which its process cannot use after that."""
    if not isinstance(error, Exception):
        return False
    is_fault = is_machine_error(error) and not is_out_of_memory(error)
    return is_fault or is_device_fault(error.__cause__ or error.__context__)


@dataclass(frozen=True)
class Measurement:
    """A suite in a stage: its plan with the loaded model, and the folder of its run."""

    plan: RunPlan
    folder: Path

    def claim(self, number: int) -> Path:
        """The file that says that a process has taken a shard."""
        return self.folder.with_suffix(".claims") / str(number)

    @property
    def failing(self) -> dict[str, str]:
        """The methods that failed on the device, by label, with the last line of what was raised."""
        path = self.folder.with_suffix(".failing")
        found: dict[str, str] = json.loads(path.read_text()) if path.is_file() else {}
        return found

    def tables(self, number: int) -> dict[str, bytes]:
        """A shard's tables, without the methods that fail on the device; these are found when a shard fails."""
        try:
            return self._tables(self.plan, number)
        except Exception as error:
            if is_device_fault(error):
                raise
            traceback.print_exc()
        with locked(self.folder.with_suffix(".lock")):
            self.folder.with_suffix(".failing").write_text(json.dumps(self.failing | self._find_failing(number)))
        return self._tables(self.plan, number)

    def _find_failing(self, number: int) -> dict[str, str]:
        some = replace(self.plan, shards=(self.plan.shards[number][:2],))
        found = {}
        for choice in self.plan.suite.methods:
            if choice.label not in {CONTROL, *self.failing}:
                try:
                    self._tables(replace(some, suite=replace(some.suite, methods=(choice, Choice(CONTROL)))), 0)
                except Exception as error:
                    if is_device_fault(error):
                        raise
                    found[choice.label] = f"{type(error).__name__}: {error}".splitlines()[0]
                    print(json.dumps({"suite": self.folder.name, "fails": choice.label, "error": found[choice.label]}))
        return found

    def _tables(self, plan: RunPlan, number: int) -> dict[str, bytes]:
        methods = tuple(choice for choice in plan.suite.methods if choice.label not in self.failing)
        return make_worker(replace(plan, suite=replace(plan.suite, methods=methods))).tables(number)

    @property
    def is_whole(self) -> bool:
        with locked(self.folder.with_suffix(".lock")):
            finished, _ = finished_shards(self.folder, len(self.plan.shards))
        return len(finished) == len(self.plan.shards)


def measurement(name: str, stage: Stage, data: Path, runs: Path, device: str) -> Measurement:
    suite, folder = suite_of(name, stage), runs / stage.name / name
    model = load(locate_model(suite.model, data), device=device, dtype="float32")
    plan = make_plan(suite, data, DataSource(model))
    with locked(folder.with_suffix(".lock")):
        claim_folder(folder, plan)
    return Measurement(plan, folder)


def measure_shard(one: Measurement, number: int) -> None:
    """Measure a shard and write its tables; if this fails, a later process may take it."""
    try:
        tables = one.tables(number)
        with locked(one.folder.with_suffix(".lock")):
            write_shard(one.folder, number, tables)
    except BaseException:
        one.claim(number).unlink()
        raise


def measure(name: str, stage: Stage, data: Path, runs: Path, device: str, end: float) -> bool:
    """Measure the shards of a suite that no other process has taken; whether its run is now whole."""
    taken = runs / stage.name / f"{name}.taken"
    is_known = stage is STAGES["whole"] and suite_of(name, stage).samples == suite_of(name, STAGES["common"]).samples
    if is_known or taken.exists():
        return False
    one = measurement(name, stage, data, runs, device)
    for number in range(len(one.plan.shards)):
        if time.monotonic() > end:
            return False
        if is_claimed(one.claim(number)):
            continue
        start = time.monotonic()
        measure_shard(one, number)
        seconds = round(time.monotonic() - start, 1)
        about = {"stage": stage.name, "suite": name, "shard": number, "samples": len(one.plan.shards[number])}
        print(json.dumps(about | {"seconds": seconds}), flush=True)
    taken.touch()
    return one.is_whole and not is_claimed(one.folder.with_suffix(".published"))


def result(name: str, runs: Path) -> dict[str, Any] | None:
    """What is published of a suite with the whole runs of its stages; None if there is none."""
    path = EVALUATION / f"{name}.json"
    found = json.loads(path.read_text()) if path.is_file() else None
    whole = {stage: runs / stage / name for stage in STAGES if (runs / stage / f"{name}.published").exists()}
    by_size = sorted(map(read_run, whole.values()), key=lambda run: -len(run.samples))
    for run in by_size:
        is_all = found is None or len(run.samples) >= found["samples"]
        found = published(run) if run is by_size[0] and is_all else merged(found, run)
    return found if by_size else None


def fill(suites: Sequence[str], options: argparse.Namespace) -> None:
    """Measure stage by stage, and write what is published of each suite whenever a stage of it is whole."""
    end = time.monotonic() + options.seconds
    for stage in map(STAGES.__getitem__, options.stages):
        for name in suites:
            if time.monotonic() > end:
                return
            try:
                if measure(name, stage, options.data, options.runs, options.device, end):
                    with locked(options.runs / f"{name}.lock"):
                        write(result(name, options.runs), options.out / f"{name}.json")
                    print(json.dumps({"stage": stage.name, "suite": name, "published": True}), flush=True)
            except Exception as error:
                traceback.print_exc()
                print(json.dumps({"stage": stage.name, "suite": name, "error": True}), flush=True)
                if is_device_fault(error):
                    raise SystemExit(f"{name}, stage {stage.name}: the device failed, and {RESUME}") from error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="by default those of fill.toml, in its order")
    parser.add_argument("--list", action="store_true", help="print what is missing")
    parser.add_argument("--data", type=Path, default=Path())
    parser.add_argument("--runs", type=Path, help="the folder of the runs, which several processes may share")
    parser.add_argument("--out", type=Path, help="the folder of what is published")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=["common", "references", "whole"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no shard is begun after these")
    options = parser.parse_args()
    suites = options.suites or fill_document()["order"]
    if options.list:
        lists = [choice for methods in read_lists().values() for choice in methods]
        for name in suites:
            lacking = missing(results_of(name), lists)
            print(f"{name}: {', '.join(one.label for one in lacking) or 'nothing'}")
        return
    fill(suites, options)


if __name__ == "__main__":
    main()

"""The engine that computes a suite's shards on a Ray cluster, by Ray Data with an actor per GPU or CPU."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from whyformer.benchmark.run_plan import Earlier, RunPlan, make_plan
from whyformer.benchmark.suite import Suite
from whyformer.benchmark.tables import TABLES
from whyformer.benchmark.worker import Worker, make_worker
from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.models.loading import LoadedModel
from whyformer.ray_actors import TRIES, actor_places, ray_session


class RayWorker:
    """A worker in a separate process, which reads the data and loads the model once."""

    def __init__(
        self, suite: Suite, data: str, attempts: Any, plugins: Sequence[str] = (), earlier: Earlier | None = None
    ) -> None:
        self.suite, self.data, self.attempts, self.plugins = suite, Path(data), attempts, plugins
        self.earlier = earlier
        self.worker: Worker | None = None

    def __call__(self, batch: Any) -> Any:
        """Map the row of a shard's number to the row of its files, or of the reason for their absence."""
        (number,) = batch["shard"].to_pylist()
        tables = self.tables(number)
        row = {"error": tables} if isinstance(tables, str) else tables
        return extra("pyarrow").Table.from_pylist([{"shard": number} | row], _schema())

    def tables(self, number: int) -> dict[str, bytes] | str:
        """The files of a shard, or the reason for their absence: raised here, Ray would bury it in tracebacks."""
        if extra("ray", "ray").get(self.attempts.count.remote(number)) > TRIES:
            return _lost_workers(number)
        try:
            self.worker = self.worker or self._make_worker()
            return self.worker.tables(number)
        except WhyformerError as error:
            return str(error)

    def _make_worker(self) -> Worker:
        from whyformer.plugins import load_plugins

        load_plugins(map(Path, self.plugins))
        plan = make_plan(self.suite, self.data, with_digests=False)
        return make_worker(replace(plan, earlier=self.earlier))


class AttemptCounter:
    """Counts the attempts at each shard, as a separate actor that outlives killed ones."""

    def __init__(self) -> None:
        self.times: Counter[int] = Counter()

    def count(self, number: int) -> int:
        """Count an attempt, and return the total."""
        self.times[number] += 1
        return self.times[number]


def run_shards(
    plan: RunPlan, data: Path, shards: Iterable[int], plugins: Sequence[Path] = ()
) -> Iterator[tuple[int, dict[str, bytes]]]:
    """Yield the files of each finished shard, in any order. Shards of lost actors are retried."""
    if isinstance(plan.model, LoadedModel) or plan.is_in_memory:
        raise WhyformerError(
            "engine='ray' has workers that load the model and read the data themselves: give the model by name or "
            "folder and the data by a reader, or use engine='local'."
        )
    ray, ray_data = extra("ray", "ray"), extra("ray.data", "ray")
    if not ray.is_initialized():
        logging.getLogger("ray.data").setLevel(logging.ERROR)
    with ray_session():
        rows = _rows(ray, ray_data, plan, data, list(shards), plugins)
        for batch in rows.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            for row in batch.to_pylist():
                if row["error"] is not None:
                    raise WhyformerError(row["error"])
                yield row["shard"], {table: row[table] for table in TABLES if row[table] is not None}


def _rows(ray: Any, ray_data: Any, plan: RunPlan, data: Path, shards: list[int], plugins: Sequence[Path]) -> Any:
    """The data set of the shards' files, with an actor per GPU of the cluster, or per CPU without GPUs."""
    count, needs = actor_places(len(shards))
    attempts = ray.remote(AttemptCounter).options(num_cpus=0, max_restarts=-1, max_task_retries=-1).remote()
    numbers = ray_data.from_items([{"shard": number} for number in shards], override_num_blocks=len(shards))
    numbers.context.enable_progress_bars = False  # the run has its own
    return numbers.map_batches(
        RayWorker,
        fn_constructor_args=(
            plan.suite,
            str(data),
            attempts,
            [str(Path(path).resolve()) for path in plugins],
            plan.earlier,
        ),
        batch_size=1,
        batch_format="pyarrow",
        # A shard waits for any free actor, not for a busy or lost one.
        compute=ray_data.ActorPoolStrategy(size=count, max_tasks_in_flight_per_actor=1),
        **needs,
    )


def _schema() -> Any:
    pa = extra("pyarrow")
    columns = {"shard": pa.int64(), "error": pa.string()} | dict.fromkeys(TABLES, pa.binary())
    return pa.schema(columns)


def _lost_workers(number: int) -> str:
    return (
        f"Shard {number} was tried {TRIES} times, and each time its worker was lost, possibly out of memory. "
        "Use --engine local to see the error; finished shards are kept."
    )

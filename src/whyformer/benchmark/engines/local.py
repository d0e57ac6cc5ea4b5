"""The engine that computes a suite's shards sequentially in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from whyformer.benchmark.run_plan import RunPlan
from whyformer.benchmark.worker import make_worker


def run_shards(
    plan: RunPlan, data: Path, shards: Iterable[int], plugins: Sequence[Path] = ()
) -> Iterator[tuple[int, dict[str, bytes]]]:
    """Yield the files of each finished shard."""
    worker = make_worker(plan)
    for number in shards:
        yield number, worker.tables(number)

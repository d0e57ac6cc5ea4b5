"""The engine that does a suite's shards one after the other, here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from whyformer.benchmark.worker import Plan, worker_of


def tables(plan: Plan, data: Path, shards: Iterable[int]) -> Iterator[tuple[int, dict[str, bytes]]]:
    """The files of each shard as soon as it is done."""
    worker = worker_of(plan, data)
    for number in shards:
        yield number, worker.tables(number)

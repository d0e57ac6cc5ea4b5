"""The engine that does a suite's shards on a Ray cluster: an actor for each GPU or CPU, which loads the model once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.run.suite import Suite
from whyformer.run.work import Plan, Worker, plan_of, worker_of


class Hand:
    """A worker in a process of its own, which reads the data and loads the model itself."""

    def __init__(self, suite: Suite, data: str) -> None:
        self.suite, self.data = suite, Path(data)
        self.worker: Worker | None = None

    def tables(self, number: int) -> dict[str, bytes] | str:
        """The files of a shard, or why there are none: raised here, Ray would bury it in tracebacks."""
        try:
            self.worker = self.worker or worker_of(plan_of(self.suite, self.data), self.data)
            return self.worker.tables(number)
        except WhyformerError as error:
            return str(error)


def tables(plan: Plan, data: Path, shards: Iterable[int]) -> Iterator[tuple[int, dict[str, bytes]]]:
    """The files of each shard as soon as it is done, in whatever order. What a lost actor was doing is done again."""
    ray = extra("ray", "ray")
    was_running = ray.is_initialized()
    if not was_running:
        ray.init(log_to_driver=False)  # RAY_ADDRESS names a cluster
    try:
        yield from _done(ray, plan, data, list(shards))
    finally:
        if not was_running:
            ray.shutdown()


def _done(ray: Any, plan: Plan, data: Path, shards: list[int]) -> Iterator[tuple[int, dict[str, bytes]]]:
    hands = _hands(ray, plan, data, len(shards))
    waiting = iter(shards)
    running: dict[Any, tuple[Any, int]] = {}

    def give(hand: Any) -> None:
        number = next(waiting, None)
        if number is not None:
            running[hand.tables.remote(number)] = (hand, number)

    for hand in hands:
        give(hand)
    while running:
        (finished, *_), _ = ray.wait(list(running))
        hand, number = running.pop(finished)
        found = ray.get(finished)
        if isinstance(found, str):
            raise WhyformerError(found)
        give(hand)
        yield number, found


def _hands(ray: Any, plan: Plan, data: Path, most: int) -> list[Any]:
    """An actor for every GPU of the cluster, or for every CPU where it has none; no more than there are shards."""
    resources = ray.cluster_resources()
    gpus, cpus = (int(resources.get(name, 0)) for name in ("GPU", "CPU"))
    needs = {"num_gpus": 1, "num_cpus": 1} if gpus else {"num_cpus": 1}
    # A process that is killed is started again, and does again what it had not finished.
    actor = ray.remote(Hand).options(max_restarts=-1, max_task_retries=-1, **needs)
    return [actor.remote(plan.suite, str(data)) for _ in range(max(1, min(gpus or cpus, most)))]

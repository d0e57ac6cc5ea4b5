"""Actors on a Ray cluster: one on each GPU, or on each CPU of a cluster without GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from whyformer.extras import extra

EngineName = Literal["local", "ray"]
TRIES = 3  # per task: Ray itself would retry one that kills its worker forever
_Task = TypeVar("_Task")


@contextmanager
def ray_session() -> Iterator[Any]:
    """Connect to the cluster that RAY_ADDRESS names, or start one here; a connection made before is left open."""
    ray = extra("ray", "ray")
    was_running = ray.is_initialized()
    if not was_running:
        ray.init(log_to_driver=False)
    try:
        yield ray
    finally:
        if not was_running:
            ray.shutdown()


def actor_places(most: int) -> tuple[int, dict[str, int]]:
    """The number of actors that the cluster has room for, at most so many, and what each takes of it."""
    resources = extra("ray", "ray").cluster_resources()
    gpus, cpus = (int(resources.get(name, 0)) for name in ("GPU", "CPU"))
    return max(1, min(gpus or cpus, most)), {"num_cpus": 1} | ({"num_gpus": 1} if gpus else {})


def start_actors(kind: type, most: int, *arguments: Any) -> list[Any]:
    """Actors of a class. Lost ones start again, and their task is tried again."""
    count, needs = actor_places(most)
    actor = extra("ray", "ray").remote(kind).options(**needs, max_restarts=-1, max_task_retries=TRIES - 1)
    return [actor.remote(*arguments) for _ in range(count)]


def finished_tasks(
    actors: Sequence[Any], submit: Callable[[Any, _Task], Any], tasks: Iterable[_Task]
) -> Iterator[tuple[int, _Task, Any]]:
    """Give each task to a free actor; yield its number, itself and the reference to its result, in any order."""
    ray = extra("ray", "ray")
    free, queue, running = list(actors), enumerate(tasks), dict[Any, tuple[Any, int, _Task]]()
    while True:
        while free and (entry := next(queue, None)) is not None:
            actor = free.pop()
            running[submit(actor, entry[1])] = actor, *entry
        if not running:
            return
        (ready, *_), _ = ray.wait(list(running), num_returns=1)
        actor, number, task = running.pop(ready)
        free.append(actor)
        yield number, task, ready


def full_path(name: str) -> str:
    """The absolute path of a file or folder, since workers may start in other folders; other names are unchanged."""
    place, mark, suffix = name.partition("?")
    return f"{Path(place).resolve()}{mark}{suffix}" if Path(place).exists() else name

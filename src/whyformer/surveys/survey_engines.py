"""Engines of a survey: its tasks run in this process, or on actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from whyformer.errors import WhyformerError, check_choice
from whyformer.extras import extra
from whyformer.models.loading import resolve_model
from whyformer.plugins import load_plugins
from whyformer.ray_actors import TRIES, EngineName, finished_tasks, full_path, ray_session, start_actors
from whyformer.surveys.respondents import Respondent

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


class SurveyEngine(Protocol):
    """Calls a function of the respondent and a task for each task; yields the results in the order of the tasks."""

    def __call__(
        self, function: Callable[[Respondent, _Task], _Result], tasks: Iterable[_Task]
    ) -> Iterator[_Result]: ...


@dataclass(frozen=True)
class LocalEngine:
    """Runs tasks one by one in this process."""

    respondent: Respondent

    def __call__(self, function: Callable[[Respondent, _Task], _Result], tasks: Iterable[_Task]) -> Iterator[_Result]:
        return (function(self.respondent, task) for task in tasks)


class SurveyActor:
    """An actor that loads a model at its first task."""

    def __init__(self, model: str, plugins: Sequence[str]) -> None:
        self.model, self.plugins = model, plugins
        self.respondent: Respondent | None = None

    def result(self, function: Callable[[Respondent, Any], Any], task: Any) -> Any:
        """The result of a task, or its error: raised here, Ray would bury it in tracebacks."""
        try:
            if self.respondent is None:
                load_plugins(self.plugins)
                self.respondent = resolve_model(self.model)
            return function(self.respondent, task)
        except WhyformerError as error:
            return error


@dataclass(frozen=True)
class RayEngine:
    """Runs each task on whichever actor is free."""

    actors: Sequence[Any]

    def __call__(self, function: Callable[[Respondent, _Task], _Result], tasks: Iterable[_Task]) -> Iterator[_Result]:
        early: dict[int, Any] = {}  # results whose turn has not come
        turn = 0
        shared = extra("ray", "ray").put(function)
        for number, _, ready in finished_tasks(
            self.actors, lambda actor, task: actor.result.remote(shared, task), tasks
        ):
            early[number] = _received(ready)
            while turn in early:
                yield early.pop(turn)
                turn += 1


def _received(reference: Any) -> Any:
    """The result of a task; raise its error, or that of its worker."""
    ray = extra("ray", "ray")
    try:
        result = ray.get(reference)
    except ray.exceptions.RayActorError as error:
        raise WhyformerError(
            f"A task was tried {TRIES} times, and each time its worker was lost, possibly out of memory. Use engine "
            "local to see the error; what is finished is in the journal."
        ) from error
    if isinstance(result, WhyformerError):
        raise result
    return result


def check_engine(engine: EngineName, model: Any, processor: Any) -> None:
    """Raise unless workers can load the model themselves, and Ray is installed."""
    check_choice("engine", engine, EngineName)
    if engine == "local":
        return
    if not isinstance(model, (str, Path)) or processor is not None:
        raise WhyformerError(
            "engine='ray' has workers that load the model themselves: give the model by name or folder, or use "
            "engine='local'."
        )
    extra("ray", "ray")


@contextmanager
def survey_engine(engine: EngineName, respondent: Respondent, model: Any, most: int) -> Iterator[SurveyEngine]:
    """The engine by name; a Ray cluster has at most so many workers, each with the model and the loaded plugins."""
    if engine == "local":
        yield LocalEngine(respondent)
        return
    with ray_session():
        plugins = load_plugins(entry_points=False)  # the names of those loaded before
        yield RayEngine(start_actors(SurveyActor, most, full_path(str(model)), plugins))

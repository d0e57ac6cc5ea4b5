"""Engines of surveys: what Ray cannot run is refused before any work; errors of workers are those of this process."""

import importlib

import numpy as np
import pytest
import ray

from whyformer import WhyformerError, explain, load, survey
from whyformer.models.loading import LoadedModel
from whyformer.ray_actors import finished_tasks, full_path
from whyformer.surveys.survey_engines import RayEngine, SurveyActor

FILMS = ["a wonderful film", "a dull film"] * 4


def odds(texts):
    return np.full((len(texts), 2), 0.5)


NAMED = r"engine='ray' has workers that load the model themselves: give the model by name or folder"
REFUSED = {
    "a model object": (lambda: {"model": load("mini-bert").model, "engine": "ray"}, NAMED),
    "a loaded model": (lambda: {"model": load("mini-bert"), "engine": "ray"}, NAMED),
    "a function": (lambda: {"model": None, "predict": odds, "engine": "ray"}, NAMED),
    "a processor": (lambda: {"model": "mini-bert", "processor": load("mini-bert").processor, "engine": "ray"}, NAMED),
    "another engine": (lambda: {"model": "mini-bert", "engine": "slurm"}, r"engine='slurm'\. Choose from: local, ray"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_an_engine_cannot_run_is_refused_in_a_line(case):
    settings, message = REFUSED[case]
    with pytest.raises(WhyformerError, match=message) as caught:
        survey(data=FILMS, **settings())
    assert "\n" not in str(caught.value)


def test_without_ray_the_error_names_the_extra(monkeypatch):
    real = importlib.import_module

    def without_ray(name, *rest):
        if name == "ray":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without_ray)
    with pytest.raises(WhyformerError, match=r"^This needs ray: in the checkout, pip install -e '\.\[ray\]'\.$"):
        survey("mini-bert", FILMS, engine="ray")


class Remote:
    """A method of an actor in this process: references are results, or errors that `get` raises."""

    def __init__(self, function):
        self.remote = function


@pytest.fixture
def immediate(monkeypatch):
    """Ray without a cluster: the last task that was given out is finished first."""
    results = {}

    def submit(value):
        results[len(results)] = value
        return len(results) - 1

    def get(reference):
        if isinstance(results[reference], ray.exceptions.RayError):
            raise results[reference]
        return results[reference]

    monkeypatch.setattr(ray, "put", lambda value: value)
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray, "wait", lambda running, num_returns: (sorted(running)[-1:], sorted(running)[:-1]))
    return submit


def actors_for(submit, count, answer):
    class Actor:
        result = Remote(lambda function, task: submit(answer(function, task)))

    return [Actor() for _ in range(count)]


def test_results_are_in_the_order_of_the_tasks_and_no_task_waits_for_a_busy_worker(immediate):
    actors = actors_for(immediate, 3, lambda function, task: function(None, task))
    order = [task for _, task, _ in finished_tasks(actors, lambda actor, task: immediate(task), range(7))]
    assert order == [2, 3, 4, 5, 6, 1, 0]
    assert list(RayEngine(actors)(lambda _, task: 10 * task, range(7))) == [0, 10, 20, 30, 40, 50, 60]


def test_an_error_of_a_task_is_raised_as_here_and_a_lost_worker_in_a_line(immediate):
    actor = SurveyActor("no-such-model", ())
    with pytest.raises(WhyformerError) as here:
        explain("a film", "no-such-model")
    engine = RayEngine(actors_for(immediate, 1, actor.result))
    with pytest.raises(WhyformerError) as there:
        list(engine(lambda model, task: task, [1]))
    assert str(there.value) == str(here.value)
    lost = RayEngine(actors_for(immediate, 1, lambda function, task: ray.exceptions.RayActorError()))
    with pytest.raises(WhyformerError, match=r"^A task was tried 3 times, and each time its worker was lost"):
        list(lost(lambda model, task: task, [1]))


def test_a_worker_loads_its_model_once():
    actor = SurveyActor("mini-bert", ())
    assert isinstance(actor.result(lambda model, task: model, 1), LoadedModel)
    assert actor.result(lambda model, task: model, 1) is actor.result(lambda model, task: model, 2)


def test_a_path_is_absolute_and_a_name_is_unchanged(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path)
    assert full_path("own") == str(tmp_path / "own")
    assert full_path("own?random") == f"{tmp_path / 'own'}?random"
    assert full_path("mini-bert") == "mini-bert"
    assert full_path("timm:resnet18") == "timm:resnet18"

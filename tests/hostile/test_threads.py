"""Many threads explain one model at once: every value is that of one thread, and the model is left as it was."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from tiny_hybrids import HYBRIDS
from tiny_models import FAMILIES, inputs_of, text_inputs
from whyformer import attribute
from whyformer.backward.blocks import find_blocks
from whyformer.models import calls
from whyformer.tracing import plan
from whyformer.watching.linear_kernels import KERNELS

THREADS = 8
WAYS = {
    "whole graph": ("evidence", {"checkpoint": False}),
    "block by block": ("evidence", {"checkpoint": True}),
    "relevance block by block": ("lrp", {"rules": "z_plus", "checkpoint": True}),
    "each block's own score": ("attention_gradient", {"scores": "each"}),
    "the automatic choice": ("generic_attention", {}),
}


@pytest.fixture(autouse=True)
def frequent_switches():
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def many_blocks_are_large(monkeypatch):
    """Long texts go block by block by themselves, short ones do not."""
    monkeypatch.setattr(plan, "KEPT", 3 * 20**2)


def texts(length):
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(3, 60, (1, length), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def state_of(model):
    """Everything that hangs on each module of a model, by identity; hooks and parameters by their own."""
    return [
        {name: list(map(id, value.values())) if isinstance(value, dict) else id(value) for name, value in own.items()}
        for own in map(vars, model.modules())
    ]


def scores_of(attribution):
    (scores,) = attribution.values()
    return scores


def together(tasks):
    """The results of all tasks, each in a thread of its own, started at once."""
    start = Barrier(len(tasks))

    def run(task):
        start.wait()
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(run, task) for task in tasks]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("many_blocks_are_large")
def test_eight_threads_get_what_one_gets_by_every_way_back(way):
    (method, options), model = WAYS[way], FAMILIES["bert"]().double()
    inputs = [texts(length) for length in (5, 7, 9, 11, 30, 33, 36, 39)]
    expected = [attribute(model, one, 1, method, **options)["text"] for one in inputs]
    before = state_of(model)
    for _ in range(4):
        results = together([lambda one=one: attribute(model, one, 1, method, **options)["text"] for one in inputs])
        for result, value in zip(results, expected, strict=True):
            assert torch.equal(result, value)
    assert state_of(model) == before
    assert not calls._USERS


def test_different_ways_back_at_once_do_not_meet():
    model = FAMILIES["vit"]().double()
    inputs = {name: value.double() for name, value in inputs_of("vit").items()}
    ways = [way for way in WAYS.values() for _ in range(2)][:THREADS]
    expected = [scores_of(attribute(model, inputs, 1, method, **options)) for method, options in ways]
    before = state_of(model)
    for _ in range(3):
        results = together(
            [lambda m=m, options=options: scores_of(attribute(model, inputs, 1, m, **options)) for m, options in ways]
        )
        assert all(torch.equal(result, value) for result, value in zip(results, expected, strict=True))
    assert state_of(model) == before


@pytest.mark.parametrize("way", ["block by block", "each block's own score"])
def test_a_plain_forward_pass_in_another_thread_is_bit_equal(way):
    (method, options), model, inputs = WAYS[way], FAMILIES["bert"](), text_inputs()

    @torch.no_grad()
    def logits():
        return [model(**inputs).logits for _ in range(10)]

    expected = logits()[0]
    explain = [lambda: attribute(model, inputs, 1, method, **options)] * 2
    for results in together([*explain, logits, logits])[2:]:
        assert all(torch.equal(result, expected) for result in results)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("way", ["block by block", "each block's own score"])
def test_whatever_is_raised_inside_leaves_the_model_as_it_was(way, error):
    (method, options), model, inputs = WAYS[way], FAMILIES["bert"](), text_inputs()
    expected = attribute(model, inputs, 1, method, **options)["text"]

    def fail(*_):
        raise error

    handle = find_blocks(model)[1].register_forward_hook(fail)
    before = state_of(model)
    with pytest.raises(error):
        attribute(model, inputs, 1, method, **options)
    assert state_of(model) == before
    assert not calls._USERS
    handle.remove()
    assert torch.equal(attribute(model, inputs, 1, method, **options)["text"], expected)


def test_a_forward_function_that_somebody_put_in_place_stays_there():
    model, inputs = FAMILIES["bert"](), text_inputs()
    block = find_blocks(model)[0]
    expected = attribute(model, inputs, 1, "evidence", checkpoint=True)["text"]
    block.forward = lambda *args, own=block.forward, **kwargs: own(*args, **kwargs)
    before = state_of(model)
    results = together([lambda: attribute(model, inputs, 1, "evidence", checkpoint=True)["text"]] * THREADS)
    assert all(torch.equal(result, expected) for result in results)
    assert state_of(model) == before


# Not RecurrentGemma: it keeps its state in the module, so that it answers one thread at a time, explained or not.
HYBRID_WAYS = {"a function": "Qwen3-Next", "beside attention": "Falcon-H1"}


def kernels_of(model):
    """What stands where kernels are rerouted: in the files of the classes, and in their modules."""
    files = {sys.modules[type(module).__module__] for module in model.modules()}
    return [vars(place).get(name) for place in (*files, *model.modules()) for name in KERNELS]


@pytest.mark.parametrize("way", HYBRID_WAYS)
def test_threads_that_see_the_kernels_of_a_hybrid_and_others_that_run_it_do_not_meet(way):
    model = HYBRIDS[HYBRID_WAYS[way]]()
    inputs = [texts(length) for length in (5, 6, 7, 8)]

    @torch.no_grad()
    def logits():
        return [model(**inputs[0], use_cache=False).logits for _ in range(5)]

    expected = [attribute(model, one, 1, "generic_attention")["text"] for one in inputs]
    answer, before = logits()[0], kernels_of(model)
    results = together(
        [lambda one=one: attribute(model, one, 1, "generic_attention")["text"] for one in inputs] + [logits] * 2
    )
    assert all(torch.equal(result, value) for result, value in zip(results[:4], expected, strict=True))
    assert all(torch.equal(result, answer) for several in results[4:] for result in several)
    assert kernels_of(model) == before
    assert not calls._KERNELS


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_whatever_is_raised_inside_leaves_the_kernels_of_a_hybrid_in_place(error):
    model, inputs = HYBRIDS["Qwen3-Next"](), texts(5)

    def fail(*_):
        raise error

    handle = find_blocks(model)[1].register_forward_hook(fail)
    before = kernels_of(model)
    with pytest.raises(error):
        attribute(model, inputs, 1, "rollout")
    assert kernels_of(model) == before
    assert not calls._KERNELS
    handle.remove()
    assert torch.isfinite(attribute(model, inputs, 1, "rollout")["text"]).all()

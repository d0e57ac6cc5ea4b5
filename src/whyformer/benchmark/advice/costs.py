"""What an explanation costs beside a plain answer, measured on the samples at hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import torch

from whyformer.benchmark.batch import collate_samples, encode_sample
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.maps import compute_maps
from whyformer.benchmark.questions import answer
from whyformer.benchmark.samples import make_sample
from whyformer.benchmark.shard import make_shard
from whyformer.benchmark.worker import Worker

SAMPLES = 2
TIMES = 2  # each is timed; the fastest counts


def explanation_costs(
    worker: Worker, numbers: Sequence[int], methods: Sequence[Choice], end: float
) -> dict[str, tuple[float, float]]:
    """Of each method, an explanation's cost in forward passes and its seconds; none of responses, or after the end."""
    plan = worker.plan
    samples = [make_sample(plan.examples[number], worker.loaded_model, plan.labels) for number in numbers[:SAMPLES]]
    if any(sample.response is not None for sample in samples):
        return {}
    batch = collate_samples(worker.loaded_model, [encode_sample(worker.loaded_model, sample) for sample in samples])
    shard = make_shard(worker.loaded_model, batch, methods, worker.batch_size, plan.suite.seed)
    forward = _seconds(lambda: answer(shard.questions, shard.batch.inputs, worker.batch_size))
    targeted = shard.questions.targeted(shard.logits.argmax(dim=1))
    costs = {}
    for choice in methods:
        if time.perf_counter() >= end:
            break
        seconds = _seconds(partial(compute_maps, shard, worker.loaded_model, targeted, choice.label))
        costs[choice.label] = (seconds / forward, seconds / len(samples))
    return costs


def _seconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(TIMES):
        start = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)

"""Cost of an explanation relative to a forward pass, measured on the given samples."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from whyformer.benchmark.batch import collate_samples, encode_sample
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.method_maps import compute_maps
from whyformer.benchmark.sample_targets import answer
from whyformer.benchmark.samples import make_sample
from whyformer.benchmark.shard import make_shard
from whyformer.benchmark.worker import Worker
from whyformer.models.structure import device_of

TIMED_SAMPLES = 2
TIMES = 5  # alternating answers and explanations, of which the medians are taken


@dataclass(frozen=True)
class Cost:
    """The computing time of an explanation, as a multiple of a plain answer's and in seconds."""

    answers: float
    seconds: float


def explanation_costs(worker: Worker, numbers: Sequence[int], methods: Sequence[Choice], end: float) -> dict[str, Cost]:
    """The cost of each method on the first samples; empty for responses, or if time has run out."""
    plan = worker.plan
    samples = [
        make_sample(plan.examples[number], worker.loaded_model, plan.labels) for number in numbers[:TIMED_SAMPLES]
    ]
    if any(sample.response is not None for sample in samples):
        return {}
    batch = collate_samples(worker.loaded_model, [encode_sample(worker.loaded_model, sample) for sample in samples])
    shard = make_shard(worker.loaded_model, batch, methods, worker.batch_size, plan.suite.seed)
    targeted = shard.questions.targeted(shard.logits.argmax(dim=1))
    give_answer = partial(answer, shard.questions, shard.batch.inputs, worker.batch_size)
    costs = {}
    for choice in methods:
        if time.perf_counter() >= end:
            break
        explain = partial(compute_maps, shard, worker.loaded_model, targeted, choice.label)
        one = explanation_cost(give_answer, explain, device_of(worker.loaded_model.model))
        costs[choice.label] = replace(one, seconds=one.seconds / len(samples))
    return costs


def explanation_cost(give_answer: Callable[[], object], explain: Callable[[], object], device: torch.device) -> Cost:
    """Measure the cost of an explanation relative to an answer, alternating for equal conditions."""
    give_answer()  # warm-up, such as compiling kernels
    explain()
    pairs = [(_seconds(give_answer, device), _seconds(explain, device)) for _ in range(TIMES)]
    answer_seconds, explanation_seconds = (statistics.median(times) for times in zip(*pairs, strict=True))
    return Cost(explanation_seconds / max(answer_seconds, 1e-9), explanation_seconds)


def _seconds(call: Callable[[], object], device: torch.device) -> float:
    """The CPU time of this process, which other programs hardly affect; on other devices elapsed time."""
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    start = clock()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - start

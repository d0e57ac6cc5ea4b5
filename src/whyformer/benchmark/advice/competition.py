"""Methods compete on batches of samples until one is left, or data or time run out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from whyformer.benchmark.advice.costs import Cost, explanation_costs
from whyformer.benchmark.advice.elimination import Correction, looks, losers
from whyformer.benchmark.advice.protocol_choice import Contest
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.protocols import protocol_named
from whyformer.benchmark.reporting.charts import CONTROLS
from whyformer.benchmark.run_plan import RunPlan
from whyformer.benchmark.tables import NOTE, ROW_TABLE, SAMPLE_TABLE, TABLES, Record, parquet, write_shard
from whyformer.benchmark.worker import Worker, shard_records
from whyformer.errors import WhyformerError

PIECE = 8  # the most samples that are measured together
MOST_SAMPLES = 512  # samples: more would not change the advice


@dataclass(eq=False)
class Competition:
    """State of a competition: values by measure, method and sample, the remaining methods, and those dropped."""

    alive: list[Choice]
    values: dict[tuple[str, str], dict[str, dict[int, Any]]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    costs: Mapping[str, Cost] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    errors: dict[int, dict[str, str]] = field(default_factory=dict)

    def take(self, records: Mapping[str, list[Any]]) -> None:
        """Add the records of a piece."""
        for sample in records[SAMPLE_TABLE]:
            if sample.get("error"):
                self.errors[sample["sample"]] = {"name": sample["name"], "error": sample["error"]}
            else:
                self.names[sample["sample"]] = sample["name"]
        for row in records[ROW_TABLE]:
            if row["protocol"] == NOTE:
                self.left_out.setdefault(row["method"], row["text"])
            elif row.get("values") and not row.get("at"):
                by_method = self.values.setdefault((row["protocol"], row["measure"]), {})
                by_method.setdefault(row["method"], {})[row["sample"]] = row["values"]
        self.alive = [choice for choice in self.alive if choice.label not in self.left_out]

    def deciding(self, question: Contest) -> dict[str, dict[int, float]]:
        """The deciding value of each sample, by method; higher is better."""
        figure = protocol_named(question.protocol.name).figures[question.figure]
        sign = -1.0 if figure.better == "lower" else 1.0
        by_method = self.values.get((question.protocol.label, figure.measure), {})
        finite = {
            method: {sample: sign * values[0] for sample, values in each.items() if np.isfinite(values[0])}
            for method, each in by_method.items()
        }
        return {method: values for method, values in finite.items() if values}

    def drop_losers(self, question: Contest, correction: Correction, samples: int) -> None:
        """Drop the methods that are significantly behind after this many samples."""
        values = self.deciding(question)
        labels = [one.label for one in self.alive if one.label in values]
        if len(labels) > 1:
            lost = losers(values, labels, correction)
            self.dropped |= dict.fromkeys(lost, samples)
            self.alive = [one for one in self.alive if one.label not in lost]


@dataclass(eq=False)
class SampleMeasurement:
    """Measures methods on samples, and tracks the time per sample and method and the time left."""

    worker: Worker
    folder: Path
    end: float  # by time.perf_counter
    seconds_each: float = 0.0
    files: int = 0

    def records(self, numbers: Sequence[int], methods: Sequence[Choice]) -> dict[str, list[Record]]:
        """Measure these methods on these samples; the records are also written to the folder."""
        start, plan = time.perf_counter(), self.worker.plan
        # A plan is rejected if no sample of its first shard can be used; here others may follow.
        part = replace(plan, suite=replace(plan.suite, methods=tuple(methods)), shards=((), tuple(numbers)))
        records = shard_records(part, self.worker.loaded_model, self.worker.batch_size, 1)
        write_shard(self.folder, self.files, {table: parquet(table, records[table]) for table in TABLES})
        self.files += 1
        self.seconds_each = (time.perf_counter() - start) / (len(methods) * len(numbers))
        return records

    @property
    def is_over(self) -> bool:
        return time.perf_counter() >= self.end

    def room(self, methods: int) -> int:
        """The number of samples to measure next: half of those that there is time for, down to one at the end.

        So the time limit holds even if the last ones take longer.
        """
        seconds = max(0.0, self.end - time.perf_counter())
        fitting = int(min(2 * PIECE, seconds / max(1e-9, self.seconds_each * methods)))
        return (fitting + 1) // 2


def between_looks(plan: RunPlan, seed: int) -> RunPlan:
    """Shuffle the samples by the seed, with a shard for those between two looks.

    Within a shard the longest texts come first: a batch is padded to its longest, so that later ones take no longer
    than those that were timed.
    """
    numbers = [number for shard in plan.shards for number in shard]
    order = np.random.default_rng(seed).permutation(numbers)[:MOST_SAMPLES].tolist()
    edges = (0, *looks(len(order)))
    length = partial(_length, plan)
    shards = (tuple(sorted(order[low:high], key=length, reverse=True)) for low, high in pairwise(edges))
    return replace(plan, shards=tuple(shards))


def _length(plan: RunPlan, number: int) -> int:
    """The number of characters of a text; all other samples have equal length."""
    if plan.suite.protocols[0].name != "text_perturbation":
        return 0
    try:
        return len(getattr(plan.examples[number], "text", ""))
    except WhyformerError:  # it cannot be read, which is noted later
        return 0


def compete(measurement: SampleMeasurement, question: Contest, console: Console) -> tuple[Competition, Correction]:
    """Measure batch by batch until one method is left, or data or time run out."""
    plan = measurement.worker.plan
    competition = Competition([one for one in plan.suite.methods if one.name not in CONTROLS])
    controls = [one for one in plan.suite.methods if one.name in CONTROLS]
    correction = Correction(len(competition.alive), len(plan.shards), plan.suite.seed)
    groups = [list(shard) for shard in plan.shards]
    _measure_first(measurement, competition, groups[0], controls, console)
    done = plan.count - sum(map(len, groups))
    for group in groups:
        while group:
            methods = (*competition.alive, *controls)
            piece = group[: measurement.room(len(methods))]
            if not piece:
                return competition, correction
            competition.take(measurement.records(piece, methods))
            del group[: len(piece)]
            done += len(piece)
            if not group:
                competition.drop_losers(question, correction, done)
            left = f"{len(competition.alive)} method{'s' if len(competition.alive) != 1 else ''} left"
            console.print(f"{done} of {plan.count} samples, {left}", highlight=False)
        if len(competition.alive) == 1 and competition.dropped:
            break
    return competition, correction


def _measure_first(
    measurement: SampleMeasurement,
    competition: Competition,
    group: list[int],
    controls: Sequence[Choice],
    console: Console,
) -> None:
    """Measure one sample method by method, checking the time after each.

    Unusable samples of the group are skipped.
    """
    contenders, seconds = list(competition.alive), []
    while group and not competition.names:
        number = group.pop(0)
        for choice in _while_in_time(measurement, (*contenders, *controls)):
            competition.take(measurement.records([number], [choice]))
            if number in competition.errors:
                break
            seconds.append(measurement.seconds_each)
            console.print(f"sample 1, {choice.label}: {measurement.seconds_each:.1f} s", highlight=False)
    if contenders and not competition.alive:
        reason = next(iter(competition.left_out.values()))
        raise WhyformerError(f"No method applies to {measurement.worker.plan.suite.model}: {reason}")
    if seconds:
        measurement.seconds_each = sum(seconds) / len(seconds)
        competition.costs = explanation_costs(
            measurement.worker, list(competition.names), competition.alive, measurement.end
        )


def _while_in_time(measurement: SampleMeasurement, methods: Sequence[Choice]) -> Iterator[Choice]:
    """The methods until time runs out, at least the first."""
    yield methods[0]
    yield from takewhile(lambda _: not measurement.is_over, methods[1:])

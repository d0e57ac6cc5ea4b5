"""The work of one shard: its samples read, explained and put to the protocols. The same under every engine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from whyformer.data import Examples
from whyformer.errors import WhyformerError
from whyformer.loading import Loaded, load
from whyformer.run.pace import Pace, is_the_machines
from whyformer.run.protocols import protocol_named
from whyformer.run.samples import READERS, Sample, sample_of
from whyformer.run.shard import NotFinite, Shard, check_sample, shard_of
from whyformer.run.suite import Suite, located
from whyformer.run.tables import (
    EXPLANATIONS,
    ROWS,
    SAMPLES,
    Record,
    explanation_records,
    parquet,
    row_records,
    sample_record,
    sample_records,
)


@dataclass(frozen=True)
class Plan:
    """A suite with its data: which samples there are, and which of them each shard holds."""

    suite: Suite
    examples: Examples[Any]
    shards: tuple[tuple[int, ...], ...]

    @property
    def labels(self) -> Mapping[str, str]:
        assert not isinstance(self.suite.labels, str)  # a file of them was read when the plan was made
        return self.suite.labels

    @property
    def document(self) -> dict[str, Any]:
        """What decides the results, as plain data; the names of the samples by their digest."""
        names = [self.examples.names[number] for shard in self.shards for number in shard]
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
        return self.suite.document | {"names": digest, "count": len(names)}


def plan_of(suite: Suite, data: Path) -> Plan:
    """The suite's samples, drawn by its seed, in the order of the data."""
    placed = located(suite, data)
    examples = READERS[suite.data.name](**placed.data.options)
    if not len(examples):
        raise WhyformerError(f"{suite.data.label} has no examples.")
    count = len(examples) if suite.samples is None else min(suite.samples, len(examples))
    drawn = np.sort(np.random.default_rng(suite.seed).permutation(len(examples))[:count]).tolist()
    shards = tuple(tuple(drawn[start : start + suite.shard]) for start in range(0, count, suite.shard))
    return Plan(replace(suite, labels=placed.labels), examples, shards)


@dataclass(frozen=True, eq=False)
class Worker:
    """A model, loaded once, that does the work of shards."""

    plan: Plan
    subject: Loaded
    pace: Pace

    def tables(self, number: int) -> dict[str, bytes]:
        """The files of a shard, by the names of the tables."""
        records = results(self.plan, self.subject, self.pace, number)
        return {table: parquet(table, found) for table, found in records.items()}


def worker_of(plan: Plan, data: Path, device: str | None = None) -> Worker:
    """The worker that loads the suite's model."""
    return Worker(plan, load(located(plan.suite, data).model, device=device), Pace(plan.suite.batch))


def results(plan: Plan, subject: Loaded, pace: Pace, number: int) -> dict[str, list[Record]]:
    """The records of every table of a shard; samples that turn out to be unusable are left out of it."""
    numbers = plan.shards[number]
    samples, wrong = _readable(plan, subject, numbers)
    found: dict[str, list[Record]] = {SAMPLES: [], EXPLANATIONS: [], ROWS: []}
    while samples:
        try:
            found = _found(plan, subject, pace, samples)
            break
        except NotFinite as broken:
            for place in [place for row, place in enumerate(samples) if row in broken.rows]:
                del samples[place]
                wrong[place] = sample_record(place, plan.examples.names[place], str(broken))
    described = {record["sample"]: record for record in found[SAMPLES]} | wrong
    return found | {SAMPLES: [described[place] for place in numbers]}


def _found(plan: Plan, subject: Loaded, pace: Pace, samples: Mapping[int, Sample]) -> dict[str, list[Record]]:
    """The records of these samples, by their numbers."""
    suite, numbers = plan.suite, list(samples)
    methods = {choice.label: (choice.name, dict(choice.options)) for choice in suite.methods}
    shard = shard_of(subject, list(samples.values()), methods, pace, suite.seed)
    rows: list[Record] = []
    for choice in suite.protocols:
        found = protocol_named(choice.name).found(shard, **choice.options)
        rows += row_records(choice.label, found, numbers)
    return {
        SAMPLES: list(sample_records(shard, numbers)),
        EXPLANATIONS: list(explanation_records(shard, numbers)),
        ROWS: rows + _left_out(shard, numbers),
    }


def _readable(plan: Plan, subject: Loaded, numbers: Sequence[int]) -> tuple[dict[int, Sample], dict[int, Record]]:
    """The samples, and the records of those that cannot be used."""
    samples: dict[int, Sample] = {}
    wrong: dict[int, Record] = {}
    for number in numbers:
        try:
            sample = sample_of(plan.examples[number], subject, plan.labels)
            check_sample(subject, sample)
            samples[number] = sample
        except Exception as error:  # a damaged sample can fail anywhere in decoders, tokenizers and processors
            if is_the_machines(error):
                raise
            reason = " ".join(f"{error}".split()) or type(error).__name__
            wrong[number] = sample_record(number, plan.examples.names[number], reason)
    return samples, wrong


def _left_out(shard: Shard, numbers: Sequence[int]) -> list[Record]:
    """Why methods are not in the tables."""
    return [
        {"sample": numbers[0], "protocol": "", "method": method, "measure": "left out", "text": reason}
        for method, reason in shard.left_out.items()
    ]

"""The work of one shard: its samples read, explained and put to the protocols. The same under every engine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from whyformer.benchmark.batch_size import BatchSize, is_the_machines
from whyformer.benchmark.protocols import protocol_named
from whyformer.benchmark.samples import READERS, Sample, sample_of
from whyformer.benchmark.shard import NotFinite, Shard, check_sample, shard_of
from whyformer.benchmark.suite import Suite, located
from whyformer.benchmark.tables import (
    EXPLANATIONS,
    NOTE,
    ROWS,
    SAMPLES,
    Record,
    explanation_records,
    parquet,
    row_records,
    sample_record,
    sample_records,
)
from whyformer.data import Examples
from whyformer.errors import WhyformerError
from whyformer.models.loading import LoadedModel, load

LOOKED_AT = 32  # samples beyond the first shard, before a suite is refused


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
    loaded_model: LoadedModel
    pace: BatchSize

    def tables(self, number: int) -> dict[str, bytes]:
        """The files of a shard, by the names of the tables."""
        records = results(self.plan, self.loaded_model, self.pace, number)
        return {table: parquet(table, found) for table, found in records.items()}


def worker_of(plan: Plan, data: Path, device: str | None = None) -> Worker:
    """The worker that loads the suite's model."""
    return Worker(plan, load(located(plan.suite, data).model, device=device), BatchSize(plan.suite.batch))


@dataclass(frozen=True)
class Unusable:
    """Why a sample cannot be used, and whether it could at least be read."""

    reason: str
    is_read: bool

    @property
    def kind(self) -> str | None:
        """The reason without the names and numbers in it; None where the sample itself is damaged."""
        first = re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "…", self.reason).partition(". ")[0]
        return first if self.is_read else None


def results(plan: Plan, loaded_model: LoadedModel, pace: BatchSize, number: int) -> dict[str, list[Record]]:
    """The records of every table of a shard; samples that turn out to be unusable are left out of it."""
    numbers = plan.shards[number]
    tried = {place: _tried(plan, loaded_model, place) for place in numbers}
    samples = {place: one for place, one in tried.items() if isinstance(one, Sample)}
    unusable = {place: one for place, one in tried.items() if isinstance(one, Unusable)}
    if number == 0 and not samples:
        _check_fit(plan, loaded_model, list(unusable.values()))
    wrong = {place: sample_record(place, plan.examples.names[place], one.reason) for place, one in unusable.items()}
    found: dict[str, list[Record]] = {SAMPLES: [], EXPLANATIONS: [], ROWS: []}
    while samples:
        try:
            found = _found(plan, loaded_model, pace, samples)
            break
        except NotFinite as broken:
            for place in [place for row, place in enumerate(samples) if row in broken.rows]:
                del samples[place]
                wrong[place] = sample_record(place, plan.examples.names[place], str(broken))
    described = {record["sample"]: record for record in found[SAMPLES]} | wrong
    return found | {SAMPLES: [described[place] for place in numbers]}


def _found(
    plan: Plan, loaded_model: LoadedModel, pace: BatchSize, samples: Mapping[int, Sample]
) -> dict[str, list[Record]]:
    """The records of these samples, by their numbers."""
    suite, numbers = plan.suite, list(samples)
    methods = {choice.label: (choice.name, dict(choice.options)) for choice in suite.methods}
    shard = shard_of(loaded_model, list(samples.values()), methods, pace, suite.seed)
    rows: list[Record] = []
    for choice in suite.protocols:
        found = protocol_named(choice.name).found(shard, **choice.options)
        rows += row_records(choice.label, found, numbers)
    return {
        SAMPLES: list(sample_records(shard, numbers)),
        EXPLANATIONS: list(explanation_records(shard, numbers)),
        ROWS: rows + _left_out(shard, numbers),
    }


def _tried(plan: Plan, loaded_model: LoadedModel, number: int) -> Sample | Unusable:
    """A sample that the model can be asked about, or why it cannot."""
    is_read = False
    try:
        example = plan.examples[number]
        is_read = True
        sample = sample_of(example, loaded_model, plan.labels)
        check_sample(loaded_model, sample)
    except Exception as error:  # a damaged sample can fail anywhere in decoders, tokenizers and processors
        if is_the_machines(error):
            raise
        return Unusable(" ".join(f"{error}".split()) or type(error).__name__, is_read)
    return sample


def _check_fit(plan: Plan, loaded_model: LoadedModel, first: Sequence[Unusable]) -> None:
    """Refuse a suite whose data, labels and model do not fit together: not all samples are damaged in the same way.

    No sample of the first shard can be used. Data is often in the order of its labels, so others are looked at too.
    """
    elsewhere = [shard[0] for shard in plan.shards[1 :: 1 + len(plan.shards) // LOOKED_AT]]
    kinds = {one.kind for one in first}
    for number in elsewhere if len(kinds) == 1 else ():
        one = _tried(plan, loaded_model, number)
        kinds.add(one.kind if isinstance(one, Unusable) else None)
    if len(kinds) == 1 and None not in kinds:
        reason = f"No sample can be used: {first[0].reason} Mend the suite's model, [data] or [labels]."
        raise WhyformerError(reason)


def _left_out(shard: Shard, numbers: Sequence[int]) -> list[Record]:
    """Why methods are not in the tables."""
    return [
        {"sample": numbers[0], "protocol": NOTE, "method": method, "measure": "left out", "text": reason}
        for method, reason in shard.left_out.items()
    ]

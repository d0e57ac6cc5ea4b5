"""Compute one shard: read its samples, explain them and run the protocols. Shared by all engines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from whyformer.batching import MemoryLimit, is_out_of_memory
from whyformer.benchmark.batch import EncodedSample, SampleBatch, collate_samples, encode_sample
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.protocols import protocol_named
from whyformer.benchmark.run_plan import Earlier, RunPlan
from whyformer.benchmark.samples import make_sample
from whyformer.benchmark.shard import CONTROL, NotFinite, Shard, make_shard
from whyformer.benchmark.tables import (
    EXPLANATION_TABLE,
    NOTE,
    ROW_TABLE,
    SAMPLE_TABLE,
    Record,
    explanation_records,
    parquet,
    row_records,
    sample_record,
    sample_records,
)
from whyformer.errors import WhyformerError
from whyformer.models.loading import LoadedModel, load

EXAMINED_SAMPLES = 32  # samples beyond the first shard to try before rejecting a suite


@dataclass(frozen=True, eq=False)
class Worker:
    """A model, loaded once, and the shards it is measured on."""

    plan: RunPlan
    loaded_model: LoadedModel
    batch_size: MemoryLimit

    def tables(self, number: int) -> dict[str, bytes]:
        """The files of a shard, by the names of the tables."""
        by_table = shard_records(self.plan, self.loaded_model, self.batch_size, number)
        return {table: parquet(table, records) for table, records in by_table.items()}


def make_worker(plan: RunPlan, device: str | None = None) -> Worker:
    """Make a worker with the plan's model, loading it if necessary."""
    if isinstance(plan.model, LoadedModel):
        return Worker(plan, plan.model, MemoryLimit(plan.suite.batch))
    loaded_model = load(plan.model, device=device, dtype="float32")  # on every machine, so that runs are comparable
    return Worker(plan, loaded_model, MemoryLimit(plan.suite.batch))


@dataclass(frozen=True)
class Unusable:
    """Why a sample cannot be used, and whether it could be read."""

    reason: str
    is_read: bool

    @property
    def kind(self) -> str | None:
        """The kind of the reason; None if the sample is damaged."""
        return reason_kind(self.reason) if self.is_read else None


def reason_kind(reason: str) -> str:
    """The first sentence of a reason without the names and numbers in it."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "…", reason).partition(". ")[0]


def shard_records(
    plan: RunPlan, loaded_model: LoadedModel, batch_size: MemoryLimit, number: int
) -> dict[str, list[Record]]:
    """The records of every table of a shard, without unusable samples; of a growth those of its methods."""
    earlier = plan.earlier
    numbers = [one for one in plan.shards[number] if earlier is None or one not in earlier.unusable]
    encoded, batch, unusable = _encode_shard(plan, loaded_model, numbers)
    if number == 0 and batch is None and earlier is None:
        _check_fit(plan, loaded_model, list(unusable.values()))
    errors = {place: one.reason for place, one in unusable.items()}
    records: dict[str, list[Record]] = {SAMPLE_TABLE: [], EXPLANATION_TABLE: [], ROW_TABLE: []}
    while batch is not None:
        try:
            records = _measure(plan, loaded_model, batch_size, batch, list(encoded))
            break
        except NotFinite as broken:
            for place in [place for row, place in enumerate(encoded) if row in broken.rows]:
                del encoded[place]
                errors[place] = str(broken)
            batch = collate_samples(loaded_model, list(encoded.values())) if encoded else None
    if earlier is not None:
        return _new_records(plan, earlier, records)
    by_number = {record["sample"]: record for record in records[SAMPLE_TABLE]}
    by_number |= {place: sample_record(place, plan.examples.names[place], error) for place, error in errors.items()}
    return records | {SAMPLE_TABLE: [by_number[place] for place in numbers]}


def _new_records(plan: RunPlan, earlier: Earlier, records: dict[str, list[Record]]) -> dict[str, list[Record]]:
    """The records of the methods that were added to a run, without those of the control and of what it has."""
    own = {choice.label for choice in plan.suite.methods}
    maps = [one for one in records[EXPLANATION_TABLE] if one["method"] in own]
    new = (one for one in records[ROW_TABLE] if (one["protocol"], one["method"]) not in earlier.values)
    return {EXPLANATION_TABLE: maps, ROW_TABLE: [one for one in new if one["method"] != CONTROL or CONTROL in own]}


def _encode_shard(
    plan: RunPlan, loaded_model: LoadedModel, numbers: Sequence[int]
) -> tuple[dict[int, EncodedSample], SampleBatch | None, dict[int, Unusable]]:
    """Batch the usable samples, and give the reason for each unusable one."""
    results = {place: _try_sample(plan, loaded_model, place) for place in numbers}
    encoded = {place: one for place, one in results.items() if isinstance(one, EncodedSample)}
    unusable = {place: one for place, one in results.items() if isinstance(one, Unusable)}
    if not encoded:
        return encoded, None, unusable
    try:
        return encoded, collate_samples(loaded_model, list(encoded.values())), unusable
    except Exception as error:  # a processor may stumble over one picture of a batch
        if is_machine_error(error):
            raise
    for place, one in list(encoded.items()):
        reason = _why_not_collated(loaded_model, one)
        if reason is not None:
            unusable[place] = reason
            del encoded[place]
    return encoded, collate_samples(loaded_model, list(encoded.values())) if encoded else None, unusable


def _try_sample(plan: RunPlan, loaded_model: LoadedModel, number: int) -> EncodedSample | Unusable:
    """Encode a sample, or return why it cannot be used."""
    is_read = False
    try:
        example = plan.examples[number]
        is_read = True
        return encode_sample(loaded_model, make_sample(example, loaded_model, plan.labels))
    except Exception as error:  # a damaged sample can fail anywhere in decoders, tokenizers and processors
        if is_machine_error(error):
            raise
        return Unusable(_one_line(error), is_read)


def _why_not_collated(loaded_model: LoadedModel, encoded: EncodedSample) -> Unusable | None:
    try:
        collate_samples(loaded_model, [encoded])
    except Exception as error:
        if is_machine_error(error):
            raise
        return Unusable(_one_line(error), is_read=True)
    return None


def _one_line(error: Exception) -> str:
    return " ".join(f"{error}".split()) or type(error).__name__


def _check_fit(plan: RunPlan, loaded_model: LoadedModel, first: Sequence[Unusable]) -> None:
    """Raise if the data, labels and model of a suite do not fit together, rather than single samples being damaged.

    No sample of the first shard can be used. Data is often sorted by label, so others are tried too.
    """
    elsewhere = [shard[0] for shard in plan.shards[1 :: 1 + len(plan.shards) // EXAMINED_SAMPLES]]
    kinds = {one.kind for one in first}
    for number in elsewhere if len(kinds) == 1 else ():
        _, _, unusable = _encode_shard(plan, loaded_model, [number])
        kinds.add(unusable[number].kind if number in unusable else None)
    if len(kinds) == 1 and None not in kinds:
        reason = f"No sample can be used: {first[0].reason} Fix the suite's model, [data] or [labels]."
        raise WhyformerError(reason)


def _measure(
    plan: RunPlan, loaded_model: LoadedModel, batch_size: MemoryLimit, batch: SampleBatch, numbers: Sequence[int]
) -> dict[str, list[Record]]:
    """Measure a batch of samples with these indices."""
    suite = plan.suite
    methods, known = suite.methods, frozenset[str]()
    if plan.earlier is not None:  # with the control, for protocols that would be left without a method
        methods = (*methods, *(() if CONTROL in {one.name for one in methods} else (Choice(CONTROL),)))
        known = frozenset(method for _, method in plan.earlier.values) - {choice.label for choice in methods}
    shard = make_shard(loaded_model, batch, methods, batch_size, suite.seed, known)
    rows: list[Record] = []
    for choice in suite.protocols:
        columns = protocol_named(choice.name).measure(shard, **choice.options)
        rows += row_records(choice.label, columns, numbers)
    return {
        SAMPLE_TABLE: list(sample_records(shard, numbers)),
        EXPLANATION_TABLE: list(explanation_records(shard, numbers)),
        ROW_TABLE: rows + _left_out_records(shard, numbers),
    }


def _left_out_records(shard: Shard, numbers: Sequence[int]) -> list[Record]:
    """The records of methods that were left out, with reasons."""
    return [
        {"sample": numbers[0], "protocol": NOTE, "method": method, "measure": "left out", "text": reason}
        for method, reason in shard.cache.left_out.items()
    ]


def is_machine_error(error: Exception) -> bool:
    """Whether the accelerator or PyTorch's memory failed, rather than the sample."""
    of_accelerator = getattr(torch, "AcceleratorError", ())  # PyTorch 2.8 and later
    return isinstance(error, RuntimeError) and (isinstance(error, of_accelerator) or is_out_of_memory(error))

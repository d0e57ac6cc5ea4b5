"""The steps of a forward pass: the streams that each attention operation connects, and those the answer depends on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from torch import nn

from whyformer.axes import Inputs, StreamScores, TokenScores
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.models.families import ROW_OF_STREAMS
from whyformer.models.family import Family
from whyformer.models.joined import AttentionShapes, Place, Transfer
from whyformer.tracing.flow import Step, each_record, records_of
from whyformer.tracing.plan import Plan
from whyformer.tracing.question import Question, repeat_inputs
from whyformer.tracing.record import AttentionRecord
from whyformer.watching.deformable import SampledAttention
from whyformer.watching.kernels import Attention
from whyformer.watching.linear_kernels import LinearKernel
from whyformer.watching.mixing import KeptMap, MixedGradient


def places(
    model: nn.Module, inputs: Inputs, family: Family, operations: AttentionShapes, first: int
) -> list[Place | Transfer]:
    """The place of each operation in execution order, with the transfers between streams.

    In a single stream, each operation is a block.
    """
    if family.arrange is not None:
        return list(family.arrange(model, inputs, operations))
    if not family.attention:
        return [Place(first + number, family.stream, family.stream) for number in range(len(operations))]
    calls: Counter[tuple[str, str]] = Counter()
    layers: dict[str, list[str]] = {}
    result: list[Place | Transfer] = []
    for path in (operation.path for operation in operations):
        layer = (re.match(r".*?\.\d+\.", path) or [path])[0]  # the layer: the path up to the first number
        part, turns = _turns(family, path)
        query, key = turns[calls[layer, part] % len(turns)]
        known = layers.setdefault(query, [])
        if layer not in known:
            known.append(layer)
        result.append(Place(known.index(layer), query, key, joins=calls[layer, part] % len(turns) > 0))
        calls[layer, part] += 1
    return result


def with_branches(parts: Sequence[Place | Transfer], is_beside: Sequence[bool]) -> list[Place | Transfer]:
    """The places of one stream, whose operations share a block with the one before where they are branches of it."""
    result: list[Place | Transfer] = list(parts[:1])
    for part, joins in zip(parts[1:], is_beside, strict=True):
        before = result[-1]
        assert isinstance(part, Place)
        assert isinstance(before, Place)
        result.append(replace(part, block=before.block + (not joins), joins=joins))
    return result


def _turns(family: Family, path: str) -> tuple[str, list[tuple[str, str]]]:
    part = next((part for part, _, _ in family.attention if fnmatchcase(path, f"*{part}*")), None)
    if part is None:
        whose = repr(path) if path else "without a plain output projection"
        raise UnsupportedModel(f"The family's row does not assign this attention to streams: {whose}. {ROW_OF_STREAMS}")
    return part, [(query, key) for name, query, key in family.attention if name == part]


def steps_of(parts: Iterable[tuple[AttentionRecord, Place] | Transfer]) -> list[Step]:
    """Group the records into steps, in which all read the same state."""
    steps: list[Step] = []
    for part in parts:
        if isinstance(part, Transfer):
            steps.append(part)
            continue
        record, place = part
        before = steps[-1] if steps else None
        if place.joins and isinstance(before, tuple):
            steps[-1] = (*before, record)
        else:
            steps.append((record,))
    return steps


def reaching(steps: Sequence[Step], read: Iterable[str]) -> tuple[Step, ...]:
    """Drop the steps that cannot reach the answer, going backwards from the streams it is read from."""
    reached = set(read)
    kept: list[Step] = []
    for step in reversed(steps):
        if isinstance(step, Transfer):
            if step.later in reached:
                reached |= {step.earlier}
                kept.append(step)
            continue
        part = tuple(record for record in step if record.query_stream in reached)
        reached |= {record.key_stream for record in part}
        if part:
            kept.append(part)
    return tuple(reversed(kept))


def latest(stream: str, steps: Iterable[Step]) -> str:
    """The last stream that all tokens of a stream move on to and that has queries: the stream of the answer."""
    readers = {record.query_stream for record in records_of(steps)}
    for step in steps:
        if isinstance(step, Transfer) and step.earlier == stream and step.leaving == "all" and step.later in readers:
            stream = step.later
    return stream


def summed(parts: Iterable[tuple[str, TokenScores]]) -> StreamScores:
    """Sum scores by stream, if several read-outs attend to the same one."""
    sums: StreamScores = {}
    for stream, scores in parts:
        sums[stream] = sums[stream] + scores if stream in sums else scores
    return sums


def connected(steps: Iterable[Step]) -> list[frozenset[str]]:
    """Group the streams that attend to each other or are computed from each other; towers are separate."""
    pairs = [(record.query_stream, record.key_stream) for record in records_of(steps)]
    return _groups([*pairs, *_transfers(steps)])


def joined(steps: Iterable[Step]) -> list[frozenset[str]]:
    """Group the streams that are computed from each other: the same tokens, merged or moved."""
    ends = [(stream, stream) for record in records_of(steps) for stream in (record.query_stream, record.key_stream)]
    return _groups([*ends, *_transfers(steps)])


def _transfers(steps: Iterable[Step]) -> list[tuple[str, str]]:
    return [(step.later, step.earlier) for step in steps if isinstance(step, Transfer)]


def _groups(pairs: Iterable[tuple[str, str]]) -> list[frozenset[str]]:
    groups: list[frozenset[str]] = []
    for pair in map(frozenset, pairs):
        overlapping = [group for group in groups if group & pair]
        groups = [group for group in groups if not group & pair] + [pair.union(*overlapping)]
    return groups


def check_scores(count: int, batch: int, plan: Plan) -> None:
    """Raise unless there is one score per example, or several of one example by a backward pass that they can share."""
    if count != batch and not plan.several_scores:
        raise WhyformerError(f"The target returned {count} scores for {batch} examples: return one per example.")


def as_examples(question: Question, steps: tuple[Step, ...], count: int) -> tuple[Question, tuple[Step, ...]]:
    """Repeat the question and its records to one example per score; the gradients have that size already."""
    inputs = repeat_inputs(question.inputs, count, question.batch)
    shared = each_record(steps, lambda record: _shared(record, count))
    copied = tuple(step.repeat(count) if isinstance(step, Transfer) else step for step in shared)
    return replace(question, inputs=inputs, batch=count), copied


def _shared(record: AttentionRecord, count: int) -> AttentionRecord:
    """Repeat the maps of a record, whose gradients are those of each score already."""
    assert isinstance(record.source, (KeptMap, Attention, SampledAttention, LinearKernel))
    source, gradient = record.source.repeat(count), record.gradient_source
    if isinstance(gradient, MixedGradient):
        gradient = replace(gradient, mixing=gradient.mixing.repeat(count))
    tokens = None if record.tokens is None else record.tokens.repeat(count, source.shape[0])
    return replace(record, source=source, gradient_source=gradient, tokens=tokens)

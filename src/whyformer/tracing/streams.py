"""Which streams an attention operation connects, by the family's table and the operation's path."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from whyformer.axes import StreamScores, TokenScores
from whyformer.errors import UnsupportedModel
from whyformer.models.families import ROW_TO_WRITE, Family
from whyformer.tracing.flow import Step
from whyformer.tracing.record import AttentionRecord


@dataclass(frozen=True)
class Place:
    """An operation's block in its stream, its streams, and whether it belongs to the step of the one before it."""

    block: int
    query_stream: str
    key_stream: str
    joins: bool = False


def places(family: Family, paths: Sequence[str], first: int) -> list[Place]:
    """The place of each operation, given in the order they ran. One stream counts its operations as blocks."""
    if not family.attention:
        return [Place(first + number, family.stream, family.stream) for number in range(len(paths))]
    calls: Counter[tuple[str, str]] = Counter()
    layers: dict[str, list[str]] = {}
    result = []
    for path in paths:
        layer = (re.match(r".*?\.\d+\.", path) or [path])[0]  # up to the first number: the layer it is in
        part, turns = _turns(family, path)
        query, key = turns[calls[layer, part] % len(turns)]
        known = layers.setdefault(query, [])
        if layer not in known:
            known.append(layer)
        result.append(Place(known.index(layer), query, key, joins=calls[layer, part] % len(turns) > 0))
        calls[layer, part] += 1
    return result


def _turns(family: Family, path: str) -> tuple[str, list[tuple[str, str]]]:
    part = next((part for part, _, _ in family.attention if part in path), None)
    if part is None:
        whose = repr(path) if path else "without a plain output projection"
        raise UnsupportedModel(f"The family's row does not say whose attention this is: {whose}. {ROW_TO_WRITE}")
    return part, [(query, key) for name, query, key in family.attention if name == part]


def steps_of(records: Iterable[tuple[AttentionRecord, Place]]) -> list[Step]:
    """The records in steps: those of one step read the same state."""
    steps: list[Step] = []
    for record, place in records:
        if place.joins and steps:
            steps[-1] = (*steps[-1], record)
        else:
            steps.append((record,))
    return steps


def reaching(steps: Sequence[Step], read: Iterable[str]) -> tuple[Step, ...]:
    """The steps without what cannot reach the answer: followed backwards from the streams it is read from."""
    reached, kept = set(read), []
    for step in reversed(steps):
        part = tuple(record for record in step if record.query_stream in reached)
        reached |= {record.key_stream for record in part}
        if part:
            kept.append(part)
    return tuple(reversed(kept))


def summed(parts: Iterable[tuple[str, TokenScores]]) -> StreamScores:
    """Scores by their stream; where two read-outs attend to the same one, their sum."""
    sums: StreamScores = {}
    for stream, scores in parts:
        sums[stream] = sums[stream] + scores if stream in sums else scores
    return sums


def connected(steps: Iterable[Step]) -> Iterator[frozenset[str]]:
    """The streams in groups that attend to each other, towers apart."""
    groups: list[frozenset[str]] = []
    for record in (record for step in steps for record in step):
        pair = frozenset({record.query_stream, record.key_stream})
        joined = [group for group in groups if group & pair]
        groups = [group for group in groups if not group & pair] + [pair.union(*joined)]
    yield from groups

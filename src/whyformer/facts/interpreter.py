"""Answer questions from a list of facts, and name the facts that each answer depends on.

The last statement about a relation of a subject wins. Whoever or whatever is with a person or in a container is where
that is, so places are followed from fact to fact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from whyformer.facts.names import PEOPLE, TOWNS

Relation = Literal["place", "colour", "job"]
Ask = Literal["where", "who", "colour", "job"]
UNKNOWN = "unknown"
# The relation that each question follows, and the names at which it ends (any, if none are listed).
READS: dict[str, tuple[Relation, frozenset[str]]] = {
    "where": ("place", frozenset(TOWNS)),
    "who": ("place", frozenset(PEOPLE)),
    "colour": ("colour", frozenset()),
    "job": ("job", frozenset()),
}


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement about a subject.

    Attributes:
        relation: Its place, its colour, or a person's job.
        subject: A person, thing or container.
        value: A town, or the person or container that has it; a colour; a job.
    """

    relation: Relation
    subject: str
    value: str


@dataclass(frozen=True, slots=True)
class Derivation:
    """How an answer follows from facts.

    Attributes:
        value: The name that answers, or "unknown".
        links: For each step, the indices of the facts that state it; any one of them suffices.
        overridden: Indices of facts along the chain that a later one replaced.
    """

    value: str
    links: tuple[tuple[int, ...], ...]
    overridden: tuple[int, ...]


def derive(facts: Sequence[Fact], ask: Ask, subject: str) -> Derivation:
    """Derive the answer to a question about a subject, step by step."""
    relation, ends = READS[ask]
    links: list[tuple[int, ...]] = []
    overridden: list[int] = []
    value, visited = subject, set[str]()
    while value not in visited:  # circular containment has no place
        visited.add(value)
        statements = [
            number for number, fact in enumerate(facts) if fact.subject == value and fact.relation == relation
        ]
        if not statements:
            break
        value = facts[statements[-1]].value
        first = len(statements) - 1
        while first and facts[statements[first - 1]].value == value:
            first -= 1
        links.append(tuple(statements[first:]))
        overridden += statements[:first]
        if not ends or value in ends:
            return Derivation(value, tuple(links), tuple(overridden))
    return Derivation(UNKNOWN, tuple(links), tuple(overridden))

"""Values in two wordings, and the shape of what the prose register writes about."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from whyformer.facts.number_words import spelled, spelled_year


@dataclass(frozen=True)
class Wording:
    """A value as the text states it, and in other words."""

    stated: str
    reworded: str


@dataclass(frozen=True)
class Attribute:
    """An attribute of every entity of a domain.

    Attributes:
        name: Its name.
        values: Its values.
        statements: Sentences that state it, with {entity} and {value}.
        question: The question, with {subject}.
        answer: The answer in the text's own words, with {value}.
        reworded: The answer in other words, with {value}.
    """

    name: str
    values: tuple[Wording, ...]
    statements: tuple[str, ...]
    question: str
    answer: str
    reworded: str


@dataclass(frozen=True)
class ProseDomain:
    """A kind of entity, its invented names, the person through which each is known, and its attributes.

    Attributes:
        name: Its name.
        entities: The names.
        person: Sentences that name the person, with {entity} and {value}.
        by_person: An entity, as the one of its person: {value}.
        attributes: The attributes of every entity.
        setting: Sentences about none of the attributes.
    """

    name: str
    entities: tuple[str, ...]
    person: tuple[str, ...]
    by_person: str
    attributes: tuple[Attribute, ...]
    setting: tuple[str, ...]


def numbers(values: Iterable[int]) -> tuple[Wording, ...]:
    return tuple(Wording(f"{number:,}", spelled(number)) for number in values)


def years(values: Iterable[int]) -> tuple[Wording, ...]:
    return tuple(Wording(str(year), spelled_year(year)) for year in values)


def thousands(values: Iterable[int]) -> tuple[Wording, ...]:
    """A number of a unit, and in words of the unit a thousand times smaller."""
    return tuple(Wording(str(number), f"{spelled(number)} thousand") for number in values)


def pairs(text: str) -> tuple[Wording, ...]:
    """Lines of a value, a bar and the same in other words."""
    lines = [line.split("|") for line in text.strip().splitlines()]
    return tuple(Wording(stated.strip(), reworded.strip()) for stated, reworded in lines)


PERSONS = tuple(
    f"{first} {last}"
    for first, last in zip(
        "Mara Tobias Ingrid Pavel Leonie Henrik Salma Oskar Dorothea Milan Freya Casimir Judith Anselm Noor Viggo Elke "
        "Tarek Sunniva Bogdan Camilla Edgar Rania Lorenz Agathe Matteo Signe Hakan Beatrix Joris Yvonne Arvid".split(),
        "Lindqvist Brandt Solheim Novak Achterberg Dahl Haddad Wiklund Pfeiffer Horvat Ostergaard Wolski Keller Roth "
        "Rahimi Nyberg Vogel Mansour Berge Petrov Duarte Hollis Khalil Steiner Moreau Ricci Thorsen Yilmaz Falk "
        "Desmet Marchand Ekman".split(),
        strict=True,
    )
)
DURATIONS = pairs(
    """
    15 | a quarter of an hour
    30 | half an hour
    45 | three quarters of an hour
    60 | one hour
    75 | an hour and a quarter
    90 | an hour and a half
    105 | an hour and three quarters
    120 | two hours
    150 | two and a half hours
    180 | three hours
    210 | three and a half hours
    240 | four hours
    300 | five hours
    360 | six hours
    """
)
DOSES = pairs(
    """
    100 | a tenth of a gram
    200 | a fifth of a gram
    250 | a quarter of a gram
    400 | two fifths of a gram
    500 | half a gram
    600 | three fifths of a gram
    750 | three quarters of a gram
    800 | four fifths of a gram
    1000 | one gram
    1500 | one and a half grams
    2000 | two grams
    2500 | two and a half grams
    3000 | three grams
    """
)

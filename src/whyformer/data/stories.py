"""Documents with a question, its answer, and the sentences it depends on: Facts World, and natural prose."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Literal

from whyformer.data.examples import Examples
from whyformer.data.readers import reader
from whyformer.facts import Example, Passage, example, prose

AnswerWording = Literal["verbatim", "reworded"]


@dataclass(frozen=True)
class AnsweredPassage:
    """A passage of prose with one of the answers to its question."""

    name: str
    passage: Passage
    answer: str


@reader("facts")
def facts(
    count: int, split: str = "test", seed: int = 0, fewest: int = 3, most: int = 40, hops: int | None = None
) -> Examples[Example]:
    """`count` random documents of a split."""
    names = tuple(f"facts {seed + number}" for number in range(count))
    return Examples(names, partial(_story, split, seed, (fewest, most), hops))


def _story(split: str, seed: int, sentences: tuple[int, int], hops: int | None, number: int) -> Example:
    return example(seed + number, split=split, hops=hops, sentences=sentences)


@reader("prose")
def passages(
    count: int,
    seed: int = 0,
    fewest: int = 8,
    most: int = 60,
    hops: int | None = None,
    wording: AnswerWording = "verbatim",
) -> Examples[AnsweredPassage]:
    """`count` random passages of natural prose whose question has an answer, in the text's words or in others."""
    drawn = ((one, prose(one, sentences=(fewest, most), hops=hops)) for one in itertools.count(seed))
    chosen = list(islice(((one, passage) for one, passage in drawn if passage.question.causes), count))
    names = tuple(f"prose {one}" for one, _ in chosen)

    def answered(number: int) -> AnsweredPassage:
        passage = chosen[number][1]
        answer = passage.question.answer if wording == "verbatim" else passage.question.reworded
        return AnsweredPassage(names[number], passage, answer)

    return Examples(names, answered)

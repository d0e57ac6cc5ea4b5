"""Facts World as a data set: documents with a question, its answer, and the sentences it depends on."""

from __future__ import annotations

from functools import partial

from whyformer.data.examples import Examples
from whyformer.data.readers import reader
from whyformer.facts import Example, example


@reader("facts")
def facts(
    count: int, split: str = "test", seed: int = 0, fewest: int = 3, most: int = 40, hops: int | None = None
) -> Examples[Example]:
    """`count` random documents of a split."""
    names = tuple(f"facts {seed + number}" for number in range(count))
    return Examples(names, partial(_story, split, seed, (fewest, most), hops))


def _story(split: str, seed: int, sentences: tuple[int, int], hops: int | None, number: int) -> Example:
    return example(seed + number, split=split, hops=hops, sentences=sentences)

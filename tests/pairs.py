"""Which pairs of a method and a model are tried, where what is told does not depend on which two are paired."""

from collections.abc import Collection, Sequence
from typing import TypeVar

A, B = TypeVar("A"), TypeVar("B")


def pairs(
    first: Sequence[A], second: Sequence[B], *, with_all: Collection[A | B] = (), every: int = 5
) -> list[tuple[A, B]]:
    """All pairs with one of `with_all`, and of the others every so many-th, so that each has some of the other kind."""
    assert all(one in first or one in second for one in with_all), "a name that nothing has"
    return [
        (one, other)
        for row, one in enumerate(first)
        for column, other in enumerate(second)
        if one in with_all or other in with_all or (row + column) % every == 0
    ]

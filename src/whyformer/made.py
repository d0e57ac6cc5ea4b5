"""Fields that are made when they are read, instead of being kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Held = TypeVar("Held")


class MadeWhenRead(Generic[Held]):
    """A field of a dataclass, given as its value or as a function that makes it anew at each reading."""

    def __init__(self, *default: Held):
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __set__(self, record: object, given: Held | Callable[[], Held]) -> None:
        vars(record)[self._name] = given

    def __get__(self, record: object | None, owner: type) -> Held:
        if record is None:  # a dataclass that asks for the default
            if not self._default:
                raise AttributeError(self._name)
            return self._default[0]
        given: Held | Callable[[], Held] = vars(record)[self._name]
        return given() if callable(given) else given

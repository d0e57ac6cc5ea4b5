"""Readers of data by their names, as suites and `evaluate` call them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from whyformer.data.examples import Examples
from whyformer.errors import WhyformerError, nearest

READERS: dict[str, Callable[..., Examples[Any]]] = {}
Reader = TypeVar("Reader", bound=Callable[..., Examples[Any]])


def reader(name: str, *, replace: bool = False) -> Callable[[Reader], Reader]:
    """Register a reader of data under a name, for suites and `evaluate`, as `@method` registers a method.

    Args:
        name: What suites call it.
        replace: Whether it may take the place of a reader of the same name.

    Returns:
        The decorator of a function whose arguments are the options of the reader and which gives `Examples`: the names
        of the examples, and a function that reads one by its number. Annotate arguments that are files or folders with
        `Path`: suites then take them relative to `--data`.

    Raises:
        WhyformerError: If there is a reader of that name already, or the function takes `*args` or `**kwargs`.

    Example:
        >>> from whyformer.data import Document, Examples, reader
        >>> @reader("shouted", replace=True)
        ... def shouted(texts: list):
        ...     return Examples(tuple(texts), lambda number: Document(texts[number], texts[number].upper(), None))
        >>> shouted(["a fine film"])[0].text
        'A FINE FILM'
    """

    def register(function: Reader) -> Reader:
        if name in READERS and not replace:
            raise WhyformerError(f"There is a reader named {name!r} already: choose another name, or replace=True.")
        kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
        if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
            raise WhyformerError(f"The reader {name!r} takes any arguments: name each of its options instead.")
        READERS[name] = function
        return function

    return register


def reader_named(name: str) -> Callable[..., Examples[Any]]:
    """The reader registered under a name."""
    if name not in READERS:
        raise WhyformerError(f"No reader named {name!r}. {nearest(name, list(READERS))}")
    return READERS[name]

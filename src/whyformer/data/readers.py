"""The registry of data readers for suites and `evaluate`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from whyformer.data.examples import Examples
from whyformer.errors import WhyformerError, nearest

READERS: dict[str, Callable[..., Examples[Any]]] = {}
Reader = TypeVar("Reader", bound=Callable[..., Examples[Any]])


def reader(name: str, *, replace: bool = False) -> Callable[[Reader], Reader]:
    """Register a data reader for suites and `evaluate`, as `@method` registers a method.

    Args:
        name: Its name in suites.
        replace: Replace an existing reader of this name.

    Returns:
        A decorator for a function whose arguments are the reader's options and which returns `Examples`: the names of
        the examples, and a function that reads one by index. Annotate file and folder arguments with `Path`, so that
        suites resolve them relative to `--data`.

    Raises:
        WhyformerError: If a reader of this name exists, or the function takes `*args` or `**kwargs`.

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

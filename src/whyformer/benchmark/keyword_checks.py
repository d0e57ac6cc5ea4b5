"""Check options of readers and protocols against the signatures of their functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from whyformer.errors import WhyformerError


def check_keywords(what: str, function: Callable[..., Any], options: Mapping[str, Any], *, leave_out: int = 0) -> None:
    """Raise for unknown or missing options, and for values outside a Literal."""
    parameters = dict(list(inspect.signature(function).parameters.items())[leave_out:])
    unknown = next((name for name in options if name not in parameters), None)
    if unknown is not None:
        raise WhyformerError(f"{what} has no option {unknown!r}. It takes: {', '.join(parameters) or 'none'}.")
    missing = next((n for n, p in parameters.items() if p.default is p.empty and n not in options), None)
    if missing is not None:
        raise WhyformerError(f"{what} needs {missing}.")
    hints, paths = get_type_hints(function), path_arguments(function)
    for name, value in options.items():
        hint = hints.get(name, Any)
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        if choices and value not in choices:
            raise WhyformerError(f"{what}: {name}={value!r}. Choose from: {', '.join(map(str, choices))}.")
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if {int, bool, str, NoneType}.issuperset(kinds) and type(value) not in kinds:
            raise WhyformerError(f"{what}: {name}={value!r} is not of type {kinds[0].__name__}.")
        if name in paths and not isinstance(value, (str, Path)) and not (value is None and NoneType in kinds):
            raise WhyformerError(f"{what}: {name}={value!r} is not a path.")


def path_arguments(function: Callable[..., Any]) -> set[str]:
    """The names of a function's path arguments."""
    hints = get_type_hints(function)
    return {name for name, hint in hints.items() if (hint is Path or Path in get_args(hint)) and name != "return"}

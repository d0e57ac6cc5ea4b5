"""Dataclasses as plain data of JSON, and back, each value checked against its annotation; where they are saved."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from whyformer.errors import WhyformerError

_Noun = TypeVar("_Noun")


def without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): without_nan(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and value != value else value


def read_noun(noun: type[_Noun], document: Any) -> _Noun:
    """Build a dataclass from its fields, each checked against its annotation."""
    hints = typing.get_type_hints(noun)
    unknown = document.keys() - hints.keys()
    if unknown:
        raise TypeError(f"{noun.__name__} has no field {sorted(unknown)[0]!r:.40}")
    return noun(**{name: _read(hints[name], value) for name, value in document.items()})


def _read(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return read_noun(typing.cast(type, kind), value)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _read(next(one for one in arguments if one is not type(None)), value)
    if origin is typing.Literal:
        if value not in arguments:
            raise TypeError(f"{value!r:.40} is not one of {arguments}")
        return value
    if origin is tuple:
        kinds = [arguments[0]] * len(value) if arguments[-1:] == (...,) else arguments
        return tuple(_read(one, own) for one, own in zip(kinds, value, strict=True))
    if origin is Mapping:
        return {str(name): _read(arguments[1], own) for name, own in value.items()}
    if kind is float:
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise TypeError(f"{value!r:.40} is not a number")
        return float("nan") if value is None else float(value)
    if type(value) is not kind:
        raise TypeError(f"{value!r:.40} is not {kind.__name__}")
    return value


def saved_suffix(path: Path, known: Sequence[str]) -> str:
    """The suffix of a file to be saved; raise if it is not a known one, or its folder does not exist."""
    suffix = path.suffix.lower()
    if suffix not in known:
        raise WhyformerError(f"Cannot save to {str(path)!r}: no format for {path.suffix!r}. Known: {', '.join(known)}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Cannot save to {str(path)!r}: the folder {str(path.parent)!r} does not exist.")
    return suffix

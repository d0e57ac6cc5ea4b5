"""Surveys as plain data, and their files: .json, .parquet, .html."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.files import parse_json, whole_file
from whyformer.metrics.statistics import Interval
from whyformer.render.survey_page import survey_page
from whyformer.surveys.cues import Cue
from whyformer.surveys.proof import Proof
from whyformer.surveys.summary import overview
from whyformer.surveys.survey_result import CueExample, Driver, FailureGroup, ObjectShare, Survey

SURVEY_FORMAT, SURVEY_VERSION = "whyformer-survey", 1
SURVEY_SUFFIXES = (".html", ".json", ".parquet")
_NOUNS = (Cue, CueExample, Driver, FailureGroup, Interval, ObjectShare, Proof, Survey)
_NAMES = {noun.__name__: noun for noun in _NOUNS} | {"Mapping": Mapping}
_Noun = TypeVar("_Noun")


def survey_dict(survey: Survey) -> dict[str, Any]:
    """A survey as numbers, strings, lists and dicts; NaN as None."""
    document = {"format": SURVEY_FORMAT, "version": SURVEY_VERSION, **dataclasses.asdict(survey)}
    plain: dict[str, Any] = _without_nan(document)
    return plain


def read_survey(document: Any) -> Survey:
    """The survey of such a dict; raise if it is not one."""
    if not isinstance(document, dict) or document.get("format") != SURVEY_FORMAT:
        raise WhyformerError("it is not a Whyformer survey")
    if document.get("version") != SURVEY_VERSION:
        raise WhyformerError(f"version {document.get('version')!r:.20}, and this is Whyformer for {SURVEY_VERSION}")
    return _read_noun(Survey, {name: value for name, value in document.items() if name not in ("format", "version")})


def driver_row(driver: Driver) -> dict[str, Any]:
    """A driver as a row of a table."""
    proof = driver.proof
    row: dict[str, Any] = {
        "cue": driver.cue.name,
        "kind": driver.cue.kind,
        "answer": driver.answer,
        "support": driver.support,
        "score": driver.score,
        "leading": driver.leading,
        "wrong": driver.wrong,
        "tested": proof.samples,
    }
    for name in ("drop", "excess", "probability", "flips"):
        interval: Interval = getattr(proof, name)
        row |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return row | {
        "random_flips": proof.random_flips,
        "p": proof.p,
        "q": proof.q,
        "proven": proof.is_proven,
        "should_be_ignored": driver.should_be_ignored,
        "shortcut": driver.is_shortcut,
    }


def save_survey(survey: Survey, path: Path) -> None:
    """Save in the format of the suffix, atomically."""
    suffix = path.suffix.lower()
    if suffix not in SURVEY_SUFFIXES:
        raise WhyformerError(
            f"Cannot save to {str(path)!r}: no format for {path.suffix!r}. Known: {', '.join(SURVEY_SUFFIXES)}."
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Cannot save to {str(path)!r}: the folder {str(path.parent)!r} does not exist.")
    with whole_file(path) as unfinished:
        if suffix == ".parquet":
            rows = [driver_row(driver) for driver in survey.tested]
            extra("pyarrow.parquet").write_table(extra("pyarrow").Table.from_pylist(rows), unfinished)
        elif suffix == ".json":
            unfinished.write_text(json.dumps(survey_dict(survey), allow_nan=False, indent=1), encoding="utf-8")
        else:
            unfinished.write_text(survey_page(survey_dict(survey), overview(survey)), encoding="utf-8")


def load_survey(path: Path) -> Survey:
    """Load a .json file."""
    content = path.read_bytes()
    try:
        return read_survey(parse_json(content))
    except (WhyformerError, ValueError, TypeError, KeyError) as error:
        reason = str(error) if isinstance(error, WhyformerError) else f"{type(error).__name__}: {error!s:.200}"
        raise WhyformerError(f"{str(path)!r} is not a readable Whyformer survey ({reason}).") from error


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _without_nan(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and value != value else value


def _read_noun(noun: type[_Noun], document: Any) -> _Noun:
    """Build a dataclass from its fields, each checked against its annotation."""
    hints = typing.get_type_hints(noun, localns=_NAMES)
    unknown = document.keys() - hints.keys()
    if unknown:
        raise TypeError(f"{noun.__name__} has no field {sorted(unknown)[0]!r:.40}")
    return noun(**{name: _read(hints[name], value) for name, value in document.items()})


def _read(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _read_noun(typing.cast(type, kind), value)
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

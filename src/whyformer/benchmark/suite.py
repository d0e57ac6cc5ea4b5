"""A suite: which model is measured on which data, by which methods and protocols. Written as TOML."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from whyformer.api.attribution import choose_method
from whyformer.benchmark.protocols import protocol_named
from whyformer.benchmark.samples import READERS
from whyformer.benchmark.shard import CONTROL
from whyformer.data.files import existing, json_in
from whyformer.errors import WhyformerError, nearest
from whyformer.methods.registry import METHODS, check_options

KEYS = ("model", "data", "labels", "methods", "protocols", "seed", "samples", "shard", "batch")
ALL = "all"


@dataclass(frozen=True)
class Choice:
    """A reader, method or protocol by its name, with its options."""

    name: str
    options: Mapping[str, Any]

    @property
    def label(self) -> str:
        """What it is called in tables: `bi_token alpha=values`."""
        return " ".join([self.name, *(f"{name}={_shown(value)}" for name, value in self.options.items())])

    @property
    def document(self) -> dict[str, Any]:
        return {"name": self.name, **self.options}


@dataclass(frozen=True)
class Suite:
    """What is run: `samples` of the data (all if None), drawn by the seed, `shard` to a file.

    `batch` is how many inputs a model is asked about at once. `labels` says what labels of the data are called by the
    model, if otherwise: its own label, or the text that a dual encoder compares a picture with; or the JSON file that
    says so.
    """

    model: str
    data: Choice
    methods: tuple[Choice, ...]
    protocols: tuple[Choice, ...]
    labels: Mapping[str, str] | str = field(default_factory=dict)
    seed: int = 0
    samples: int | None = None
    shard: int = 32
    batch: int = 64

    @property
    def document(self) -> dict[str, Any]:
        """The suite as plain data, as it would be written in TOML."""
        return {
            "model": self.model,
            "data": {"reader": self.data.name, **self.data.options},
            "labels": self.labels if isinstance(self.labels, str) else dict(self.labels),
            "methods": [choice.document for choice in self.methods],
            "protocols": [choice.document for choice in self.protocols],
            **{name: getattr(self, name) for name in ("seed", "samples", "shard", "batch")},
        }


def read_suite(path: str | Path) -> Suite:
    """The suite in a TOML file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        return suite_of(tomllib.loads(text))
    except OSError as error:
        raise WhyformerError(f"The suite {str(path)!r} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WhyformerError(f"The suite {str(path)!r} is no TOML: {error}.") from error
    except WhyformerError as error:
        raise WhyformerError(f"{str(path)!r}: {error}") from error


def suite_of(document: Mapping[str, Any]) -> Suite:
    """The suite that this plain data describes; what is unknown in it is refused."""
    unknown = next((key for key in document if key not in KEYS), None)
    if unknown is not None:
        raise WhyformerError(f"A suite has no {unknown!r}. {nearest(unknown, KEYS)}")
    missing = next((key for key in ("model", "data", "methods", "protocols") if not document.get(key)), None)
    if missing is not None:
        raise WhyformerError(f"The suite names no {missing}.")
    if not isinstance(document["model"], str):
        raise WhyformerError(f"model = {document['model']!r}: name one, or its folder.")
    methods = [choice for entry in _entries(document, "methods") for choice in _methods(entry)]
    methods += [Choice(CONTROL, {})] if CONTROL not in [choice.name for choice in methods] else []
    protocols = tuple(_protocol(entry) for entry in _entries(document, "protocols"))
    for kind, choices in (("method", methods), ("protocol", protocols)):
        labels = [choice.label for choice in choices]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise WhyformerError(f"The {kind} {twice!r} is named twice.")
    labels = document.get("labels", {})
    samples = document.get("samples")
    return Suite(
        model=document["model"],
        data=_reader(document["data"]),
        methods=tuple(methods),
        protocols=protocols,
        labels=labels if isinstance(labels, str) else _names(labels),
        seed=_number(document, "seed", 0, at_least=0),
        samples=None if samples is None else _number(document, "samples", 0, at_least=1),
        shard=_number(document, "shard", Suite.shard, at_least=1),
        batch=_number(document, "batch", Suite.batch, at_least=1),
    )


def located(suite: Suite, data: Path) -> Suite:
    """The suite with its relative paths taken from the folder `data`, of reader, model and labels, and these read."""
    paths = path_arguments(READERS[suite.data.name])
    options = {name: str(data / value) if name in paths else value for name, value in suite.data.options.items()}
    model = str(data / suite.model) if (data / suite.model / "config.json").is_file() else suite.model
    labels = _names(json_in(existing(data / suite.labels, "file"))) if isinstance(suite.labels, str) else suite.labels
    return replace(suite, model=model, data=Choice(suite.data.name, options), labels=labels)


def path_arguments(reader: Callable[..., Any]) -> set[str]:
    """The arguments of a reader that are paths."""
    return {name for name, hint in get_type_hints(reader).items() if Path in get_args(hint) and name != "return"}


def check_keywords(what: str, function: Callable[..., Any], options: Mapping[str, Any], *, leave_out: int = 0) -> None:
    """Refuse options that a function does not take, values that its Literals do not hold, and what is missing."""
    parameters = dict(list(inspect.signature(function).parameters.items())[leave_out:])
    unknown = next((name for name in options if name not in parameters), None)
    if unknown is not None:
        known = ", ".join(parameters)
        raise WhyformerError(f"{what} has no option {unknown!r}. It takes: {known or 'none'}.")
    missing = next((n for n, p in parameters.items() if p.default is p.empty and n not in options), None)
    if missing is not None:
        raise WhyformerError(f"{what} needs {missing}.")
    hints = get_type_hints(function)
    for name, value in options.items():
        hint = hints[name]
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        if choices and value not in choices:
            raise WhyformerError(f"{what}: {name}={value!r}. Choose from: {', '.join(map(str, choices))}.")
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if {int, bool, str, NoneType}.issuperset(kinds) and type(value) not in kinds:
            raise WhyformerError(f"{what}: {name}={value!r} is no {kinds[0].__name__}.")


def _names(labels: Any) -> Mapping[str, str]:
    if not isinstance(labels, Mapping) or not all(isinstance(value, str) for value in labels.values()):
        raise WhyformerError("labels is a table: a label of the data = what the model calls it.")
    return labels


def _entries(document: Mapping[str, Any], key: str) -> list[Any]:
    value = document[key]
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, Iterable) or isinstance(entries, Mapping):
        raise WhyformerError(f"{key} is a list of names, or of tables with a name and options.")
    return list(entries)


def _choice(entry: Any, kind: str) -> Choice:
    if isinstance(entry, str):
        return Choice(entry, {})
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise WhyformerError(f"A {kind} is its name, or a table with its name and options, not {entry!r:.60}.")
    return Choice(entry["name"], {name: value for name, value in entry.items() if name != "name"})


def _methods(entry: Any) -> list[Choice]:
    if entry == ALL:
        return [Choice(name, {}) for name in METHODS]
    choice = _choice(entry, "method")
    method, _ = choose_method(choice.name, choice.options.get("backward"))
    check_options(method, {name: value for name, value in choice.options.items() if name != "backward"})
    return [choice]


def _protocol(entry: Any) -> Choice:
    choice = _choice(entry, "protocol")
    check_keywords(choice.name, protocol_named(choice.name).found, choice.options, leave_out=1)
    return choice


def _reader(entry: Any) -> Choice:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("reader"), str):
        raise WhyformerError(f"data names its reader: one of {', '.join(READERS)}.")
    name = entry["reader"]
    if name not in READERS:
        raise WhyformerError(f"No reader named {name!r}. {nearest(name, list(READERS))}")
    options = {key: value for key, value in entry.items() if key != "reader"}
    check_keywords(name, READERS[name], options)
    wrong = next((key for key in path_arguments(READERS[name]) & options.keys() if type(options[key]) is not str), None)
    if wrong is not None:
        raise WhyformerError(f"{name}: {wrong}={options[wrong]!r} is no path.")
    return Choice(name, options)


def _number(document: Mapping[str, Any], name: str, default: int, *, at_least: int) -> int:
    value = document.get(name, default)
    if type(value) is not int or value < at_least:
        raise WhyformerError(f"{name} = {value!r}: a whole number, {at_least} or more.")
    return value


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""A suite: a model, data, methods and protocols to measure, written as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whyformer.api.attribute import choose_method
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.keyword_checks import check_keywords, path_arguments
from whyformer.benchmark.protocols import protocol_named
from whyformer.benchmark.shard import CONTROL
from whyformer.data.dataset_files import existing, json_in
from whyformer.data.readers import reader_named
from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.files import check_levels
from whyformer.methods.option_checks import check_options
from whyformer.methods.registry import trace_methods

ALL_METHODS = "all"  # every method with its default options


@dataclass(frozen=True)
class Suite:
    """A benchmark: `samples` of the data (all if None), drawn by the seed, `shard` of them per file.

    `batch` is the number of inputs that run at once. `labels` are the model's names for the labels of the data, if they
    differ, or the texts that a dual encoder compares pictures with; or a JSON file of these.
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
        """The suite as plain data, as in TOML."""
        return {
            "model": self.model,
            "data": {"reader": self.data.name, **self.data.options},
            "labels": self.labels if isinstance(self.labels, str) else dict(self.labels),
            "methods": [choice.document for choice in self.methods],
            "protocols": [choice.document for choice in self.protocols],
            **{name: getattr(self, name) for name in ("seed", "samples", "shard", "batch")},
        }


def read_suite(path: str | Path) -> Suite:
    """Read a suite from a TOML file.

    Args:
        path: The file.

    Returns:
        The suite, with names, options and values validated; model and data are not loaded yet.

    Raises:
        WhyformerError: If the file cannot be read, is not valid TOML, or is not a valid suite; the message says why.

    Example:
        >>> import pathlib, tempfile
        >>> from whyformer.benchmark import read_suite
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "suite.toml"
        >>> _ = path.write_text(
        ...     'model = "mini-bert"\\nmethods = ["rollout"]\\nprotocols = ["text_perturbation"]\\n'
        ...     '[data]\\nreader = "table"\\npath = "films.csv"'
        ... )
        >>> [choice.label for choice in read_suite(path).methods]
        ['rollout', 'random']
    """
    document = _read_toml(Path(path))
    try:
        return make_suite(document)
    except WhyformerError as error:
        raise WhyformerError(f"{str(path)!r}: {error}") from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        check_levels(document)
    except OSError as error:
        raise WhyformerError(f"The suite {str(path)!r} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise WhyformerError(f"The suite {str(path)!r} is not valid TOML: {error}.") from error
    return document


def make_suite(document: Mapping[str, Any]) -> Suite:
    """Make a suite from plain data, with the keys of a TOML file.

    Args:
        document: The keys of a suite: model, data, methods, protocols; labels, seed, samples, shard, batch.

    Returns:
        The suite, with names, options and values validated; model and data are not loaded yet.

    Raises:
        WhyformerError: If a key, name, option or value is unknown or missing; the message has the nearest names.

    Example:
        >>> from whyformer.benchmark import make_suite
        >>> suite = make_suite({
        ...     "model": "mini-visualbert", "data": {"reader": "scenes", "count": 2},
        ...     "methods": ["rollout"], "protocols": ["localisation"],
        ... })
        >>> suite.samples is None, suite.shard
        (True, 32)
    """
    extra("pydantic")  # raises with the install command if missing
    from whyformer.benchmark.suite_document import check_document

    checked = check_document(dict(document))
    return Suite(
        model=checked.model,
        data=check_reader(checked.data.reader, checked.data.model_extra or {}),
        methods=check_methods(_entries(checked.methods)),
        protocols=check_protocols(_entries(checked.protocols)),
        labels=checked.labels,
        seed=checked.seed,
        samples=checked.samples,
        shard=checked.shard,
        batch=checked.batch,
    )


def suite_schema() -> dict[str, Any]:
    """The JSON schema of suite files, with the names and options of all methods, readers and protocols.

    Returns:
        The schema as plain data. Editors that know TOML or JSON schemas complete and check suites with it.

    Raises:
        WhyformerError: If pydantic, of the extra `eval`, is not installed.

    Example:
        >>> from whyformer.benchmark import suite_schema
        >>> sorted(suite_schema()["required"])
        ['data', 'methods', 'model', 'protocols']
    """
    extra("pydantic")
    from whyformer.benchmark.suite_document import make_schema

    return make_schema()


def check_methods(entries: Iterable[str | Choice]) -> tuple[Choice, ...]:
    """Check the named methods and their options, and add the random control."""
    choices: list[Choice] = []
    for entry in entries:
        if entry == ALL_METHODS:
            choices += [Choice(name) for name in trace_methods()]
            continue
        choice = Choice(entry) if isinstance(entry, str) else entry
        method, _ = choose_method(choice.name, choice.options.get("backward"))
        check_options(method, {name: value for name, value in choice.options.items() if name != "backward"})
        choices.append(choice)
    if CONTROL not in [choice.name for choice in choices]:
        choices.append(Choice(CONTROL))
    _check_once("method", choices)
    return tuple(choices)


def check_protocols(entries: Iterable[str | Choice]) -> tuple[Choice, ...]:
    """Check the named protocols and their options."""
    choices = [Choice(entry) if isinstance(entry, str) else entry for entry in entries]
    for choice in choices:
        check_keywords(choice.name, protocol_named(choice.name).measure, choice.options, leave_out=1)
    _check_once("protocol", choices)
    return tuple(choices)


def check_reader(name: str, options: Mapping[str, Any]) -> Choice:
    """Check a reader and its options."""
    check_keywords(name, reader_named(name), options)
    return Choice(name, dict(options))


def locate_data(suite: Suite, data: Path) -> Suite:
    """Resolve the suite's relative paths of reader, model and labels in the folder `data`, and read the labels."""
    paths = path_arguments(reader_named(suite.data.name))
    options = {
        name: str(data / value) if name in paths and value is not None else value
        for name, value in suite.data.options.items()
    }
    return replace(
        suite,
        model=locate_model(suite.model, data),
        data=Choice(suite.data.name, options),
        labels=read_labels(suite.labels, data),
    )


def locate_model(model: str, data: Path) -> str:
    """The model's folder inside `data` if there is one, otherwise its name."""
    return str(data / model) if (data / model / "config.json").is_file() else model


def read_labels(labels: Mapping[str, str] | str, data: Path) -> Mapping[str, str]:
    """The model's names for the data's labels, read from a JSON file if one is named."""
    names = json_in(existing(data / labels, "file")) if isinstance(labels, str) else labels
    if not isinstance(names, Mapping) or not all(isinstance(value, str) for value in names.values()):
        raise WhyformerError("labels must be a table: a label of the data = the model's name for it.")
    return names


def _entries(value: Any) -> list[str | Choice]:
    """The entries of the document: names, and tables of a name with options."""
    entries = [value] if isinstance(value, str) else value
    return [entry if isinstance(entry, str) else Choice(entry.name, entry.model_extra or {}) for entry in entries]


def _check_once(kind: str, choices: Sequence[Choice]) -> None:
    labels = [choice.label for choice in choices]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise WhyformerError(f"The {kind} {twice!r} is named twice.")

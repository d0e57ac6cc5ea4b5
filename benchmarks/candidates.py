"""What benchmarks/candidates.toml says: who competes for the default, what is measured, and by which figures."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.benchmark.choice import Choice
from whyformer.benchmark.suite import Suite, check_methods, check_protocols, check_reader
from whyformer.errors import WhyformerError

HERE = Path(__file__).parent
FILE = HERE / "candidates.toml"
SUITES = HERE / "suites"
LISTS = ("candidates", "others", "references")  # of methods
FOLLOWS_SUITE = ("samples", "shard", "batch")  # what a run may change of its suite


@dataclass(frozen=True)
class Criterion:
    """A figure of a run that chooses or reports; `seen` by the experiment that proposed a candidate."""

    run: str
    kind: str
    protocol: str
    figure: str
    seen: bool = False

    @property
    def name(self) -> str:
        return f"{self.run}: {self.protocol}, {self.figure}"


@dataclass(frozen=True)
class CandidateRun:
    """A suite whose methods are lists of this file, without the protocols of some labels.

    `seconds` is what it is expected to take on one H200.
    """

    name: str
    suite: str
    methods: tuple[str, ...]
    seconds: float
    changes: Mapping[str, int]
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidates:
    """The whole file; `lists` are the methods under the names that runs call them by."""

    today: Choice
    lists: Mapping[str, tuple[Choice, ...]]
    choices: tuple[Criterion, ...]
    reports: tuple[Criterion, ...]
    runs: tuple[CandidateRun, ...]
    options: tuple[tuple[Choice, Choice], ...] = ()  # today's form of a method, and another

    @property
    def labels(self) -> tuple[str, ...]:
        """What the candidates are called in tables."""
        return tuple(choice.label for choice in self.lists["candidates"])


def read_candidates(path: Path = FILE) -> Candidates:
    """The file, which must name today's default among the candidates, and figures of runs that there are."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    lists = {name: tuple(map(_choice, document[name])) for name in LISTS}
    runs = tuple(_run(entry) for entry in document["run"])
    today = _choice(document["today"])
    choices, reports = (tuple(Criterion(**entry) for entry in document[kind]) for kind in ("choice", "report"))
    options = tuple((_choice(entry["today"]), _choice(entry["other"])) for entry in document.get("option", ()))
    unknown = {one.run for one in (*choices, *reports)} - {run.name for run in runs}
    if unknown or today not in lists["candidates"]:
        raise SystemExit(f"{path.name}: no run named {', '.join(unknown)}, or {today.label} is no candidate.")
    return Candidates(today, lists, choices, reports, runs, options)


def _choice(entry: Mapping[str, Any]) -> Choice:
    return Choice(entry["name"], {name: value for name, value in entry.items() if name != "name"})


def _run(entry: Mapping[str, Any]) -> CandidateRun:
    changes = {key: entry[key] for key in FOLLOWS_SUITE if key in entry}
    name, without = entry.get("name", entry["suite"]), tuple(entry.get("without", ()))
    return CandidateRun(name, entry["suite"], tuple(entry["methods"]), entry["seconds"], changes, without)


def suite_of(run: CandidateRun, lists: Mapping[str, Sequence[Choice]], samples: int | None = None) -> Suite:
    """The suite of a run, with the methods that this version has; fewer samples for a trial."""
    document = tomllib.loads((SUITES / f"{run.suite}.toml").read_text(encoding="utf-8")) | run.changes
    methods = [choice for name in run.methods for choice in lists[name] if why_unknown(choice) is None]
    protocols = [Choice(entry) if isinstance(entry, str) else _choice(entry) for entry in document["protocols"]]
    data = dict(document["data"])
    if samples is not None:
        document["samples"] = min(samples, document.get("samples", samples))
    return Suite(
        model=document["model"],
        data=check_reader(data.pop("reader"), data),
        methods=check_methods(methods),
        protocols=check_protocols([choice for choice in protocols if choice.label not in run.without]),
        labels=document.get("labels", {}),
        **{key: document[key] for key in FOLLOWS_SUITE if key in document},
    )


def why_unknown(choice: Choice) -> str | None:
    """Why this version cannot compute the method; None if it can."""
    try:
        check_methods([choice])
    except WhyformerError as error:
        return str(error)
    return None

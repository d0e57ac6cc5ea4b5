"""A plan: a suite with its data, divided into shards, and everything that determines its results."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from whyformer.api.attribute import choose_method
from whyformer.benchmark.protocols import protocol_named
from whyformer.benchmark.run_digests import (
    PLUGINS,
    RUN_VERSION,
    Digests,
    code_digests,
    data_digest,
    data_remark,
    examples_digest,
    model_digests,
    package_version,
    plugin_digest,
)
from whyformer.benchmark.suite import Suite, locate_data, locate_model, read_labels
from whyformer.data.examples import Examples
from whyformer.data.readers import READERS, reader_named
from whyformer.errors import WhyformerError
from whyformer.models.loading import LoadedModel

DIGESTS, GROWN = "digests", "grown"  # of the document of a run


@dataclass(frozen=True, eq=False)
class DataSource:
    """Objects given instead of names: a loaded model, examples, and their origin."""

    loaded_model: LoadedModel | None = None
    examples: Examples[Any] | None = None
    items: Any = None


@dataclass(frozen=True)
class Earlier:
    """Results that a run had before it grew: the methods with values in each protocol, and the unusable samples."""

    values: frozenset[tuple[str, str]] = frozenset()
    unusable: frozenset[int] = frozenset()


@dataclass(frozen=True)
class RunPlan:
    """The samples and their shards. `model` is the place of the suite's model.

    `grown` is the number of methods that the run had before each of its growths.
    """

    suite: Suite
    model: str | LoadedModel
    examples: Examples[Any]
    shards: tuple[tuple[int, ...], ...]
    digests: Digests = field(default_factory=dict)
    is_in_memory: bool = False  # whether the examples were given as objects
    grown: tuple[int, ...] = ()
    earlier: Earlier | None = None  # of the plan of a growth

    @property
    def labels(self) -> Mapping[str, str]:
        assert not isinstance(self.suite.labels, str)  # a file of labels was read when the plan was made
        return self.suite.labels

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on its digests."""
        remark = data_remark(self.digests.get("data", ""))
        return () if remark is None else (remark,)

    @property
    def count(self) -> int:
        """The number of samples."""
        return sum(map(len, self.shards))

    @property
    def document(self) -> dict[str, Any]:
        """Everything that determines the results, as plain data; sample names by their digest."""
        names = [self.examples.names[number] for shard in self.shards for number in shard]
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
        about = {"names": digest, "count": len(names), DIGESTS: self.digests}
        return self.suite.document | about | ({GROWN: list(self.grown)} if self.grown else {})


def make_plan(
    suite: Suite,
    data: Path,
    source: DataSource | None = None,
    *,
    plugins: Sequence[Path] = (),
    with_digests: bool = True,
) -> RunPlan:
    """Plan a suite: its samples are drawn by its seed, in the order of the data; paths are relative to `data`."""
    source = source or DataSource()
    if source.examples is None:
        placed = locate_data(suite, data)
        labels, model, examples = placed.labels, placed.model, reader_named(suite.data.name)(**placed.data.options)
    else:
        labels, examples = read_labels(suite.labels, data), source.examples
        model = locate_model(suite.model, data)
    if not len(examples):
        raise WhyformerError(f"{suite.data.label} has no examples.")
    count = len(examples) if suite.samples is None else min(suite.samples, len(examples))
    numbers = np.sort(np.random.default_rng(suite.seed).permutation(len(examples))[:count]).tolist()
    shards = tuple(tuple(numbers[start : start + suite.shard]) for start in range(0, count, suite.shard))
    used_model = source.loaded_model or model
    digests: Digests = {}
    if with_digests:
        digests = model_digests(used_model)
        digests["data"] = data_digest(placed.data) if source.examples is None else examples_digest(source.items)
        digests |= {PLUGINS: plugin_digest(plugins, suite_functions(suite)), RUN_VERSION: package_version()}
        digests |= code_digests(suite.methods)
    is_in_memory = source.examples is not None
    return RunPlan(replace(suite, labels=labels), used_model, examples, shards, digests, is_in_memory)


def suite_functions(suite: Suite) -> Iterator[Callable[..., Any]]:
    """Functions that determine a suite's results: methods, protocols and the data reader."""
    for method in suite.methods:
        yield choose_method(method.name, method.options.get("backward"))[0].formula
    for protocol in suite.protocols:
        yield protocol_named(protocol.name).measure
    if suite.data.name in READERS:
        yield READERS[suite.data.name]

"""Evaluate methods from Python, without suite files."""

from __future__ import annotations

import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from whyformer.benchmark.choice import Choice
from whyformer.benchmark.figures import make_figures, read_run
from whyformer.benchmark.reporting.page import markdown, report
from whyformer.benchmark.run_plan import DataSource, make_plan
from whyformer.benchmark.runner import run_plan
from whyformer.benchmark.suite import Suite, check_methods, check_protocols, check_reader
from whyformer.benchmark.tables import ROW_TABLE, SAMPLE_TABLE, whole_table
from whyformer.data.examples import Examples
from whyformer.data.in_memory import memory_examples
from whyformer.errors import WhyformerError, check_choice
from whyformer.extras import extra
from whyformer.inputs.table_files import TABLE_SUFFIXES
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.plugins import load_plugins
from whyformer.ray_actors import EngineName

NamedChoice = str | tuple[str, Mapping[str, Any]] | Mapping[str, Any]  # a method or protocol, with or without options
IN_MEMORY = "examples in memory"  # the name of data given as objects


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Result of `evaluate`: every figure of every method, with its interval and its test against the best.

    Attributes:
        folder: The folder of the three Parquet tables, as written by `whyformer evaluate`.
        results: All tables and curves as plain data, as in `results.json` of a report.

    Example:
        >>> from whyformer.benchmark import evaluate
        >>> evaluate("mini-bert", ["a wonderful film", "a dull film"], "rollout", "text_perturbation")
        <Evaluation of mini-bert on 2 samples: text_perturbation>
    """

    folder: Path
    results: Mapping[str, Any]

    def to_pandas(self) -> Any:
        """The figures as a pandas.DataFrame: a row for each protocol, figure and method, the best first.

        Columns are protocol, figure, method, value, low and high (a 95 % bootstrap interval), samples, better (higher,
        lower or neither) and p. The last is that of a paired permutation test against the best of the figure.
        """
        rows = [
            {
                "protocol": protocol["protocol"],
                "figure": table["figure"],
                **{key: row[key] for key in ("method", "value", "low", "high", "samples")},
                "better": table["better"],
                "p": (row.get("to_best") or {}).get("p"),
            }
            for protocol in self.results["protocols"]
            for table in protocol["tables"]
            for row in table["rows"]
        ]
        return extra("pandas").DataFrame(rows)

    def samples_to_pandas(self) -> Any:
        """Every value of every sample as a pandas.DataFrame: name, protocol, method, measure and values."""
        rows = whole_table(self.folder, ROW_TABLE).to_pylist()
        samples = whole_table(self.folder, SAMPLE_TABLE, ["sample", "name"]).to_pylist()
        names = {sample["sample"]: sample["name"] for sample in samples}
        keys = ("protocol", "method", "measure", "values", "at", "text")
        return extra("pandas").DataFrame(
            [{"name": names[row["sample"]]} | {key: row[key] for key in keys} for row in rows if row["protocol"]]
        )

    def report(self, out: str | Path | None = None) -> Path:
        """Write report.html, report.md, results.json and curves/, by default into the run's folder."""
        return report(self.folder, out=out)

    def __str__(self) -> str:
        return markdown(self.results, with_curves=False)

    def __repr__(self) -> str:
        model = Path(self.results["suite"]["model"]).name
        protocols = ", ".join(protocol["protocol"] for protocol in self.results["protocols"])
        return f"<Evaluation of {model} on {self.results['samples']} samples: {protocols}>"

    def _repr_markdown_(self) -> str:
        return str(self)


def evaluate(
    model: str | Path | nn.Module | LoadedModel,
    data: Any,
    methods: NamedChoice | Iterable[NamedChoice],
    protocols: NamedChoice | Iterable[NamedChoice],
    *,
    processor: Any = None,
    labels: Mapping[str, str] | None = None,
    samples: int | None = None,
    seed: int = 0,
    batch_size: int = 64,
    shard_size: int = 32,
    out: str | Path | None = None,
    data_folder: str | Path = ".",
    engine: EngineName = "local",
    plugins: Sequence[str | Path] = (),
    progress: bool = False,
    watch: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Measure how well methods explain a model on data.

    Args:
        model: A module or `LoadedModel`, a folder, a Hugging Face id, or the name of a bundled model.
        data: The reader of a data set with its options, `("image_folder", {"folder": "photos"})`; a .csv, .tsv, .jsonl
            or .parquet file of texts and labels; a Hugging Face `datasets.Dataset`; or a list or data set of examples.
            An example is a text or picture, a pair of one with its label, a row such as `{"text": …, "label": …}`, or
            `whyformer.data`'s `Photo` or `Document`.
        methods: Names of methods, or `(name, options)`; "all" is every method. The control `random` is always added.
        protocols: Names of protocols, or `(name, options)`, or `{"name": …, option: …}`.
        processor: The processor of your own module, if its folder has none.
        labels: The model's names for the labels of the data, if they differ; for a dual encoder the text for each.
        samples: The number of samples drawn by the seed; by default all.
        seed: The seed of the samples, and of everything random in protocols.
        batch_size: The number of inputs that run at once; halved if memory runs out.
        shard_size: The number of samples that are measured together.
        out: The folder of the tables. An interrupted run resumes there, and methods that the folder's run lacks are
            added to it. By default a temporary one, which lasts as long as the result.
        data_folder: The folder for relative paths of the reader.
        engine: "local", this process, or "ray", a Ray cluster; a module and data in memory need "local".
        plugins: Python files that register methods, readers or protocols; workers run them, too.
        progress: Whether to show progress.
        watch: A function called after each shard with the number done and the total; its exceptions end the run.

    Returns:
        The figures: `to_pandas()`, `report()`, `str()`.

    Raises:
        WhyformerError: If a name or an option is unknown, the model, the data or every sample cannot be used, or `out`
            holds another run.

    Example:
        >>> from whyformer.benchmark import evaluate
        >>> films = [("a wonderful film", "positive"), ("a dull, endless film", "negative"),
        ...          ("I loved every minute", "positive"), ("a waste of time", "negative")]
        >>> result = evaluate("mini-bert", films, ["generic_attention", "rollout"], ["text_perturbation"])
        >>> sorted(set(result.to_pandas()["method"]))
        ['generic_attention', 'random', 'rollout']
    """
    check_choice("engine", engine, EngineName)
    plugin_files = [Path(path) for path in plugins]
    load_plugins(plugin_files)
    place = Path(data_folder).resolve()
    source, choice = source_of(model, data, processor)
    suite = Suite(
        model=source.loaded_model.name if source.loaded_model is not None else str(model),
        data=choice,
        methods=check_methods(choices_of(methods, "method")),
        protocols=check_protocols(choices_of(protocols, "protocol")),
        labels=labels or {},
        seed=natural("seed", seed, 0),
        samples=None if samples is None else natural("samples", samples, 1),
        shard=natural("shard_size", shard_size, 1),
        batch=natural("batch_size", batch_size, 1),
    )
    if not suite.protocols:
        raise WhyformerError("No protocol is named: give at least one, such as ['text_perturbation'].")
    folder = Path(tempfile.mkdtemp(prefix="whyformer-") if out is None else out)
    try:
        plan = make_plan(suite, place, source, plugins=plugin_files, with_digests=out is not None)
        run_plan(plan, folder, place, engine=engine, plugins=plugin_files, quiet=not progress, watch=watch)
        results = json.loads(json.dumps(make_figures(read_run(folder))))
    except BaseException:
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    evaluation = Evaluation(folder, results)
    if out is None:
        weakref.finalize(evaluation, shutil.rmtree, folder, ignore_errors=True)
    return evaluation


def source_of(model: Any, data: Any, processor: Any) -> tuple[DataSource, Choice]:
    """The model and data given as objects, and the name of the data in the suite."""
    is_loaded = isinstance(model, (nn.Module, LoadedModel)) or processor is not None
    loaded_model = resolve_model(model, processor) if is_loaded else None
    if not is_loaded and not isinstance(model, (str, Path)):
        raise WhyformerError(f"model={model!r:.40}: give a module, a LoadedModel, a folder, or a name.")
    if isinstance(data, (str, Path)) and Path(data).suffix.lower() in TABLE_SUFFIXES:
        return DataSource(loaded_model), check_reader("table", {"path": str(data)})
    is_named = isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], str) and isinstance(data[1], Mapping)
    if isinstance(data, str) or is_named:
        name, options = (data, {}) if isinstance(data, str) else data
        return DataSource(loaded_model), check_reader(name, options)
    examples: Examples[Any] = memory_examples(data)
    return DataSource(loaded_model, examples, data), Choice(IN_MEMORY)


def choices_of(named: NamedChoice | Iterable[NamedChoice], kind: str) -> list[str | Choice]:
    """Methods or protocols, in any accepted form."""
    is_one = isinstance(named, (str, Mapping)) or _is_pair(named)
    if not is_one and not isinstance(named, Iterable):
        raise WhyformerError(f"{kind}s={named!r:.40}: give a list of names.")
    return [_entry(entry, kind) for entry in ([named] if is_one else named)]


def _entry(entry: Any, kind: str) -> str | Choice:
    if isinstance(entry, str):
        return entry
    if _is_pair(entry):
        return Choice(entry[0], dict(entry[1]))
    if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
        return Choice(entry["name"], {name: value for name, value in entry.items() if name != "name"})
    raise WhyformerError(f"A {kind} is its name, or (name, options), not {entry!r:.60}.")


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], Mapping)


def natural(name: str, value: Any, least: int) -> int:
    if type(value) is not int or value < least:
        raise WhyformerError(f"{name}={value!r}: a whole number, {least} or more.")
    return value

"""Which method on my model and my data? Methods compete on samples; those that have surely lost are dropped."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from torch import nn

from whyformer.benchmark.advice.costs import explanation_costs
from whyformer.benchmark.advice.elimination import Correction, leader, looks, losers
from whyformer.benchmark.advice.questions import Question, contenders, question_of
from whyformer.benchmark.advice.recommendation import Contender, Recommendation
from whyformer.benchmark.advice.worst import worst_examples
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.evaluation import Named, choices_of, natural, source_of
from whyformer.benchmark.figures import interval_of, value_of
from whyformer.benchmark.plan import Plan, make_plan
from whyformer.benchmark.protocols import Figure, protocol_named
from whyformer.benchmark.reporting.charts import CONTROLS
from whyformer.benchmark.reporting.page import unusable_notes
from whyformer.benchmark.runner import NoUsableSample
from whyformer.benchmark.samples import Sample, make_sample
from whyformer.benchmark.suite import Suite, check_methods
from whyformer.benchmark.tables import NOTE, ROWS, SAMPLES, TABLES, parquet, write_shard
from whyformer.benchmark.worker import Worker, make_worker, reason_kind, shard_records
from whyformer.errors import WhyformerError
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.plugins import load_plugins

PIECE = 8  # samples that are worked on together, between two looks at the clock
MOST = 512  # samples: more make no advice surer than it need be
LOOKED_AT = 5  # samples that say which protocols fit
MAIN = {"segmentation": "mIoU", "rationales": "token F1, mean over top 10 to 80"}  # shown beside what decides


@dataclass(eq=False)
class Competition:
    """What is known so far: values of each measure by method and sample, who is left, and who was dropped when."""

    alive: list[Choice]
    values: dict[tuple[str, str], dict[str, dict[int, Any]]] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    errors: list[dict[str, str]] = field(default_factory=list)

    def take(self, records: Mapping[str, list[Any]]) -> None:
        """Add the records of a shard."""
        for sample in records[SAMPLES]:
            if sample.get("error"):
                self.errors.append({"name": sample["name"], "error": sample["error"]})
            else:
                self.names[sample["sample"]] = sample["name"]
        for row in records[ROWS]:
            if row["protocol"] == NOTE:
                self.left_out.setdefault(row["method"], row["text"])
            elif row.get("values") and not row.get("at"):
                by_method = self.values.setdefault((row["protocol"], row["measure"]), {})
                by_method.setdefault(row["method"], {})[row["sample"]] = row["values"]
        self.alive = [choice for choice in self.alive if choice.label not in self.left_out]


def recommend(
    model: str | Path | nn.Module | LoadedModel,
    data: Any,
    *,
    methods: Named | Iterable[Named] | None = None,
    minutes: float = 5.0,
    processor: Any = None,
    labels: Mapping[str, str] | None = None,
    seed: int = 0,
    data_folder: str | Path = ".",
    plugins: Sequence[str | Path] = (),
    progress: bool = False,
) -> Recommendation:
    """Say which method explains this model best on this data, how surely, and where it fails.

    Methods compete on samples drawn by the seed, by what the model answers when parts of its input go. After 16, 32, 64
    … samples those that are surely behind the best are dropped, with an error rate of 5 % over all looks and methods
    together; it ends when one is left, when the data is over or the time.

    Args:
        model: A module or `LoadedModel`, a folder, a Hugging Face id, or the name of a bundled model.
        data: As `evaluate` takes it: a list of texts, pictures, or pairs of one with its label; rows; a data set; or a
            reader with its options, `("image_folder", {"folder": "photos"})`.
        methods: Those that compete, names or `(name, options)`; if None, ten of every kind.
        minutes: How long it may take, loading the model included; the samples that are begun are finished.
        processor: What makes examples into the inputs of a module, where it is not found beside it.
        labels: What the model calls the labels of the data, where they differ; of a dual encoder the text for each.
        seed: Draws the samples, and all that is random in protocols.
        data_folder: The folder that relative paths of the reader are taken from.
        plugins: Python files that register methods or readers.
        progress: Whether it is shown on standard error how far it is.

    Returns:
        The advice: `print` it, or `save("advice.html")`.

    Raises:
        WhyformerError: A name is unknown, the model or the data cannot be used, not one sample can, or no method
            applies to the model.

    Example:
        >>> import whyformer
        >>> films = [("a wonderful film", "positive"), ("a dull, endless film", "negative")]
        >>> advice = whyformer.recommend("mini-bert", films, methods=["rollout", "input_x_gradient"])
        >>> print(str(advice).split(":")[0])
        A hint, no more
    """
    start = time.perf_counter()
    if not isinstance(minutes, (int, float)) or isinstance(minutes, bool) or not minutes > 0:
        raise WhyformerError(f"minutes={minutes!r}: a number above 0.")
    load_plugins([Path(path) for path in plugins])
    chosen = contenders() if methods is None else choices_of(methods, "method")
    place = Path(data_folder).resolve()
    source, choice = source_of(model, data, processor)
    loaded_model = source.loaded_model or resolve_model(str(model))
    suite = Suite(
        loaded_model.name,
        choice,
        check_methods(chosen),
        (),
        labels=labels or {},
        seed=natural("seed", seed, 0),
        shard=PIECE,
    )
    drawn = make_plan(suite, place, replace(source, loaded_model=loaded_model), with_digests=False)
    question = question_of(loaded_model, first_samples(drawn, loaded_model))
    plan = pieces(replace(drawn, suite=replace(suite, protocols=question.protocols)), seed)
    with tempfile.TemporaryDirectory(prefix="whyformer-") as folder:
        end = start + 60 * minutes
        return compete(make_worker(plan), question, Path(folder), start=start, end=end, progress=progress)


def first_samples(plan: Plan, loaded_model: LoadedModel) -> list[Sample]:
    """Some samples that can be read; where none can, why."""
    samples, reasons = [], []
    for number in (number for shard in plan.shards for number in shard):
        try:
            samples.append(make_sample(plan.examples[number], loaded_model, plan.labels))
        except WhyformerError as error:
            reasons.append(str(error))
        if len(samples) == LOOKED_AT or len(reasons) == 4 * LOOKED_AT:
            break
    if not samples:
        raise NoUsableSample(f"No sample can be used: {reasons[0]}")
    return samples


def pieces(plan: Plan, seed: int) -> Plan:
    """The samples in an order drawn by the seed, a few to a shard, so that looks fall between shards.

    Between two looks texts of like length are together: a batch is padded to its longest.
    """
    numbers = [number for shard in plan.shards for number in shard]
    order = np.random.default_rng(seed).permutation(numbers)[:MOST].tolist()
    edges = (0, *looks(len(order)))
    groups = [sorted(order[low:high], key=partial(_length, plan)) for low, high in pairwise(edges)]
    shards = [group[at : at + PIECE] for group in groups for at in range(0, len(group), PIECE)]
    return replace(plan, shards=tuple(map(tuple, shards)))


def _length(plan: Plan, number: int) -> int:
    """The characters of a text; all else is of one length."""
    if plan.suite.protocols[0].name != "text_perturbation":
        return 0
    try:
        return len(getattr(plan.examples[number], "text", ""))
    except WhyformerError:  # it cannot be read, which is noted when its turn comes
        return 0


def compete(
    worker: Worker, question: Question, folder: Path, *, start: float, end: float, progress: bool
) -> Recommendation:
    """Measure piece by piece until one method is left, the data is over or the time."""
    plan = worker.plan
    known = Competition([one for one in plan.suite.methods if one.name not in CONTROLS])
    figure = protocol_named(question.protocol.name).figures[question.figure]
    planned = looks(plan.count)
    correction = Correction(len(known.alive), len(planned), plan.suite.seed)
    controls = [one for one in plan.suite.methods if one.name in CONTROLS]
    costs: dict[str, tuple[float, float]] = {}
    done, seconds_each, console = 0, 0.0, Console(stderr=True, quiet=not progress)
    for number, shard in enumerate(plan.shards):
        methods = (*known.alive, *controls)
        piece_start = time.perf_counter()
        if number and piece_start + seconds_each * len(methods) * len(shard) > end:
            break
        part = replace(plan, suite=replace(plan.suite, methods=methods))
        records = shard_records(part, worker.loaded_model, worker.batch_size, number)
        write_shard(folder, number, {table: parquet(table, records[table]) for table in TABLES})
        known.take(records)
        seconds_each = (time.perf_counter() - piece_start) / (len(methods) * len(shard))
        if not costs and known.names:
            costs = explanation_costs(plan, worker, [one for one in shard if one in known.names], known.alive)
        if not known.alive:
            raise WhyformerError(f"No method applies to {plan.suite.model}: {next(iter(known.left_out.values()))}")
        done += len(shard)
        if done in planned:
            drop_losers(known, question, figure, correction, done)
        left = f"{len(known.alive)} method{'s' if len(known.alive) != 1 else ''} left"
        console.print(f"{done} of {plan.count} samples, {left}", highlight=False)
        if len(known.alive) == 1 and number and known.dropped:
            break
    return conclude(worker, question, known, correction, costs, folder, time.perf_counter() - start)


def deciding(known: Competition, question: Question, figure: Figure) -> dict[str, dict[int, float]]:
    """The value of each sample that decides, by method, the higher the better."""
    sign = -1.0 if figure.better == "lower" else 1.0
    by_method = known.values.get((question.protocol.label, figure.measure), {})
    kept = {
        method: {sample: sign * values[0] for sample, values in each.items() if np.isfinite(values[0])}
        for method, each in by_method.items()
    }
    return {method: values for method, values in kept.items() if values}


def drop_losers(known: Competition, question: Question, figure: Figure, correction: Correction, done: int) -> None:
    values = deciding(known, question, figure)
    alive = [one.label for one in known.alive if one.label in values]
    if len(alive) > 1:
        lost = losers(values, alive, correction)
        known.dropped |= dict.fromkeys(lost, done)
        known.alive = [one for one in known.alive if one.label not in lost]


def conclude(
    worker: Worker,
    question: Question,
    known: Competition,
    correction: Correction,
    costs: Mapping[str, tuple[float, float]],
    folder: Path,
    seconds: float,
) -> Recommendation:
    """The advice that follows from what was measured."""
    plan, protocol = worker.plan, protocol_named(question.protocol.name)
    figure = protocol.figures[question.figure]
    values = deciding(known, question, figure)
    alive = [one for one in known.alive if one.label in values]
    if not alive:
        reasons = [one["error"] for one in known.errors] or ["no sample has a value"]
        reason = Counter(map(reason_kind, reasons)).most_common(1)[0][0]
        raise NoUsableSample(f"None of the samples could be used: {reason}")
    label = leader(values, [one.label for one in alive])
    best = next(one for one in alive if one.label == label)
    rows = [_contender(known, question, figure, values, correction, method, label, costs) for method in values]
    rows.sort(key=lambda one: (one.label != label, one.behind.difference.value if one.behind else -one.value))
    worst, gallery = worst_examples(plan, folder, values, label, _shown(rows), known.names, is_share=figure.is_share)
    return Recommendation(
        model=plan.suite.model,
        method=best.name,
        options=best.options,
        protocol=question.protocol.label,
        figure=question.figure,
        question=question.words,
        contenders=tuple(rows),
        samples=len(values[label]),
        available=plan.count,
        seconds=seconds,
        looks=correction.looks,
        is_share=figure.is_share,
        most=1.0 if figure.most is None else figure.most(question.protocol.options),
        notes=_notes(known),
        worst=worst,
        gallery=gallery,
    )


def _contender(
    known: Competition,
    question: Question,
    figure: Figure,
    values: Mapping[str, Mapping[int, float]],
    correction: Correction,
    method: str,
    label: str,
    costs: Mapping[str, tuple[float, float]],
) -> Contender:
    own = values[method]
    shown = interval_of(figure, list(own.values()), correction.seed)
    assert shown is not None
    forwards, seconds = costs.get(method, (None, None))
    beside = {}
    for protocol in question.beside:
        other = protocol_named(protocol.name).figures[MAIN[protocol.name]]
        each = known.values.get((protocol.label, other.measure), {}).get(method, {})
        finite = [value if len(value) > 1 else value[0] for value in each.values() if np.isfinite(value).all()]
        if finite:
            beside[MAIN[protocol.name]] = value_of(other, finite)
    return Contender(
        method,
        shown["value"],
        shown["low"],
        shown["high"],
        len(own),
        cost=forwards,
        seconds=seconds,
        behind=None if method == label else correction.lead(values[label], own),
        is_control=method in CONTROLS,
        dropped_after=known.dropped.get(method),
        beside=beside,
    )


def _shown(rows: Sequence[Contender]) -> list[str]:
    """The recommended method, the next and the first control, whose maps are shown."""
    methods = [one.label for one in rows if not one.is_control][:2]
    return [*methods, *[one.label for one in rows if one.is_control][:1]]


def _notes(known: Competition) -> tuple[str, ...]:
    left_out = (f"{name} is left out: {reason}" for name, reason in known.left_out.items())
    return tuple(re.sub(r"\s+", " ", note) for note in (*left_out, *unusable_notes(known.errors)))

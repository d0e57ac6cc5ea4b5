"""Recommend a method: methods compete on samples, and those that are significantly worse are dropped."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from torch import nn

from whyformer.benchmark.advice.competition import Competition, SampleMeasurement, between_looks, compete
from whyformer.benchmark.advice.elimination import Correction, leader
from whyformer.benchmark.advice.protocol_choice import Contest, contenders, contest_for
from whyformer.benchmark.advice.recommendation import Contender, Recommendation
from whyformer.benchmark.advice.worst_examples import worst_examples
from whyformer.benchmark.evaluation import NamedChoice, choices_of, natural, source_of
from whyformer.benchmark.figures import interval_of, value_of
from whyformer.benchmark.protocols import Figure, protocol_named
from whyformer.benchmark.reporting.charts import CONTROLS
from whyformer.benchmark.reporting.page import unusable_notes
from whyformer.benchmark.run_plan import RunPlan, make_plan
from whyformer.benchmark.runner import NoUsableSample
from whyformer.benchmark.samples import Sample, make_sample
from whyformer.benchmark.suite import Suite, check_methods
from whyformer.benchmark.worker import make_worker, reason_kind
from whyformer.errors import WhyformerError
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.plugins import load_plugins

FITTED_SAMPLES = 5  # samples to choose the protocols by
MAIN = {"segmentation": "mIoU", "rationales": "token F1, mean over top 10 to 80"}  # shown beside the deciding figure
NAME_LABELS = " Say what the model calls the labels of the data: labels={'DATA': 'MODEL'}, or --label DATA=MODEL."


def recommend(
    model: str | Path | nn.Module | LoadedModel,
    data: Any,
    *,
    methods: NamedChoice | Iterable[NamedChoice] | None = None,
    minutes: float = 5.0,
    processor: Any = None,
    labels: Mapping[str, str] | None = None,
    seed: int = 0,
    data_folder: str | Path = ".",
    plugins: Sequence[str | Path] = (),
    progress: bool = False,
) -> Recommendation:
    """Recommend the method that explains this model best on this data, with its significance and failures.

    Methods compete on samples drawn by the seed, by the model's answers when parts of its input are removed. After 16,
    32, 64 … samples those that are significantly behind the best are dropped, with an error rate of 5 % over all looks
    and methods together. The competition ends when one is left, or data or time run out.

    Args:
        model: A module or `LoadedModel`, a folder, a Hugging Face id, or the name of a bundled model.
        data: As in `evaluate`: a list of texts, pictures, or pairs of one with its label; rows; a data set; or a
            reader with its options, `("image_folder", {"folder": "photos"})`.
        methods: The competing methods, names or `(name, options)`; by default eleven inexpensive ones of every kind.
        minutes: The time limit, including loading the model; at least one method is measured on one sample.
        processor: The processor of your own module, if its folder has none.
        labels: The model's names for the labels of the data, if they differ; for a dual encoder the text for each.
        seed: The seed of the samples, and of everything random in protocols.
        data_folder: The folder that relative paths of the reader are taken from.
        plugins: Python files that register methods or readers.
        progress: Whether to show progress on standard error.

    Returns:
        The advice: `print` it, or `save("advice.html")`.

    Raises:
        WhyformerError: If a name is unknown, the model, the data or every sample cannot be used, or no method applies
            to the model.

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
    chosen = check_methods(contenders() if methods is None else choices_of(methods, "method"))
    source, choice = source_of(model, data, processor)
    loaded_model = source.loaded_model or resolve_model(str(model))
    suite = Suite(loaded_model.name, choice, chosen, (), labels=labels or {}, seed=natural("seed", seed, 0))
    source = replace(source, loaded_model=loaded_model)
    sampled = make_plan(suite, Path(data_folder).resolve(), source, with_digests=False)
    question = contest_for(loaded_model, first_samples(sampled, loaded_model))
    plan = between_looks(replace(sampled, suite=replace(suite, protocols=question.protocols)), seed)
    console = Console(stderr=True, quiet=not progress)
    console.print(f"{plan.suite.model}: {len(chosen)} methods and controls, {plan.count} samples", highlight=False)
    with tempfile.TemporaryDirectory(prefix="whyformer-") as folder:
        measurement = SampleMeasurement(make_worker(plan), Path(folder), start + 60 * minutes)
        competition, correction = compete(measurement, question, console)
        return conclude(plan, question, competition, correction, Path(folder), time.perf_counter() - start)


def first_samples(plan: RunPlan, loaded_model: LoadedModel) -> list[Sample]:
    """Some readable samples; raise the reason if no sample is readable."""
    samples, reasons = [], []
    for number in (number for shard in plan.shards for number in shard):
        try:
            samples.append(make_sample(plan.examples[number], loaded_model, plan.labels))
        except WhyformerError as error:
            reasons.append(str(error))
        if len(samples) == FITTED_SAMPLES or len(reasons) == 4 * FITTED_SAMPLES:
            break
    if not samples:
        raise NoUsableSample(_why_unusable(reasons))
    return samples


def conclude(
    plan: RunPlan,
    question: Contest,
    competition: Competition,
    correction: Correction,
    folder: Path,
    seconds: float,
) -> Recommendation:
    """Build the advice from the measurements."""
    figure = protocol_named(question.protocol.name).figures[question.figure]
    values = competition.deciding(question)
    alive = [one for one in competition.alive if one.label in values]
    if not alive:
        raise NoUsableSample(_why_unusable([one["error"] for one in competition.errors.values()]))
    label = leader(values, [one.label for one in alive])
    best = next(one for one in alive if one.label == label)
    rows = [_contender(competition, question, figure, values, correction, method, label) for method in values]
    rows.sort(key=lambda one: (one.label != label, one.behind.difference.value if one.behind else -one.value))
    worst, gallery = worst_examples(
        plan, folder, values, label, _shown(rows), competition.names, is_share=figure.is_share
    )
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
        notes=_notes(competition, values),
        worst=worst,
        gallery=gallery,
    )


def _contender(
    competition: Competition,
    question: Contest,
    figure: Figure,
    values: Mapping[str, Mapping[int, float]],
    correction: Correction,
    method: str,
    label: str,
) -> Contender:
    own = values[method]
    shown = interval_of(figure, list(own.values()), correction.seed)
    assert shown is not None
    cost = competition.costs.get(method)
    beside = {}
    for protocol in question.beside:
        other = protocol_named(protocol.name).figures[MAIN[protocol.name]]
        each = competition.values.get((protocol.label, other.measure), {}).get(method, {})
        finite = [value if len(value) > 1 else value[0] for value in each.values() if np.isfinite(value).all()]
        if finite:
            beside[MAIN[protocol.name]] = value_of(other, finite)
    return Contender(
        method,
        shown["value"],
        shown["low"],
        shown["high"],
        len(own),
        cost=None if cost is None else cost.answers,
        seconds=None if cost is None else cost.seconds,
        behind=None if method == label else correction.lead(values[label], own),
        is_control=method in CONTROLS,
        dropped_after=competition.dropped.get(method),
        beside=beside,
    )


def _shown(rows: Sequence[Contender]) -> list[str]:
    """The methods to show maps of: the recommended one, the next and the first control."""
    methods = [one.label for one in rows if not one.is_control][:2]
    return [*methods, *[one.label for one in rows if one.is_control][:1]]


def _notes(competition: Competition, values: Mapping[str, Mapping[int, float]]) -> tuple[str, ...]:
    left_out = (f"{name} is left out: {reason}" for name, reason in competition.left_out.items())
    too_late = [one.label for one in competition.alive if one.label not in values]
    late = [f"The time was over before {', '.join(too_late)} could be measured."] if too_late else []
    unusable = unusable_notes(list(competition.errors.values()))
    return tuple(re.sub(r"\s+", " ", note) for note in (*left_out, *late, *unusable))


def _why_unusable(reasons: Sequence[str]) -> str:
    """The most common reason, with the way out if label names do not match."""
    kinds = Counter(map(reason_kind, reasons)).most_common(1)
    reason = next((one for one in reasons if reason_kind(one) == kinds[0][0]), "none has a value.")
    way_out = NAME_LABELS if reason.startswith("No label named") else ""
    return f"No sample can be used: {reason}{way_out}"

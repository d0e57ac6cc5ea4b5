"""`diff`: compare the answers and the reasons of two models over a data set."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from whyformer.api.predictions import Predict
from whyformer.errors import WhyformerError
from whyformer.metrics.statistics import interval
from whyformer.models.loading import LoadedModel
from whyformer.progress import stage_progress
from whyformer.surveys.cue_changes import Runs, cue_changes
from whyformer.surveys.diff_examples import TellingPairs, sample_changes
from whyformer.surveys.journal import Journal
from whyformer.surveys.model_diff import AnswerMove, ModelDiff
from whyformer.surveys.proof import FEWEST_SAMPLES
from whyformer.surveys.respondents import Respondent, labels_of_respondent
from whyformer.surveys.sample_labels import listed
from whyformer.surveys.sample_pairs import SamplePair, sample_pairs
from whyformer.surveys.survey_data import SampleKind, data_name, survey_data
from whyformer.surveys.survey_engines import LocalEngine
from whyformer.surveys.survey_plan import checked_plan, respondent_of
from whyformer.surveys.survey_records import SurveyRecords, Watch, score_all

JOURNAL_NAMES = ("first", "second")


def diff(
    first: str | Path | nn.Module | LoadedModel | None,
    second: str | Path | nn.Module | LoadedModel | None,
    data: Any,
    *,
    method: str | None = None,
    masks: str | Path | None = None,
    column: str | None = None,
    label_map: Mapping[str, str] | None = None,
    processor: Any = None,
    predict: tuple[Predict, Predict] | None = None,
    labels: Sequence[str] | None = None,
    batch_size: int | None = None,
    limit: float = 0.5,
    journals: tuple[str | Path, str | Path] | None = None,
    seed: int = 0,
    progress: bool = False,
    watch: Watch | None = None,
    **options: Any,
) -> ModelDiff:
    """Compare two models over a data set: which answers changed, and which stayed for other reasons.

    Every sample is explained by both models. Where they give the same answer, the ranks of their scores are compared.
    The cues with the highest scores in either model are removed from the same samples for both. Those whose effect on
    the first model's answer changed are reported, at a false-discovery rate of 5 % over all cues.

    Args:
        first: A model that labels texts, pictures or sounds, as in `explain`, such as the one in use; None with
            `predict`.
        second: The model to compare it with, with the same labels: a fine-tuned, quantised or distilled version.
        data: Texts, pictures or sounds, as in `survey`; labels are optional.
        method: The method of both explanations; by default the default of `explain` for each.
        masks: The folder of the objects' masks, named as the pictures are.
        column: The column of the texts in a file, as in `explain_batch`.
        label_map: The models' names for the labels of the data, if they differ.
        processor: The processor of your own modules, if their folders have none.
        predict: Instead of models, two functions that take a list of examples and return an array [example, label].
        labels: The names of the labels that `predict` scores.
        batch_size: The number of examples per call of `predict`.
        limit: The rank correlation of two explanations below which the reasons of an answer count as changed.
        journals: Two .jsonl files that keep everything computed, one for each model: an interrupted comparison resumes
            there. Those of surveys of the same data do as well. By default temporary ones.
        seed: The seed of the halves, of the samples that cues are removed from, and of random parts.
        progress: Whether to show progress, with the time left.
        watch: A function called with the stage, the number of samples done, and that of all.
        **options: Options of the method.

    Returns:
        The ModelDiff: print it, `save("diff.html")`.

    Raises:
        UnsupportedModel: If a model does not label texts, pictures or sounds.
        WhyformerError: If the labels of the models differ, or the data or an option cannot be used as given.

    Example:
        >>> films = ["a wonderful film", "a dull film", "wonderful from beginning to end", "dull to the end"] * 12
        >>> print(whyformer.diff("mini-bert", "mini-bert", films).overview[0])
        mini-bert (first) and mini-bert (second) read 48 texts and give the same answers to all of them.
    """
    start = time.perf_counter()
    if not -1 <= limit <= 1:
        raise WhyformerError(f"limit={limit:g}: a rank correlation from −1 to 1.")
    functions = predict or (None, None)
    respondents = [
        respondent_of(model, processor, function, labels, batch_size)
        for model, function in zip((first, second), functions, strict=True)
    ]
    _check_same_labels(*respondents)
    examples = survey_data(data, masks, column, label_map)
    plans = [checked_plan(own, examples, (), method=method, options=options, seed=seed) for own in respondents]
    with stage_progress(quiet=not progress) as show, tempfile.TemporaryDirectory(prefix="whyformer-") as folder:
        places = journals or tuple(Path(folder) / f"{name}.jsonl" for name in JOURNAL_NAMES)
        if Path(places[0]).resolve() == Path(places[1]).resolve():
            raise WhyformerError(f"Both journals are {str(places[0])!r}: name two files.")
        runs = [(plan, Journal(Path(place))) for plan, place in zip(plans, places, strict=True)]
        for plan, journal in runs:
            journal.open_for(plan.settings)
        result = _compared(runs, watch or show, limit, seed)
    return replace(result, seconds=time.perf_counter() - start, file=data_name(data))


def _check_same_labels(first: Respondent, second: Respondent) -> None:
    own, other = (sorted(labels_of_respondent(one)) for one in (first, second))
    if own != other:
        raise WhyformerError(
            f"{first.name} has the labels {listed(own)}, and {second.name} {listed(other)}: only models with the same "
            "labels can be compared."
        )


@dataclass
class _Totals:
    """Sums over the samples of both models."""

    samples: int = 0
    labelled: int = 0
    wrong: list[int] = field(default_factory=lambda: [0, 0])
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    changed: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    correlations: list[float] = field(default_factory=list)
    kind: SampleKind = "text"
    methods: tuple[str, str] = ("", "")

    def add(self, pair: SamplePair, correlation: float | None, limit: float) -> None:
        """Add a sample."""
        self.samples += 1
        self.kind, self.methods = pair.first.kind, (pair.first.method, pair.second.method)
        self.labelled += pair.first.label is not None
        for place, sample in enumerate((pair.first, pair.second)):
            self.wrong[place] += sample.is_wrong
        if pair.is_changed:
            self.changed.append(pair.first.number)
            self.moves[pair.first.answer, pair.second.answer] += 1
        if correlation is not None:
            self.correlations.append(correlation)
            self.moved += [pair.first.number] if correlation < limit else []


def _compared(runs: Runs, watch: Watch, limit: float, seed: int) -> ModelDiff:
    """Explain by both models, pair the samples, remove the cues, test."""
    names = _distinct_names([plan.respondent.name for plan, _ in runs])
    for (plan, journal), name in zip(runs, names, strict=True):

        def show(stage: str, done: int, total: int, name: str = name) -> None:
            watch(f"{stage}, {name}", done, total)

        score_all(LocalEngine(plan.respondent), plan.data, journal, plan.method, plan.options, show)
    totals, telling = _Totals(), TellingPairs()
    records = [SurveyRecords(journal) for _, journal in runs]
    for pair in sample_pairs(*records):
        correlation = pair.correlation
        totals.add(pair, correlation, limit)
        telling.add(pair, correlation)
    if not totals.samples:
        raise WhyformerError("No sample can be explained by both models.")
    changes = cue_changes(runs, names, watch, seed=seed)
    return ModelDiff(
        names,
        totals.methods,
        totals.kind,
        totals.samples,
        tuple(totals.changed),
        tuple(AnswerMove(*pair, count) for pair, count in totals.moves.most_common()),
        totals.labelled,
        (totals.wrong[0], totals.wrong[1]),
        len(totals.correlations),
        interval(np.array(totals.correlations), seed=seed) if totals.correlations else None,
        limit,
        tuple(totals.moved),
        changes,
        sample_changes(telling.pairs, runs[0][0].data),
        tuple(_notes(runs, totals, names, tested=bool(changes))),
    )


def _distinct_names(names: Sequence[str]) -> tuple[str, str]:
    first, second = names
    return (first, second) if first != second else (f"{first} (first)", f"{second} (second)")


def _notes(runs: Runs, totals: _Totals, names: Sequence[str], *, tested: bool) -> Iterator[str]:
    for (plan, journal), name in zip(runs, names, strict=True):
        skipped = SurveyRecords(journal).skipped
        if skipped:
            yield f"{len(skipped)} of {len(plan.data)} samples could not be explained by {name}, such as: {skipped[0]}"
    if totals.methods[0] != totals.methods[1]:
        yield (
            f"The scores are by different methods, {' and '.join(totals.methods)}, which alone may change their ranks: "
            "name one by method=, or --method."
        )
    missing = totals.samples - len(totals.changed) - len(totals.correlations)
    if missing:
        yield f"{missing} samples with the same answer have scores that cannot be compared: other words, or too few."
    if not tested:
        yield f"No cue is in {FEWEST_SAMPLES} samples kept for the test: more samples would help."

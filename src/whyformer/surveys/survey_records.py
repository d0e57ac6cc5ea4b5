"""The scored samples of a survey, read from its journal one at a time; and the stages that write them there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.models.loading import LoadedModel
from whyformer.surveys.journal import Journal
from whyformer.surveys.lemmas import Lemmatiser
from whyformer.surveys.patch_clusters import PatchClusters, fit_clusters, likely_background, patch_states
from whyformer.surveys.respondents import Respondent
from whyformer.surveys.scored_samples import ScoredSample, read_sample, sample_line, score_samples
from whyformer.surveys.survey_data import SurveyData, SurveySample
from whyformer.surveys.survey_engines import SurveyEngine

Watch = Callable[[str, int, int], None]
KindLine = tuple[str, dict[str, Any]]  # a line of the journal with its kind
TEXTS_BETWEEN_WRITES, PICTURES_BETWEEN_WRITES = 32, 8  # between two writes
SAMPLE_LINES, SKIPPED_LINES, CENTRE_LINES, PATCH_LINES = "sample", "skipped", "centres", "patches"  # kinds of lines


@dataclass(frozen=True)
class SurveyRecords:
    """The samples in the order of their lines, with the clusters of their patches once these are known."""

    journal: Journal
    lemmatiser: Lemmatiser | None = None

    def __iter__(self) -> Iterator[ScoredSample]:
        patches = self.journal.lines(PATCH_LINES)
        for line in self.journal.lines(SAMPLE_LINES):
            own, sample = next(patches, None), read_sample(line)
            if own is not None:
                clusters, likely = (
                    None if own[name] is None else np.array(own[name]) for name in ("clusters", "likely")
                )
                sample = replace(sample, clusters=clusters, likely=likely)
            if self.lemmatiser is not None:
                sample = replace(sample, forms=self.lemmatiser.of(sample.words))
            yield sample

    @property
    def skipped(self) -> list[str]:
        """The reasons of samples that could not be read or explained."""
        return [line["reason"] for line in self.journal.lines(SKIPPED_LINES)]


def score_all(
    engine: SurveyEngine,
    data: SurveyData,
    journal: Journal,
    method: str | None,
    options: Mapping[str, Any],
    watch: Watch,
) -> None:
    """Explain the samples that the journal lacks."""
    score = partial(score_lines, method=method, options=options)
    watch("explaining", 0, len(data))  # the time left is told from here
    for lines in engine(score, _pending(data, journal, watch)):
        for kind, own in groupby(lines, key=lambda line: line[0]):
            journal.write(kind, [line for _, line in own])
        if lines:
            watch("explaining", lines[-1][1]["sample"] + 1, len(data))
    if next(journal.lines(SAMPLE_LINES), None) is None:
        reason = next(iter(SurveyRecords(journal).skipped), "")
        raise WhyformerError(f"None of the {len(data)} samples can be explained: {reason}")


def _pending(data: SurveyData, journal: Journal, watch: Watch) -> Iterator[list[SurveySample]]:
    """The samples that the journal lacks, a few at a time."""
    done = {line["sample"]: line["digest"] for line in journal.lines(SAMPLE_LINES)}
    done |= {line["sample"]: None for line in journal.lines(SKIPPED_LINES)}
    pending: list[SurveySample] = []
    for number in range(len(data)):
        try:
            sample = data[number]
        except WhyformerError as error:
            if number not in done:
                journal.write(SKIPPED_LINES, [{"sample": number, "reason": str(error)}])
        else:
            if done.get(number) is not None and done[number] != sample.digest:
                raise WhyformerError(
                    f"{sample.name} has changed since {str(journal.path)!r} was begun: delete that file."
                )
            pending += [] if number in done else [sample]
        most = TEXTS_BETWEEN_WRITES if pending and isinstance(pending[0].example, str) else PICTURES_BETWEEN_WRITES
        if not pending:
            watch("explaining", number + 1, len(data))
        elif len(pending) == most or number == len(data) - 1:
            yield pending
            pending = []


def score_lines(
    respondent: Respondent, samples: list[SurveySample], method: str | None, options: Mapping[str, Any]
) -> list[KindLine]:
    """Explain samples together; if that fails one by one, so that one of them does not stop the others."""
    try:
        scored = list(score_samples(respondent, samples, method, options))
    except UnsupportedModel:
        raise
    except WhyformerError as error:
        if len(samples) == 1:
            return [(SKIPPED_LINES, {"sample": samples[0].number, "reason": f"{samples[0].name}: {error}"})]
        return [line for sample in samples for line in score_lines(respondent, [sample], method, options)]
    return [(SAMPLE_LINES, sample_line(one, own.digest)) for one, own in zip(scored, samples, strict=True)]


def cluster_all(
    respondent: Respondent, data: SurveyData, journal: Journal, is_kept: np.ndarray, watch: Watch, *, seed: int
) -> PatchClusters | None:
    """Cluster the patches of pictures; note the cluster of each patch, and without a mask the likely background."""
    records = SurveyRecords(journal)
    first = next(iter(records))
    if (
        not isinstance(respondent, LoadedModel)
        or first.kind != "picture"
        or not _shows_patches(respondent, data, first)
    ):
        return None
    clusters = _centres(journal)
    if clusters is None:
        chosen = (sample for sample in records if not is_kept[sample.number])
        clusters = fit_clusters(respondent, data, chosen, seed=seed)
    if clusters is not None and _centres(journal) is None:
        names = {"centres": clusters.centres.tolist(), "least": clusters.least.tolist()}
        journal.write(CENTRE_LINES, [{**names, "montages": clusters.montages}])
    done = sum(1 for _ in journal.lines(PATCH_LINES))
    for place, sample in enumerate(records):
        if place >= done:
            states = patch_states(respondent, data[sample.number].example)
            likely = None if sample.covered is not None else likely_background(states).ravel().tolist()
            own = None if clusters is None else clusters.of(states).ravel().tolist()
            journal.write(PATCH_LINES, [{"sample": sample.number, "clusters": own, "likely": likely}])
        watch("clustering", place + 1, len(data))
    return clusters


def _shows_patches(loaded_model: LoadedModel, data: SurveyData, sample: ScoredSample) -> bool:
    """Whether the last states of a model are those of the patches that are scored."""
    try:
        return patch_states(loaded_model, data[sample.number].example).shape[:2] == sample.grid
    except UnsupportedModel:
        return False


def _centres(journal: Journal) -> PatchClusters | None:
    line = next(journal.lines(CENTRE_LINES), None)
    if line is None:
        return None
    montages = tuple(tuple(montage) for montage in line["montages"])
    return PatchClusters(np.array(line["centres"]), np.array(line["least"]), montages)

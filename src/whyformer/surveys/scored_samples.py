"""Explain every sample once: its answer, and the share that each of its cues has of its scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from whyformer.api.explain import explain_batch
from whyformer.api.predictions import PATCHES, FunctionScores
from whyformer.data.examples import BACKGROUND, OBJECT
from whyformer.inputs.layouts import Box, Frames, Patches, Spectrogram
from whyformer.inputs.read import strings_are_texts
from whyformer.models.loading import LoadedModel
from whyformer.results.explanation import Explanation
from whyformer.surveys.cues import CLUSTER, Cue, region_parts, text_parts, with_sets
from whyformer.surveys.respondents import Respondent, label_log_odds, mask_at, removable_sample
from whyformer.surveys.sound_cues import SoundGrid, grid_parts, sound_grid
from whyformer.surveys.survey_data import SampleKind, SurveySample

DECISIVE = 3  # words or patches with the highest scores, which lead a decision
DIGITS = 4  # of scores that are kept
STRETCHES = 20  # of a sound, which functions are asked without
FINE = 4  # points on a side of a patch, at which masks are read
BY_FUNCTION = "removal"  # the method of functions, unless another is named


@dataclass(frozen=True, eq=False)
class ScoredSample:
    """A sample with its answer, and a score for each of its words or patches.

    Attributes:
        number: The number of the sample.
        name: The name of the sample.
        label: Its label, if known.
        answer: The label that the model gives it.
        probability: The probability of the answer; None for a function without probabilities.
        words: The words that the model reads, verbatim; none for others.
        forms: The words by which its cues are named, if these are lemmas; none if they are the words themselves.
        grid: The rows and columns of patches, or the bands and columns of a sound; None for a text.
        box: The part of the picture that they cover.
        scores: The score of each word or patch.
        method: The method of the scores.
        covered: The share of each patch that the object covers, and the background; None without a mask.
        clusters: The cluster of each patch, −1 for none; None if they are not known.
        likely: Whether each patch is likely background; None if that is not known.
        sound: Where its bands and columns lie; None for others.
    """

    number: int
    name: str
    label: str | None
    answer: str
    probability: float | None
    words: tuple[str, ...]
    grid: tuple[int, int] | None
    box: Box | None
    scores: np.ndarray
    method: str
    covered: tuple[np.ndarray, np.ndarray] | None = None
    clusters: np.ndarray | None = None
    likely: np.ndarray | None = None
    sound: SoundGrid | None = None
    forms: tuple[str, ...] = ()

    @property
    def named_words(self) -> tuple[str, ...]:
        """The words by which its cues are named."""
        return self.forms or self.words

    @property
    def kind(self) -> SampleKind:
        """Whether it is a text, a picture or a sound."""
        if self.grid is None:
            return "text"
        return "picture" if self.sound is None else "sound"

    @property
    def is_wrong(self) -> bool:
        """Whether the answer is another label than the known one."""
        return self.label is not None and self.label != self.answer

    def parts(self, wanted: frozenset[Cue] | None = None) -> dict[Cue, np.ndarray]:
        """How much of each word or patch belongs to each cue, from 0 to 1."""
        if self.grid is None:
            return text_parts(self.named_words, wanted)
        own = region_parts(self.grid) if self.sound is None else grid_parts(self.sound, self.grid)
        parts = {cue: part.ravel().astype(float) for cue, part in own.items()}
        if self.covered is not None:  # regions leave out the object
            parts = {cue: part * (1 - self.covered[0]) for cue, part in parts.items()}
            parts |= {
                Cue("mask", name): part for name, part in zip(("object", "background"), self.covered, strict=True)
            }
        parts |= {cue: part.ravel().astype(float) for cue, part in self.patch_parts.items()}
        return with_sets(parts, wanted)

    @property
    def patch_parts(self) -> dict[Cue, np.ndarray]:
        """The patches [row column] of its clusters, of the likely object and of the likely background."""
        parts = {}
        if self.clusters is not None:
            for cluster in np.unique(self.clusters[self.clusters >= 0]).tolist():
                parts[cluster_cue(cluster)] = self.clusters == cluster
        if self.likely is not None:
            parts |= {Cue("mask", "likely object"): ~self.likely, Cue("mask", "likely background"): self.likely}
        return {cue: part.reshape(self.grid) for cue, part in parts.items()}

    def excess(self, part: np.ndarray) -> float:
        """The share of the scores that a part has, beyond an equal share for each word or patch."""
        total = float(np.abs(self.scores).sum())
        return float(self.scores @ part) / total - float(part.mean()) * self._balance if total else 0.0

    def leads(self, part: np.ndarray) -> bool:
        """Whether it has one of the highest scores."""
        top = np.argsort(-self.scores, kind="stable")[:DECISIVE]
        return bool((part[top] > 0.5).any())

    def background_share(self, part: np.ndarray) -> float | None:
        """The share of a part's area in the background, of what a mask marks; None if nothing of it is marked."""
        if self.covered is None:
            return None
        on_object, behind = (float(part @ share) for share in self.covered)
        return behind / (on_object + behind) if on_object + behind else None

    @property
    def _balance(self) -> float:
        """The sum of the scores, as a share of their absolute sum."""
        return float(self.scores.sum() / np.abs(self.scores).sum())


def cluster_cue(number: int) -> Cue:
    """The cue of a cluster of patches, counted from 0."""
    return Cue("cluster", f"{CLUSTER} {number + 1}")


def score_samples(
    respondent: Respondent, samples: Sequence[SurveySample], method: str | None, options: Mapping[str, Any]
) -> Iterator[ScoredSample]:
    """Explain the predicted answer to each sample by the method."""
    examples = [sample.example for sample in samples]
    with strings_are_texts():
        if isinstance(respondent, LoadedModel):
            explanations = explain_batch(examples, respondent, method=method, truncate=True, **options)
        elif method is None:
            yield from (_scored_by_removal(respondent, sample) for sample in samples)
            return
        else:
            explanations = _explain_function(respondent, examples, method, options)
    for sample, explanation in zip(samples, explanations, strict=True):
        yield _scored(sample, explanation)


def _explain_function(
    function: FunctionScores, examples: Sequence[Any], method: str, options: Mapping[str, Any]
) -> list[Explanation]:
    labels = [function.labels[number] for number in sorted(function.labels)] or None
    return explain_batch(
        examples,
        predict=function.predict,
        labels=labels,
        method=method,
        batch_size=function.batch_size,
        **options,
    )


def _scored_by_removal(function: FunctionScores, sample: SurveySample) -> ScoredSample:
    """Score each word, patch or stretch of a sound by the drop of the answer's log-odds without it.

    Probabilities near 1 hardly change.
    """
    removable = removable_sample(function, sample)
    grid = None if removable.box is None else (PATCHES, PATCHES)
    place = None
    if removable.sound is not None:
        step = removable.sound.seconds / STRETCHES
        place, grid = sound_grid(Frames(removable.sound, STRETCHES, 0.0, step))
    numbers = np.arange(len(removable.words))
    if grid is not None:
        down, right = (np.arange(side) * own // side for side, own in zip(removable.shape, grid, strict=True))
        numbers = grid[1] * down[:, None] + right
    kept = np.stack([numbers != number for number in range(numbers.max() + 1)])
    answers = removable.ask(kept)
    label = int(removable.logits.argmax())
    whole = float(label_log_odds(removable.logits[None], label)[0])
    return ScoredSample(
        sample.number,
        sample.name,
        sample.label,
        function.labels.get(label, f"label {label}"),
        float(1 / (1 + np.exp(-whole))),
        removable.words,
        grid,
        removable.box,
        whole - label_log_odds(answers, label),
        BY_FUNCTION,
        None if removable.box is None or grid is None else _covered(sample, grid, removable.box),
        sound=place,
    )


def _scored(sample: SurveySample, explanation: Explanation) -> ScoredSample:
    (part,) = explanation.parts.values()
    method = explanation.manner
    own = (sample.number, sample.name, sample.label, explanation.target, explanation.probability)
    if isinstance(part.layout, (Frames, Spectrogram)):
        place, shape = sound_grid(part.layout)
        return ScoredSample(*own, (), shape, None, np.asarray(part.scores, dtype=np.float64), method, sound=place)
    if not isinstance(part.layout, Patches):
        words = part.words()
        return ScoredSample(
            *own, tuple(word.text for word in words), None, None, np.array([w.score for w in words]), method
        )
    layout = part.layout
    grid = (layout.rows, layout.columns)
    values = np.asarray(part.scores, dtype=np.float64)
    return ScoredSample(*own, (), grid, layout.box, values, method, _covered(sample, grid, layout.box))


def _covered(sample: SurveySample, grid: tuple[int, int], box: Box) -> tuple[np.ndarray, np.ndarray] | None:
    """The share of each patch that the object covers, and the background."""
    if sample.mask is None:
        return None
    fine = mask_at(sample.mask, box, (FINE * grid[0], FINE * grid[1])).reshape(grid[0], FINE, grid[1], FINE)
    first, second = ((fine == kind).mean(axis=(1, 3)).ravel() for kind in (OBJECT, BACKGROUND))
    return first, second


def sample_line(sample: ScoredSample, digest: str) -> dict[str, Any]:
    """A scored sample as a line of the journal."""
    return {
        "sample": sample.number,
        "digest": digest,
        "name": sample.name,
        "label": sample.label,
        "answer": sample.answer,
        "probability": sample.probability,
        "words": sample.words,
        "grid": sample.grid,
        "box": sample.box,
        "method": sample.method,
        "scores": _short(sample.scores),
        "covered": None if sample.covered is None else [_short(part) for part in sample.covered],
        **({} if sample.sound is None else {"sound": asdict(sample.sound)}),
    }


def read_sample(line: Mapping[str, Any]) -> ScoredSample:
    """A scored sample from its line."""
    covered, sound = line["covered"], line.get("sound")
    return ScoredSample(
        line["sample"],
        line["name"],
        line["label"],
        line["answer"],
        line["probability"],
        tuple(line["words"]),
        None if line["grid"] is None else tuple(line["grid"]),
        None if line["box"] is None else tuple(line["box"]),
        np.array(line["scores"], dtype=np.float64),
        line["method"],
        None if covered is None else (np.array(covered[0]), np.array(covered[1])),
        sound=None if sound is None else SoundGrid(**sound | {"edges": tuple(sound["edges"])}),
    )


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values.tolist()]

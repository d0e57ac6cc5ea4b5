"""The respondent of a survey: a model or a function, and its answers to samples without some of their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image

from whyformer.api.batch_scores import trace_batch
from whyformer.api.predictions import SURE, FunctionScores, removable_units
from whyformer.axes import LabelValues, PlaceShares, UnitMasks, at_least_float32
from whyformer.data.examples import UNLABELLED
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.inputs.chunks import Chunk
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import encode
from whyformer.inputs.fills import fill_colour
from whyformer.inputs.layouts import Box, covered_box
from whyformer.inputs.sound import Sound
from whyformer.inputs.words import tokens_by_word, word_ranges
from whyformer.modalities.text import word_numbers
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import labels_of
from whyformer.models.task import HEADS
from whyformer.removal.trace_inputs import trace_ablation
from whyformer.surveys.sound_removal import sound_for_function, sound_for_model
from whyformer.surveys.survey_data import SurveySample
from whyformer.targets.scores import logits_of
from whyformer.tracing.reads import Reads

LOWEST_PROBABILITY = 1e-9  # smaller probabilities of a function count as this
MOST_UNNAMED = 10_000  # labels of a function without names
GIVEN_AS = {
    "text": "a table or a list of texts",
    "picture": "a folder of pictures or a list of PIL images",
    "sound": "a folder of sounds or a list of whyformer.Sound",
}
Respondent = LoadedModel | FunctionScores


@dataclass(frozen=True, eq=False)
class RemovableSample:
    """A sample whose places can be removed: the words of a text that are read, the pixels of a picture, or
    the samples or spectrogram of a sound.

    Attributes:
        sample: The sample.
        shape: (words,), (height, width), or (bins, columns) of a spectrogram; (1, samples) of a sound without one.
        sizes: The tokens of each place: those of a word, 1 for others.
        words: The words, verbatim; none for others.
        box: The part of the picture that its places cover.
        logits: The answer to the whole: one logit per label.
        ask: The logits [subset label] with only the kept places [subset place].
        sound: The sound as the model reads it; None for others.
    """

    sample: SurveySample
    shape: tuple[int, ...]
    sizes: np.ndarray
    words: tuple[str, ...]
    box: Box | None
    logits: np.ndarray
    ask: Callable[[UnitMasks], LabelValues]
    sound: Sound | None = None

    @property
    def object_mask(self) -> np.ndarray | None:
        """The mask of the sample at its places."""
        if self.sample.mask is None or self.box is None:
            return None
        return mask_at(self.sample.mask, self.box, (self.shape[0], self.shape[1]))


def mask_at(mask: np.ndarray, box: Box, shape: tuple[int, int]) -> np.ndarray:
    """A mask at a grid of points in a box of the picture; UNLABELLED outside the picture."""
    left, top, right, bottom = box
    rows = np.floor(top + (np.arange(shape[0]) + 0.5) * (bottom - top) / shape[0]).astype(int)
    columns = np.floor(left + (np.arange(shape[1]) + 0.5) * (right - left) / shape[1]).astype(int)
    points = np.full(shape, UNLABELLED, dtype=np.uint8)
    y = (rows >= 0) & (rows < mask.shape[0])
    x = (columns >= 0) & (columns < mask.shape[1])
    points[np.ix_(y, x)] = mask[np.ix_(rows[y], columns[x])]
    return points


def check_respondent(respondent: Respondent) -> None:
    """Raise if it does not choose among labels."""
    if not isinstance(respondent, LoadedModel):
        return
    task = respondent.task
    reads_one = task.modality in ("text", "image", "audio") and not (task.sees is not None and task.reads_text)
    if task.answer not in ("label", "labels") or not reads_one:
        raise UnsupportedModel(
            f"A survey needs a model that labels texts, pictures or sounds, and {respondent.name} answers by "
            f"{HEADS[task.answer].description}: wrap it in a function of one example, and give predict=."
        )


def check_same_kind(respondent: Respondent, sample: SurveySample, what: str) -> None:
    """Raise if a model reads something else than the sample."""
    if not isinstance(respondent, LoadedModel):
        return
    task = respondent.task
    wants = "sound" if task.modality == "audio" else "text" if task.sees is None else "picture"
    if wants != sample.kind:
        raise WhyformerError(
            f"{respondent.name} reads {wants}s, and the {what} are {sample.kind}s: give {GIVEN_AS[wants]}."
        )


def labels_of_respondent(respondent: Respondent) -> tuple[str, ...]:
    """The names of the labels by index; empty if a function has none."""
    names = respondent.labels if isinstance(respondent, FunctionScores) else labels_of(respondent.model)
    return tuple(names[index] for index in sorted(names))


def names_by_index(respondent: Respondent) -> list[str]:
    """The names of the labels by index; numbers for a function without names."""
    names = labels_of_respondent(respondent)
    return list(names) if names else [f"label {number}" for number in range(MOST_UNNAMED)]


def removable_sample(respondent: Respondent, sample: SurveySample) -> RemovableSample:
    """A sample as the respondent reads it; a text longer than a model's limit is cut, as its tokenizer does."""
    if isinstance(sample.example, Sound):
        return _of_sound(respondent, sample, sample.example)
    if isinstance(respondent, FunctionScores):
        return _for_function(respondent, sample)
    return _for_model(respondent, sample)


def _for_model(loaded_model: LoadedModel, sample: SurveySample) -> RemovableSample:
    (encoded,) = encode(loaded_model, [sample.example], truncate=True)
    inputs = model_inputs(loaded_model, [encoded])
    trace = trace_batch(loaded_model, inputs, "predicted", Reads(subsets=True))
    words: tuple[str, ...] = ()
    box: Box | None = None
    if encoded.chunk is not None:
        words, numbers, sizes = _words_of(encoded.chunk, inputs["input_ids"].shape[-1])
        shape: tuple[int, ...] = (len(words),)
        ablation = trace_ablation(trace, units={"text": torch.from_numpy(numbers)[None]})
    else:
        assert isinstance(sample.example, Image.Image)
        shape = tuple(inputs["pixel_values"].shape[-2:])
        box, sizes = covered_box(loaded_model.image_processor, sample.example.size), np.ones(shape)
        numbers = np.arange(sizes.size).reshape(shape)
        fill = fill_colour("mean", loaded_model.image_processor)
        ablation = trace_ablation(trace, units={"image": torch.from_numpy(numbers)[None]}, fill=fill)
    place, units = trace.target.place, ablation.ablation.examples
    logits = at_least_float32(logits_of(trace.output, place)).double().cpu().numpy()

    def ask(kept: UnitMasks) -> LabelValues:
        read = partial(logits_of, place=place)
        return ablation.outputs(units, [kept.reshape(len(kept), -1)], read)[:, 0]

    return RemovableSample(sample, shape, sizes, words, box, logits[0], ask)


def _of_sound(respondent: Respondent, sample: SurveySample, sound: Sound) -> RemovableSample:
    if isinstance(respondent, FunctionScores):
        own = sound_for_function(respondent, sound)
    else:
        own = sound_for_model(respondent, sound)

    def ask(kept: UnitMasks) -> LabelValues:
        answers: LabelValues = own.ask(kept)
        return as_logits(answers) if isinstance(respondent, FunctionScores) else answers

    (whole,) = ask(np.ones((1, *own.shape), dtype=bool))
    return RemovableSample(sample, own.shape, np.ones(own.shape), (), None, whole, ask, own.sound)


def _words_of(chunk: Chunk, length: int) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
    """The words of a chunk, the word of each of its tokens (−1 for none), and the tokens of each word."""
    by_word = tokens_by_word(chunk.layout)
    words = tuple(chunk.layout.texts[segment][start:end] for segment, start, end in by_word)
    own = word_numbers(chunk)
    numbers = np.full(length, -1)
    numbers[list(chunk.positions)] = np.where(own < len(words), own, -1)
    return words, numbers, np.bincount(numbers[numbers >= 0], minlength=len(words))


def _for_function(function: FunctionScores, sample: SurveySample) -> RemovableSample:
    units = removable_units(sample.example, None, "mean")
    words: tuple[str, ...] = ()
    box: Box | None = None
    (shape,) = units.units.shapes
    if isinstance(sample.example, str):
        words = tuple(sample.example[start:end] for start, end in word_ranges(sample.example))
        if not words:
            raise WhyformerError(f"{sample.name} has no words.")
    else:
        assert isinstance(sample.example, Image.Image)
        box = (0.0, 0.0, float(sample.example.width), float(sample.example.height))
    logits = as_logits(function.answers([units.whole]))

    def ask(kept: UnitMasks) -> LabelValues:
        rows: Sequence[PlaceShares] = list(kept.reshape(len(kept), -1))
        return as_logits(function.answers(rows, units.without))

    return RemovableSample(sample, shape, np.ones(shape), words, box, logits[0], ask)


def as_logits(answers: Any) -> LabelValues:
    """The outputs of a function as logits: probabilities that sum to 1 by their logarithm, other numbers unchanged."""
    answers = np.asarray(answers, dtype=np.float64)
    if answers.shape[1] < 2:
        raise WhyformerError("predict returned one number per example, but a survey compares labels: return each's.")
    if (answers >= 0).all() and (abs(answers.sum(axis=1) - 1) < SURE).all():
        answers = np.log(np.maximum(answers, LOWEST_PROBABILITY))
    logits: LabelValues = answers
    return logits


def label_log_odds(logits: LabelValues, label: int, *, is_multi: bool = False) -> np.ndarray:
    """The log-odds of a label against all others, in nats; with several labels at once its own logit."""
    own: np.ndarray = logits[:, label]
    if is_multi:
        return own
    others = np.delete(logits, label, axis=1)
    most = others.max(axis=1, keepdims=True)
    against: np.ndarray = most[:, 0] + np.log(np.exp(others - most).sum(axis=1))
    difference: np.ndarray = own - against
    return difference

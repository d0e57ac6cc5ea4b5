"""Perturbation of pictures, texts and regions, with all steps of all methods batched together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from whyformer.axes import Curve, Inputs, Labels, PixelRemoval, StepLogits
from whyformer.benchmark.batch import slice_inputs
from whyformer.benchmark.method_maps import explanations
from whyformer.benchmark.protocols import Columns, Figure, Line, protocol, require
from whyformer.benchmark.shard import Shard, explained_labels
from whyformer.benchmark.step_answers import MakeRemoval, Perturb, repeat_steps, step_answers
from whyformer.benchmark.word_tokens import class_tokens, readout_tokens, word_tokens
from whyformer.errors import WhyformerError
from whyformer.inputs.fills import Erasure, Fill, blanked, deleted, erased, fill_colour, filler_id
from whyformer.inputs.road_imputation import imputed
from whyformer.metrics.answers import answer_table
from whyformer.metrics.perturbation_curves import (
    DOMAINS,
    VQA_FRACTIONS,
    Domain,
    Explained,
    area,
    curves,
    largest_area,
    soft_accuracy,
)
from whyformer.metrics.removal import RemovableTokens, Unit, class_token_least, removed, removed_pixels
from whyformer.models.input_tensors import REGION_INPUTS, TEXT_INPUTS

ORDERS = {"positive": True, "negative": False}  # the most relevant first, or last
MEASURES = ("accuracy", "probability", "logit")
Removals = dict[tuple[str, str], MakeRemoval]  # of a method and an order


def _most(options: Mapping[str, Any]) -> float:
    """The area under a curve that stays at 1: areas are not divided by the width of their domain, as published."""
    return largest_area(options.get("domain", "0-0.9"))


CURVE_AREAS = {
    "negative − positive": Figure("accuracy gap", most=_most),
    "negative AUC": Figure("accuracy area, negative", most=_most),
    "positive AUC": Figure("accuracy area, positive", better="lower", most=_most),
    "negative − positive, probability": Figure("probability gap", most=_most),
    "negative AUC, probability": Figure("probability area, negative", most=_most),
    "positive AUC, probability": Figure("probability area, positive", better="lower", most=_most),
}


@protocol("image_perturbation", CURVE_AREAS)
def image_perturbation(
    shard: Shard,
    *,
    explained: Explained = "predicted",
    unit: Unit = "pixel",
    fill: Fill = "black",
    domain: Domain = "0-0.9",
) -> Columns:
    """Remove pixels, most or least relevant first (TA, BI; dual encoders zero-shot; ROAD as a fill)."""
    batch = shard.batch
    require("pixel_values" in batch.inputs, shard, "image_perturbation", "pictures")
    is_full = all(batch.content_size(row) == batch.image_size for row in range(len(batch)))
    require(is_full, shard, "image_perturbation", "pictures of one size, without padding")
    labels = explained_labels(shard, explained)
    fractions = DOMAINS[domain]
    removal = partial(removed_pixels, size=batch.image_size, fractions=_above_zero(fractions), unit=unit)
    removals = _removals(explanations(shard, labels, "image"), removal)
    logits = _answers(shard, removals, fractions, remove_pixels(shard, fill))
    return _areas(shard, logits, labels, fractions, domain)


@protocol("text_perturbation", CURVE_AREAS)
def text_perturbation(
    shard: Shard,
    *,
    explained: Explained = "predicted",
    how: Erasure = "pad",
    removable: RemovableTokens = "content",
    domain: Domain = "0-0.9",
) -> Columns:
    """Remove tokens, most or least relevant first (BI)."""
    is_read = "input_ids" in shard.batch.inputs and not shard.loaded_model.task.compares
    require(is_read, shard, "text_perturbation", "texts")
    labels = explained_labels(shard, explained)
    may_go, fractions = word_tokens(shard, removable), DOMAINS[domain]
    maps = explanations(shard, labels, "text")
    if removable != "content":
        maps = {method: class_token_least(scores, class_tokens(shard)) for method, scores in maps.items()}
    removals = _removals(maps, partial(removed, fractions=_above_zero(fractions), removable=may_go))
    logits = _answers(shard, removals, fractions, remove_words(shard, how))
    return _areas(shard, logits, labels, fractions, domain)


_VQA = {
    f"{what}, {order} AUC": Figure(f"{what} area, {order}", better="lower" if first else "higher")
    for what in ("regions", "words")
    for order, first in ORDERS.items()
}


_GAPS = {f"{what}, negative − positive": Figure(f"{what} gap") for what in ("regions", "words")}


@protocol("vqa_removal", _GAPS | _VQA)
def vqa_removal(
    shard: Shard, *, explained: Explained = "predicted", fractions: Sequence[float] = VQA_FRACTIONS
) -> Columns:
    """Soft accuracy of the answers after regions or words are deleted (GA)."""
    samples = shard.batch.samples
    has_answers = shard.loaded_model.task.sees_regions and all(sample.answers for sample in samples)
    require(has_answers, shard, "vqa_removal", "questions about regions, with answers")
    labels = explained_labels(shard, explained)
    names = shard.questions.names[0]
    accuracies = answer_table([sample.answers for sample in samples], [names[n] for n in range(len(names))])
    accuracies = accuracies.to(shard.logits.device)
    fractions = _rising(fractions)
    columns: Columns = {}
    # The read-out token is kept: without it the model would read another.
    words = word_tokens(shard) & ~readout_tokens(shard, labels)
    parts = {
        "regions": ("regions", REGION_INPUTS, shard.batch.inputs["visual_attention_mask"].bool()),
        "words": ("text", TEXT_INPUTS, words),
    }
    for what, (part, inputs, may_go) in parts.items():
        removal = partial(removed, fractions=_above_zero(fractions), removable=may_go, rounded="kept")
        removals = _removals(explanations(shard, labels, part), removal)
        logits = _answers(shard, removals, fractions, _delete_inputs(shard, inputs))
        heights = {key: soft_accuracy(steps, accuracies) for key, steps in logits.items()}
        columns |= _curve_columns(f"{what} ", heights, fractions, "0-1")
    return columns


def _rising(fractions: Sequence[float]) -> tuple[float, ...]:
    """Check that the fractions rise from 0 to 1: the area under the curve depends on their order."""
    try:
        numbers = tuple(map(float, fractions))
    except (TypeError, ValueError):
        numbers = ()
    if numbers[:1] != (0.0,) or numbers[-1:] != (1.0,) or any(one >= other for one, other in pairwise(numbers)):
        raise WhyformerError(f"vqa_removal: fractions={fractions!r:.60} must rise from 0 to 1, as in [0, 0.5, 1].")
    return numbers


def _removals(maps: Mapping[str, Tensor], removal: Callable[..., Tensor]) -> Removals:
    """Removal masks by method and order, made lazily: all at once would take too much memory."""
    return {
        (method, order): partial(removal, scores, most_relevant_first=first)
        for method, scores in maps.items()
        for order, first in ORDERS.items()
    }


def remove_pixels(shard: Shard, fill: Fill) -> Perturb:
    """Remove pixels from some of the shard's pictures at every step."""
    processor = shard.loaded_model.image_processor
    colour = None if fill == "road" else fill_colour(fill, processor)

    def perturb(removal: PixelRemoval, here: slice) -> Inputs:
        inputs = slice_inputs(shard.batch.inputs, here)
        pixels = inputs["pixel_values"]
        if colour is None:  # ROAD, step by step, so that the noise does not depend on batching
            steps = torch.cat([imputed(pixels, one[None], seed=shard.seed) for one in removal])
        else:
            steps = blanked(pixels, removal, colour)
        return repeat_steps(inputs, len(removal)) | {"pixel_values": steps}

    return perturb


def remove_words(shard: Shard, how: Erasure) -> Perturb:
    """Remove tokens from some of the shard's texts at every step."""
    filler = filler_id(shard.loaded_model.tokenizer, how)
    return lambda removal, here: erased(slice_inputs(shard.batch.inputs, here), removal, how, filler=filler)


def _delete_inputs(shard: Shard, names: Sequence[str]) -> Perturb:
    filler = filler_id(shard.loaded_model.tokenizer)
    return lambda removal, here: deleted(slice_inputs(shard.batch.inputs, here), removal, names, filler=filler)


def _above_zero(fractions: Sequence[float]) -> tuple[float, ...]:
    """The fractions above 0: the answer to the whole sample is known."""
    return tuple(fraction for fraction in fractions if fraction > 0)


def _answers(
    shard: Shard, removals: Removals, fractions: Sequence[float], perturb: Perturb
) -> dict[tuple[str, str], StepLogits]:
    """The answers at every fraction, for every method and order."""
    steps = len(_above_zero(fractions))
    whole = [shard.logits[None]] * (len(fractions) - steps)
    answers = step_answers(shard, removals, steps, perturb)
    return {key: torch.cat([*whole, part]) for key, part in answers.items()}


def _areas(
    shard: Shard,
    logits: dict[tuple[str, str], StepLogits],
    labels: Labels,
    fractions: tuple[float, ...],
    domain: Domain,
) -> Columns:
    by_key = {key: curves(steps, shard.labels, labels) for key, steps in logits.items()}
    columns: Columns = {}
    for measure in MEASURES:
        heights = {key: getattr(one, measure) for key, one in by_key.items()}
        if measure == "accuracy":
            has_no_label = (shard.labels < 0)[:, None]
            heights = {key: value.masked_fill(has_no_label, torch.nan) for key, value in heights.items()}
        columns |= _curve_columns(f"{measure} ", heights, fractions, domain)
    return columns


def _curve_columns(
    measure: str, heights: dict[tuple[str, str], Curve], fractions: tuple[float, ...], domain: Domain
) -> Columns:
    """Each curve, the area under it, and the gap between the negative and positive areas."""
    areas = {key: area(values, fractions, domain) for key, values in heights.items()}
    lines: Columns = {(method, f"{measure}{order}"): Line(fractions, v) for (method, order), v in heights.items()}
    single: Columns = {(method, f"{measure}area, {order}"): value for (method, order), value in areas.items()}
    methods = dict.fromkeys(method for method, _ in heights)
    gaps: Columns = {(m, f"{measure}gap"): areas[m, "negative"] - areas[m, "positive"] for m in methods}
    return lines | single | gaps

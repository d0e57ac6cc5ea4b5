"""Perturbation of pictures, texts and regions: all steps of all methods are asked about together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from whyformer.axes import Curve, Inputs, Labels, PixelRemoval, StepLogits
from whyformer.benchmark.protocols import Figure, Found, Line, checked, protocol
from whyformer.benchmark.questions import sliced
from whyformer.benchmark.shard import Gone, Perturbed, Shard, repeated
from whyformer.errors import WhyformerError
from whyformer.metrics.answers import answer_table
from whyformer.metrics.perturbation import (
    DOMAINS,
    REGION_INPUTS,
    TEXT_INPUTS,
    VQA_FRACTIONS,
    Domain,
    Erasure,
    Explained,
    area,
    blank,
    blanked,
    curves,
    deleted,
    erased,
    filler_id,
    soft_accuracy,
)
from whyformer.metrics.removal import Removable, Unit, class_token_least, removed, removed_pixels
from whyformer.metrics.road import imputed

Fill = Literal["black", "mean", "road"]
ORDERS = {"positive": True, "negative": False}  # the most relevant first, or last
MEASURES = ("accuracy", "probability", "logit")
Removals = dict[tuple[str, str], Gone]  # of a method and an order

AREAS = {
    "negative − positive": Figure("accuracy gap"),
    "negative AUC": Figure("accuracy area, negative"),
    "positive AUC": Figure("accuracy area, positive", better="lower"),
    "negative − positive, probability": Figure("probability gap"),
    "negative AUC, probability": Figure("probability area, negative"),
    "positive AUC, probability": Figure("probability area, positive", better="lower"),
}


@protocol("image_perturbation", AREAS)
def image_perturbation(
    shard: Shard,
    *,
    explained: Explained = "predicted",
    unit: Unit = "pixel",
    fill: Fill = "black",
    domain: Domain = "0-0.9",
) -> Found:
    """Pixels go, the most or the least relevant first (TA, BI; of a dual encoder, zero-shot; ROAD as a fill)."""
    checked("pixel_values" in shard.inputs, shard, "image_perturbation", "pictures")
    is_full = all(shard.content(row) == shard.size for row in range(len(shard)))
    checked(is_full, shard, "image_perturbation", "pictures of one size, without padding")
    labels = shard.explained(explained)
    maps = shard.explanations(labels, "image")
    fractions = DOMAINS[domain]
    gone = _removals(maps, partial(removed_pixels, size=shard.size, fractions=_asked(fractions), unit=unit))
    logits = _answers(shard, gone, fractions, without_pixels(shard, fill))
    return _areas(shard, logits, labels, fractions, domain)


@protocol("text_perturbation", AREAS)
def text_perturbation(
    shard: Shard,
    *,
    explained: Explained = "predicted",
    how: Erasure = "pad",
    removable: Removable = "content",
    domain: Domain = "0-0.9",
) -> Found:
    """Tokens go, the most or the least relevant first (BI)."""
    checked("input_ids" in shard.inputs, shard, "text_perturbation", "texts")
    labels = shard.explained(explained)
    may_go, fractions = shard.words(removable), DOMAINS[domain]
    maps = shard.explanations(labels, "text")
    if removable != "content":
        maps = {method: class_token_least(scores, shard.class_tokens) for method, scores in maps.items()}
    gone = _removals(maps, partial(removed, fractions=_asked(fractions), removable=may_go))
    logits = _answers(shard, gone, fractions, without_words(shard, how))
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
) -> Found:
    """Regions or words are deleted; the soft accuracy of what is answered then (GA)."""
    is_asked = shard.loaded_model.sees_regions and all(sample.answers for sample in shard.samples)
    checked(is_asked, shard, "vqa_removal", "questions about regions, with answers")
    labels = shard.explained(explained)
    names = shard.questions.names[0]
    right = answer_table([sample.answers for sample in shard.samples], [names[n] for n in range(len(names))])
    right = right.to(shard.clean.device)
    fractions = _rising(fractions)
    found: Found = {}
    # Without the token that the answer is read from, the model would read another.
    words = shard.words() & ~shard.read_tokens(labels)
    parts = {
        "regions": ("regions", REGION_INPUTS, shard.inputs["visual_attention_mask"].bool()),
        "words": ("text", TEXT_INPUTS, words),
    }
    for what, (part, inputs, may_go) in parts.items():
        maps = shard.explanations(labels, part)
        gone = _removals(maps, partial(removed, fractions=_asked(fractions), removable=may_go, rounded="kept"))
        logits = _answers(shard, gone, fractions, _without(shard, inputs))
        heights = {key: soft_accuracy(steps, right) for key, steps in logits.items()}
        found |= _curve_columns(f"{what} ", heights, fractions, "0-1")
    return found


def _rising(fractions: Sequence[float]) -> tuple[float, ...]:
    """The fractions from 0 to 1: out of order, the area under the curve would be wrong."""
    try:
        found = tuple(map(float, fractions))
    except (TypeError, ValueError):
        found = ()
    if found[:1] != (0.0,) or found[-1:] != (1.0,) or any(one >= other for one, other in pairwise(found)):
        raise WhyformerError(f"vqa_removal: fractions={fractions!r:.60}. They rise from 0 to 1, as [0, 0.5, 1].")
    return found


def _removals(maps: Mapping[str, Tensor], removal: Callable[..., Tensor]) -> Removals:
    """What goes by each method, in each order: made when it is asked about, for all at once would be many masks."""
    return {
        (method, order): partial(removal, scores, most_relevant_first=first)
        for method, scores in maps.items()
        for order, first in ORDERS.items()
    }


def without_pixels(shard: Shard, fill: Fill) -> Perturbed:
    """Some of the shard's pictures at every step, without the pixels that are gone."""
    processor = shard.loaded_model.image_processor
    mean, std = processor.image_mean, processor.image_std

    def perturbed(gone: PixelRemoval, here: slice) -> Inputs:
        inputs = sliced(shard.inputs, here)
        pixels = inputs["pixel_values"]
        if fill == "road":  # step by step, so that the noise is the same whatever is asked together
            steps = torch.cat([imputed(pixels, one[None], seed=shard.seed) for one in gone])
        else:
            steps = blanked(pixels, gone, blank(fill, mean, std))
        return repeated(inputs, len(gone)) | {"pixel_values": steps}

    return perturbed


def without_words(shard: Shard, how: Erasure) -> Perturbed:
    """Some of the shard's texts at every step, without the tokens that are gone."""
    filler = filler_id(shard.loaded_model.tokenizer, how)
    return lambda gone, here: erased(sliced(shard.inputs, here), gone, how, filler=filler)


def _without(shard: Shard, names: Sequence[str]) -> Perturbed:
    filler = filler_id(shard.loaded_model.tokenizer)
    return lambda gone, here: deleted(sliced(shard.inputs, here), gone, names, filler=filler)


def _asked(fractions: Sequence[float]) -> tuple[float, ...]:
    """The fractions that the model must be asked about: not the clean point, whose answer is known."""
    return tuple(fraction for fraction in fractions if fraction > 0)


def _answers(
    shard: Shard, gone: Removals, fractions: Sequence[float], perturbed: Perturbed
) -> dict[tuple[str, str], StepLogits]:
    """The answers at every fraction, for every method and order."""
    steps = len(_asked(fractions))
    clean = [shard.clean[None]] * (len(fractions) - steps)
    answers = shard.step_answers(gone, steps, perturbed)
    return {key: torch.cat([*clean, part]) for key, part in answers.items()}


def _areas(
    shard: Shard,
    logits: dict[tuple[str, str], StepLogits],
    labels: Labels,
    fractions: tuple[float, ...],
    domain: Domain,
) -> Found:
    found = {key: curves(steps, shard.labels, labels) for key, steps in logits.items()}
    columns: Found = {}
    for measure in MEASURES:
        heights = {key: getattr(one, measure) for key, one in found.items()}
        if measure == "accuracy":
            nobody_knows = (shard.labels < 0)[:, None]
            heights = {key: value.masked_fill(nobody_knows, torch.nan) for key, value in heights.items()}
        columns |= _curve_columns(f"{measure} ", heights, fractions, domain)
    return columns


def _curve_columns(
    measure: str, heights: dict[tuple[str, str], Curve], fractions: tuple[float, ...], domain: Domain
) -> Found:
    """Each curve, the area under it, and by how much the negative one's is larger."""
    areas = {key: area(values, fractions, domain) for key, values in heights.items()}
    lines: Found = {(method, f"{measure}{order}"): Line(fractions, v) for (method, order), v in heights.items()}
    single: Found = {(method, f"{measure}area, {order}"): value for (method, order), value in areas.items()}
    methods = dict.fromkeys(method for method, _ in heights)
    gaps: Found = {(m, f"{measure}gap"): areas[m, "negative"] - areas[m, "positive"] for m in methods}
    return lines | single | gaps

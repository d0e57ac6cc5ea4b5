"""Controls: does a map depend on the model, the class, what it calls relevant? How true are the recursions?"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from whyformer.axes import ExampleRows, Removal, TokenMask
from whyformer.benchmark.protocols import Figure, Found, Line, checked, protocol
from whyformer.benchmark.protocols.perturbation import Fill, without_pixels, without_words
from whyformer.benchmark.questions import as_taken, sliced
from whyformer.benchmark.shard import Gone, Shard
from whyformer.metrics.approximation import approximation_errors
from whyformer.metrics.perturbation import Erasure, Explained, curves
from whyformer.metrics.removal import groups
from whyformer.metrics.sanity import GROUPS, Other, other_class, randomised, rank_correlation
from whyformer.metrics.sanity import saco as saco_of


@protocol("class_sensitivity", {"1 − rank correlation": Figure("sensitivity", is_share=False)})
def class_sensitivity(shard: Shard, *, other: Other = "second") -> Found:
    """How much the maps of the predicted class and of another differ."""
    checked(shard.clean.shape[1] > 1, shard, "class_sensitivity", "two classes")
    part = _part(shard)
    first, second = (
        shard.explanations(labels, part) for labels in (shard.clean.argmax(dim=1), other_class(shard.clean, other))
    )
    return {(method, "sensitivity"): 1 - correlations(shard, first[method], second[method]) for method in first}


@protocol("saco", {"SaCo": Figure("saco", is_share=False)})
def saco(shard: Shard, *, explained: Explained = "predicted", fill: Fill = "black", how: Erasure = "pad") -> Found:
    """Groups of descending salience, each taken away alone: does the answer fall as much as their saliences say?"""
    part, labels = _part(shard), shard.explained(explained)
    maps = shard.explanations(labels, part)
    may_go = shard.words() if part == "text" else None
    members = {method: groups(scores.flatten(1), GROUPS, removable=may_go) for method, scores in maps.items()}
    gone: dict[str, Gone] = {method: partial(_gone, members[method], maps[method], shard) for method in maps}
    perturbed = without_words(shard, how) if part == "text" else without_pixels(shard, fill)
    before = curves(shard.clean[None], labels, labels).probability
    found: Found = {}
    for method, steps in shard.step_answers(gone, GROUPS, perturbed).items():
        drops = before - curves(steps, labels, labels).probability
        found[method, "saco"] = saco_of(maps[method].flatten(1), members[method], drops)
    return found


def _size_of_mean(correlations: ExampleRows) -> float:
    """How far the mean is from 0: a map that turned round knows as much of the model as one that stayed."""
    return abs(float(np.mean(correlations)))


@protocol(
    "model_randomisation",
    {
        f"absolute rank correlation, {when}": Figure(measure, _size_of_mean, better="lower", is_share=False)
        for measure, when in (("last", "all forgotten"), ("mean", "mean over stages"))
    },
)
def model_randomisation(shard: Shard) -> Found:
    """The map's rank correlation with itself while the model is forgotten, from the output down (Adebayo et al.)."""
    part, labels = _part(shard), shard.clean.argmax(dim=1)
    inputs, target = shard.questions.explained(labels)
    first = shard.explanations(labels, part)
    alike: dict[str, list[Tensor]] = {name: [] for name in first}
    for _, model in randomised(shard.loaded_model.model, seed=shard.seed):
        loaded_model = replace(shard.loaded_model, model=model)
        for name, so_far in alike.items():  # a prior stays what it was
            asked_again = name in shard.methods
            maps = shard.explained_on(loaded_model, inputs, target, name)[part] if asked_again else first[name]
            so_far.append(correlations(shard, first[name], maps))
    found: Found = {}
    for name, values in alike.items():
        line = torch.stack(values, dim=1)
        found[name, "rank correlation by stages forgotten"] = Line(
            tuple(float(n + 1) for n in range(len(values))), line
        )
        found[name, "last"], found[name, "mean"] = line[:, -1], line.mean(dim=1)
    return found


@protocol(
    "approximation",
    {"log10 of the squared error, mean over blocks": Figure("log error", better="lower", is_share=False)},
)
def approximation(shard: Shard) -> Found:
    """How far each recursion is from what the blocks really make of their tokens (BI Fig. 3)."""
    labels = shard.clean.argmax(dim=1)
    inputs, target = shard.questions.explained(labels)

    def asked(part: slice) -> dict[str, Tensor]:
        return approximation_errors(shard.loaded_model.model, as_taken(sliced(inputs, part)), target(part))

    parts = shard.pace.parts(len(shard), asked)
    found: Found = {}
    for name in parts[0]:
        errors = torch.cat([part[name] for part in parts]).double()
        found[name, "squared error by block"] = Line(tuple(map(float, range(errors.shape[1]))), errors)
        found[name, "log error"] = errors.log10().mean(dim=1)
    return found


def correlations(shard: Shard, first: Tensor, second: Tensor) -> Tensor:
    """The rank correlation of each sample's two maps, of texts over their words."""
    if first.dim() == 3:
        return rank_correlation(first.flatten(1), second.flatten(1))
    is_text = first.shape == shard.inputs["input_ids"].shape
    words: TokenMask = shard.words() if is_text else torch.ones_like(first).bool()
    pairs = [rank_correlation(first[n : n + 1, here], second[n : n + 1, here]) for n, here in enumerate(words)]
    return torch.cat(pairs)


def _part(shard: Shard) -> str:
    return "image" if "pixel_values" in shard.inputs else "text"


def _gone(members: Removal, scores: Tensor, shard: Shard) -> Tensor:
    """Groups of words as they are, groups of patches as groups of their pixels."""
    if scores.dim() == 2:
        return members
    return F.interpolate(members.unflatten(2, scores.shape[1:]).float(), shard.size, mode="nearest-exact").bool()

"""Controls: whether a map depends on the model, the class and the relevant parts, and how exact recursions are."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from whyformer.axes import ExampleRows, Removal, TokenMask
from whyformer.benchmark.batch import model_arguments, slice_inputs
from whyformer.benchmark.method_maps import compute_maps, explanations
from whyformer.benchmark.protocols import Columns, Figure, Line, protocol, require
from whyformer.benchmark.protocols.perturbation import remove_pixels, remove_words
from whyformer.benchmark.shard import Shard, explained_labels
from whyformer.benchmark.step_answers import MakeRemoval, step_answers
from whyformer.benchmark.word_tokens import word_tokens
from whyformer.inputs.fills import Erasure, Fill
from whyformer.metrics.approximation import approximation_errors
from whyformer.metrics.perturbation_curves import Explained, curves
from whyformer.metrics.removal import groups
from whyformer.metrics.sanity import SACO_GROUPS, Other, other_class, randomised, rank_correlation, saco


@protocol("class_sensitivity", {"1 − rank correlation": Figure("sensitivity", is_share=False)})
def class_sensitivity(shard: Shard, *, other: Other = "second") -> Columns:
    """How much the maps of the predicted class and of another differ."""
    require(shard.logits.shape[1] > 1, shard, "class_sensitivity", "two classes")
    pair_of_classes = shard.logits.argmax(dim=1), other_class(shard.logits, other)
    first, second = (explanations(shard, labels, _part(shard)) for labels in pair_of_classes)
    return {(method, "sensitivity"): 1 - correlations(shard, first[method], second[method]) for method in first}


@protocol("saco", {"SaCo": Figure("saco", is_share=False)})
def saco_protocol(
    shard: Shard, *, explained: Explained = "predicted", fill: Fill = "black", how: Erasure = "pad"
) -> Columns:
    """Whether the answer falls with the salience of a removed group: groups are removed one at a time (SaCo)."""
    part, labels = _part(shard), explained_labels(shard, explained)
    maps = explanations(shard, labels, part)
    may_go = word_tokens(shard) if part == "text" else None
    members = {method: groups(scores.flatten(1), SACO_GROUPS, removable=may_go) for method, scores in maps.items()}
    removals: dict[str, MakeRemoval] = {
        method: partial(_group_removal, members[method], maps[method], shard) for method in maps
    }
    perturb = remove_words(shard, how) if part == "text" else remove_pixels(shard, fill)
    before = curves(shard.logits[None], labels, labels).probability
    columns: Columns = {}
    for method, steps in step_answers(shard, removals, SACO_GROUPS, perturb).items():
        drops = before - curves(steps, labels, labels).probability
        columns[method, "saco"] = saco(maps[method].flatten(1), members[method], drops)
    return columns


def _size_of_mean(correlations: ExampleRows) -> float:
    """The magnitude of the mean: an inverted map depends as little on the weights as an unchanged one."""
    return abs(float(np.mean(correlations)))


@protocol(
    "model_randomisation",
    {
        f"absolute rank correlation, {when}": Figure(measure, _size_of_mean, better="lower", is_share=False)
        for measure, when in (("last", "all forgotten"), ("mean", "mean over stages"))
    },
)
def model_randomisation(shard: Shard) -> Columns:
    """Rank correlation of a map with that of the model randomised from the output down (Adebayo et al.)."""
    part, labels = _part(shard), shard.logits.argmax(dim=1)
    targeted = shard.questions.targeted(labels)
    first = explanations(shard, labels, part)
    by_stage: dict[str, list[Tensor]] = {name: [] for name in first}
    for _, model in randomised(shard.loaded_model.model, seed=shard.seed):
        loaded_model = replace(shard.loaded_model, model=model)
        for name, values in by_stage.items():
            is_prior = name not in shard.methods  # priors ignore the model and do not change
            maps = first[name] if is_prior else compute_maps(shard, loaded_model, targeted, name)[part]
            values.append(correlations(shard, first[name], maps))
    columns: Columns = {}
    for name, values in by_stage.items():
        line, stages = torch.stack(values, dim=1), tuple(float(n + 1) for n in range(len(values)))
        columns[name, "rank correlation by stages forgotten"] = Line(stages, line)
        columns[name, "last"], columns[name, "mean"] = line[:, -1], line.mean(dim=1)
    return columns


@protocol(
    "approximation",
    {"log10 of the squared error, mean over blocks": Figure("log error", better="lower", is_share=False)},
)
def approximation(shard: Shard) -> Columns:
    """Squared error of each recursion compared with the output of the blocks (BI Fig. 3)."""
    targeted = shard.questions.targeted(shard.logits.argmax(dim=1))

    def block_errors(part: slice) -> dict[str, Tensor]:
        inputs = model_arguments(slice_inputs(targeted.inputs, part))
        return approximation_errors(shard.loaded_model.model, inputs, targeted.target(part))

    parts = shard.batch_size.map_slices(len(shard), block_errors)
    columns: Columns = {}
    for name in parts[0]:
        errors = torch.cat([part[name] for part in parts]).double()
        columns[name, "squared error by block"] = Line(tuple(map(float, range(errors.shape[1]))), errors)
        columns[name, "log error"] = errors.log10().mean(dim=1)
    return columns


def correlations(shard: Shard, first: Tensor, second: Tensor) -> Tensor:
    """The rank correlation of each sample's two maps, of texts over their words."""
    if first.dim() == 3:
        return rank_correlation(first.flatten(1), second.flatten(1))
    is_text = first.shape == shard.batch.inputs["input_ids"].shape
    words: TokenMask = word_tokens(shard) if is_text else torch.ones_like(first).bool()
    pairs = [rank_correlation(first[n : n + 1, here], second[n : n + 1, here]) for n, here in enumerate(words)]
    return torch.cat(pairs)


def _part(shard: Shard) -> str:
    return "image" if "pixel_values" in shard.batch.inputs else "text"


def _group_removal(members: Removal, scores: Tensor, shard: Shard) -> Tensor:
    """Convert groups of patches to groups of their pixels; groups of words are unchanged."""
    if scores.dim() == 2:
        return members
    patches = members.unflatten(2, scores.shape[1:]).float()
    return F.interpolate(patches, shard.batch.image_size, mode="nearest-exact").bool()

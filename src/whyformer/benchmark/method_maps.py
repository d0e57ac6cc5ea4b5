"""Compute the maps of a shard's samples by every method of the suite, and by priors that ignore the model."""

from __future__ import annotations

import numpy as np
import torch

from whyformer.api.attribute import MethodChoice, choose_method
from whyformer.api.batch_scores import score_batch, trace_batch
from whyformer.axes import Inputs, Labels, StreamScores
from whyformer.benchmark.batch import SAMPLE, model_arguments, slice_inputs
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.sample_targets import TargetedInputs
from whyformer.benchmark.shard import CONTROL, Maps, NotFinite, Shard, is_finite
from whyformer.errors import UnsupportedModel
from whyformer.inputs.parts import part_places
from whyformer.inputs.read import Regions
from whyformer.methods.registry import METHODS
from whyformer.metrics.priors import PRIORS, REGION_PRIORS
from whyformer.models.loading import LoadedModel
from whyformer.tracing.trace import copies_at_once


def explanations(shard: Shard, labels: Labels, part: str) -> Maps:
    """Compute the maps of a shard's samples by every method that applies, for a protocol to measure.

    For pictures and regions the priors are included. A map is computed once, however many protocols read it.

    Args:
        shard: The argument of the protocol.
        labels: The label to explain for each sample, from `explained_labels`.
        part: "image", maps [sample row column]; "regions" or "text", scores [sample place].

    Returns:
        The maps by method label or prior name; methods that do not apply are left out.

    Raises:
        NotFinite: If a method gives NaN or infinite scores for some samples; the run leaves these out.

    Example:
        >>> from whyformer import evaluate
        >>> from whyformer.extend import Figure, explained_labels, explanations, protocol
        >>> @protocol("largest", {"largest score": Figure("largest", better="neither")}, replace=True)
        ... def largest(shard):
        ...     "The largest score of each map."
        ...     maps = explanations(shard, explained_labels(shard, "predicted"), "text")
        ...     return {(method, "largest"): scores.amax(dim=1) for method, scores in maps.items()}
        >>> len(evaluate("mini-bert", ["a wonderful film", "a dull film"], "rollout", "largest").to_pandas())
        2
    """
    by_method = {name: _cached_maps(shard, labels, name) for name in shard.methods}
    maps = {name: parts[part] for name, parts in by_method.items() if parts and part in parts}
    if part == "image":
        maps |= image_priors(shard, shard.batch.inputs, maps)
    elif part == "regions":
        maps |= _region_priors(shard, maps)
    return {name: scores for name, scores in maps.items() if name not in shard.known}


def _cached_maps(shard: Shard, labels: Labels, name: str) -> Maps | None:
    cache, key = shard.cache, (name, tuple(labels.tolist()))
    if key not in cache.maps and name not in cache.left_out:
        maps = method_maps(shard, shard.questions.targeted(labels), name)
        if maps is not None:
            cache.maps[key] = maps
    return cache.maps.get(key)


def method_maps(shard: Shard, targeted: TargetedInputs, name: str) -> Maps | None:
    """The maps of these inputs by a method of the suite; None, with the reason noted, if it does not apply."""
    try:
        maps = compute_maps(shard, shard.loaded_model, targeted, name)
    except UnsupportedModel as reason:
        shard.cache.left_out[name] = str(reason)
        return None
    is_broken = ~torch.stack([is_finite(scores) for scores in maps.values()]).all(dim=0)
    if len(is_broken) > 1 and bool(is_broken.all()):
        shard.cache.left_out[name] = "It gives NaN or infinite scores on all samples of a shard."
        return None
    if bool(is_broken.any()):
        raise NotFinite(targeted.inputs[SAMPLE][is_broken].tolist(), f"{name} gives NaN or infinite scores.")
    return maps


def compute_maps(shard: Shard, loaded_model: LoadedModel, targeted: TargetedInputs, name: str) -> Maps:
    """The maps of these inputs by a method of the suite, for the shard's model or a modified one."""
    choice, inputs = _method_choice(shard.methods[name]), targeted.inputs
    most = _explained_at_once(shard, loaded_model, targeted)

    def scores(part: slice) -> StreamScores:
        arguments = model_arguments(slice_inputs(inputs, part))
        # For a picture compared with texts, the target text is not the one its sample was encoded with.
        rows = [] if loaded_model.task.compares else inputs[SAMPLE][part].tolist()
        encodings = [shard.batch.encodings[row] for row in rows]
        target, size = targeted.target(part), min(shard.batch_size.size, most)
        result = score_batch(loaded_model, arguments, target, choice, encodings, inputs_at_once=size)
        return {stream: values for stream, values in result.scores.items() if stream in result.attribution}

    parts = shard.batch_size.map_slices(len(inputs[SAMPLE]), scores, most=most)
    streams = {stream: torch.cat([part[stream] for part in parts]) for stream in parts[0]}
    return split_streams(loaded_model, streams, inputs)


def _explained_at_once(shard: Shard, loaded_model: LoadedModel, targeted: TargetedInputs) -> int:
    """The number of inputs that fill the device with a graph, which more would only make larger; from one's tokens."""
    if shard.cache.at_once is None:
        one = slice(0, 1)
        inputs = model_arguments(slice_inputs(targeted.inputs, one))
        try:
            trace = trace_batch(loaded_model, inputs, targeted.target(one), METHODS[CONTROL].reads)
            shard.cache.at_once = max(1, copies_at_once(trace))
        except UnsupportedModel:  # methods that only ask the model again need no trace
            shard.cache.at_once = shard.batch_size.size
    return shard.cache.at_once


def _method_choice(choice: Choice) -> MethodChoice:
    """A method of the suite with its backward rules, which suites list among its options."""
    options = dict(choice.options)
    return MethodChoice(*choose_method(choice.name, options.pop("backward", None)), options)


def split_streams(loaded_model: LoadedModel, streams: StreamScores, inputs: Inputs) -> Maps:
    """Convert scores of streams to those of the parts of an example: a picture, its regions, a text."""
    maps: Maps = {}
    lengths = {stream: scores.shape[1] for stream, scores in streams.items()}
    for place in part_places(loaded_model.model, inputs, lengths):
        scores = streams[place.stream][:, place.first : place.first + place.count].float()
        if place.kind == "picture" and place.grid is not None:
            maps["image"] = scores.unflatten(1, place.grid)
        elif place.kind != "written":
            maps[place.kind] = scores
    return maps


def image_priors(shard: Shard, inputs: Inputs, maps: Maps) -> Maps:
    """The maps of priors that ignore the model, on the same patches."""
    rows, columns = next(iter(maps.values())).shape[1:]
    return {name: prior(inputs["pixel_values"], rows, columns) for name, prior in PRIORS.items()}


def _region_priors(shard: Shard, maps: Maps) -> Maps:
    """The priors of each picture's regions; padding is 0."""
    like = next(iter(maps.values()))
    priors = {name: torch.zeros_like(like) for name in REGION_PRIORS}
    for row, sample in enumerate(shard.batch.samples):
        regions: Regions = sample.example[0]
        pixels = torch.from_numpy(np.array(regions.image.convert("RGB"))).permute(2, 0, 1)[None]
        boxes = torch.from_numpy(regions.shares)
        for name, prior in REGION_PRIORS.items():
            priors[name][row, : len(boxes)] = prior(pixels, boxes).to(like)
    return priors

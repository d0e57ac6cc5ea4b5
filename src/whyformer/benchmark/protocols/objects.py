"""Weakly supervised segmentation: maps of detected objects as masks, scored as in COCO (GA)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whyformer.benchmark.batch import model_arguments, slice_inputs
from whyformer.benchmark.method_maps import image_priors, method_maps
from whyformer.benchmark.protocols import Columns, Figure, protocol, require
from whyformer.benchmark.sample_targets import TargetedInputs
from whyformer.benchmark.samples import Thing
from whyformer.benchmark.shard import Shard
from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.metrics.detection import (
    OBJECT_SIZES,
    DetectedObject,
    Matches,
    ObjectSize,
    Otsu,
    average_recall,
    concatenate_matches,
    evaluate_objects,
    matches,
    object_average_precision,
    object_masks,
)
from whyformer.metrics.priors import PRIORS
from whyformer.models.structure import is_detector, labels_of
from whyformer.targets.resolve import object_probabilities
from whyformer.targets.scores import label_index, logit

DETECTION_RESAMPLES = 500  # of every kind at every threshold: two thousand would take minutes per method


def _figure(of: Callable[[Sequence[Matches], Any], Any], area: ObjectSize) -> Figure:
    def of_texts(*methods: Sequence[str]) -> Callable[..., Any]:
        by_kind = concatenate_matches([_matches_by_area(tuple(texts))[area] for texts in methods])
        return lambda *counts: of(by_kind, np.concatenate(counts, axis=-1))

    return Figure("objects", of_texts=of_texts, resamples=DETECTION_RESAMPLES)


@lru_cache(maxsize=64)
def _matches_by_area(texts: tuple[str, ...]) -> dict[ObjectSize, list[Matches]]:
    """Matches by object size, shared by all figures: matching takes longest."""
    evaluation = _evaluate(texts)
    return {area: matches(evaluation, area) for area in OBJECT_SIZES}


@protocol(
    "weak_segmentation",
    {
        name if area == "all" else f"{name}_{area}": _figure(of, area)
        for name, of in (("AP", object_average_precision), ("AR", average_recall))
        for area in OBJECT_SIZES
    },
)
def weak_segmentation(shard: Shard, *, otsu: Otsu = "pixels", sure: float = 0.5) -> Columns:
    """The map of each confident detection, as a mask by Otsu's threshold, compared with COCO's truth (GA)."""
    model = shard.loaded_model.model
    require(is_detector(model), shard, "weak_segmentation", "a detector")
    if not isinstance(sure, int | float) or not 0 <= sure < 1:
        raise WhyformerError(f"weak_segmentation: sure={sure!r} is not a probability from 0 to below 1.")
    inputs = model_arguments(shard.batch.inputs)
    with torch.no_grad():
        logits = shard.batch_size.map_slices(len(shard), lambda part: model(**slice_inputs(inputs, part)).logits)
    best, kinds = object_probabilities(torch.cat(logits), labels_of(shard.loaded_model.model)).max(dim=2)
    rows, queries = (best > sure).nonzero(as_tuple=True)  # 0.5 is GA's code; its comment says 0.8
    labels, scores_of = kinds[rows, queries], best[rows, queries]
    maps = _object_maps(shard, rows, queries, labels) if len(rows) else _no_maps(shard)
    truths = [_truth(shard, row) for row in range(len(shard))]
    columns: Columns = {}
    for method, scores in maps.items():
        texts = []
        for row in range(len(shard)):
            here = (rows == row).nonzero()[:, 0]
            masks = [] if scores is None or not len(here) else _masks(shard, row, scores[here], otsu)
            objects = [
                {"category": kind, "score": score, "mask": mask}
                for kind, score, mask in zip(labels[here].tolist(), scores_of[here].tolist(), masks, strict=True)
            ]
            texts.append(json.dumps(truths[row] | {"found": objects}))
        columns[method, "objects"] = texts
    return columns


def _no_maps(shard: Shard) -> dict[str, Tensor | None]:
    """Empty maps of every method, for samples without objects."""
    names = [*(name for name in shard.methods if name not in shard.cache.left_out), *PRIORS]
    return dict.fromkeys(name for name in names if name not in shard.known)


def _object_maps(shard: Shard, rows: Tensor, queries: Tensor, labels: Tensor) -> dict[str, Tensor | None]:
    """The map of every object by every method, all objects of the shard as one batch."""
    inputs = {name: value[rows] for name, value in shard.batch.inputs.items()}
    targeted = TargetedInputs(inputs, lambda part: logit(labels[part], queries[part]))
    maps: dict[str, Any] = {}
    for name in shard.methods:
        parts = None if name in shard.cache.left_out else method_maps(shard, targeted, name)
        if parts is not None:
            maps[name] = parts["image"]
    maps |= image_priors(shard, inputs, maps)
    return {name: one for name, one in maps.items() if name not in shard.known}


def _masks(shard: Shard, row: int, scores: Tensor, otsu: Otsu) -> list[dict[str, Any]]:
    batch, picture = shard.batch, shard.batch.encodings[row].parts.get("image")
    assert picture is not None
    width, height = picture.image.size
    masks = object_masks(scores, batch.image_size, batch.content_size(row), (height, width), otsu=otsu)
    rle = extra("pycocotools.mask")
    encoded = rle.encode(masks.permute(1, 2, 0).to(torch.uint8).cpu().numpy().copy(order="F"))
    return [{"size": list(one["size"]), "counts": one["counts"].decode()} for one in encoded]


def _truth(shard: Shard, row: int) -> dict[str, Any]:
    names = labels_of(shard.loaded_model.model)
    sample = shard.batch.samples[row]
    picture = sample.picture
    assert picture is not None

    def category(thing: Thing) -> int:
        return thing.label if isinstance(thing.label, int) else label_index(thing.label, names, len(names))

    things = [
        {"category": category(thing), "mask": thing.run_lengths, "area": thing.area, "crowd": thing.is_crowd}
        for thing in sample.things
    ]
    return {"width": picture.width, "height": picture.height, "things": things}


def _evaluate(texts: Sequence[str]) -> Any:
    """Match the detections in these texts with their truth, image by image."""
    rle = extra("pycocotools.mask")
    images: list[Any] = []
    annotations: list[Any] = []
    objects: list[DetectedObject] = []
    for number, text in enumerate(texts):
        record = json.loads(text)
        images.append({"id": number, "width": record["width"], "height": record["height"]})
        for thing in record["things"]:
            box = rle.toBbox(thing["mask"]).tolist()
            place = {"id": len(annotations) + 1, "image_id": number, "category_id": thing["category"]}
            about = {"segmentation": thing["mask"], "area": thing["area"], "bbox": box, "iscrowd": int(thing["crowd"])}
            annotations.append(place | about)
        objects += [DetectedObject(number, each["category"], each["score"], each["mask"]) for each in record["found"]]
    categories = [{"id": kind} for kind in sorted({annotation["category_id"] for annotation in annotations})]
    return evaluate_objects({"images": images, "annotations": annotations, "categories": categories}, objects)

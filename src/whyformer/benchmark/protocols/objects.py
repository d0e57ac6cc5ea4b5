"""Weakly supervised segmentation: the maps of what a detector found as masks, scored as by COCO (GA)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whyformer.benchmark.protocols import Figure, Found, checked, protocol
from whyformer.benchmark.questions import as_taken, probabilities, sliced
from whyformer.benchmark.samples import Thing, is_detector
from whyformer.benchmark.shard import Shard
from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.metrics.detection import (
    AREAS,
    Area,
    Matches,
    Otsu,
    average_precision,
    average_recall,
    evaluated,
    joined,
    matches,
    object_masks,
)
from whyformer.metrics.detection import Found as Instance
from whyformer.metrics.priors import PRIORS
from whyformer.models.structure import labels_of
from whyformer.targets.scores import label_index, logit

RESAMPLES = 500  # of every kind at every threshold, in every draw: two thousand would take minutes a method


def _figure(of: Callable[[Sequence[Matches], Any], Any], area: Area) -> Figure:
    def of_texts(*methods: Sequence[str]) -> Callable[..., Any]:
        found = joined([_matched(tuple(texts))[area] for texts in methods])
        return lambda *counts: of(found, np.concatenate(counts, axis=-1))

    return Figure("objects", of_texts=of_texts, resamples=RESAMPLES)


@lru_cache(maxsize=64)
def _matched(texts: tuple[str, ...]) -> dict[Area, list[Matches]]:
    """What all figures are made of: matching takes longest."""
    evaluation = _evaluated(texts)
    return {area: matches(evaluation, area) for area in AREAS}


@protocol(
    "weak_segmentation",
    {
        name if area == "all" else f"{name}_{area}": _figure(of, area)
        for name, of in (("AP", average_precision), ("AR", average_recall))
        for area in AREAS
    },
)
def weak_segmentation(shard: Shard, *, otsu: Otsu = "pixels", sure: float = 0.5) -> Found:
    """Each object that a detector is sure of, its map made a mask by Otsu's threshold, against COCO's truth (GA)."""
    checked(is_detector(shard.loaded_model), shard, "weak_segmentation", "a detector")
    if not isinstance(sure, int | float) or not 0 <= sure < 1:
        raise WhyformerError(f"weak_segmentation: sure={sure!r} is no probability from 0 to below 1.")
    with torch.no_grad():
        parts = shard.pace.parts(
            len(shard), lambda part: shard.loaded_model.model(**as_taken(sliced(shard.inputs, part))).logits
        )
    best, kinds = probabilities(shard.loaded_model, torch.cat(parts)).max(dim=2)
    rows, queries = (best > sure).nonzero(as_tuple=True)  # 0.5 is GA's code; its comment says 0.8
    labels = kinds[rows, queries]
    maps = _object_maps(shard, rows, queries, labels) if len(rows) else _none(shard)
    truth = [_truth(shard, row) for row in range(len(shard))]
    found: Found = {}
    for method, scores in maps.items():
        texts = []
        for row in range(len(shard)):
            here = (rows == row).nonzero()[:, 0]
            masks = [] if scores is None or not len(here) else _masks(shard, row, scores[here], otsu)
            named = zip(labels[here].tolist(), best[rows[here], queries[here]].tolist(), masks, strict=True)
            objects = [{"category": kind, "score": score, "mask": mask} for kind, score, mask in named]
            texts.append(json.dumps(truth[row] | {"found": objects}))
        found[method, "objects"] = texts
    return found


def _none(shard: Shard) -> dict[str, Tensor | None]:
    return dict.fromkeys([*(name for name in shard.methods if name not in shard.left_out), *PRIORS])


def _object_maps(shard: Shard, rows: Tensor, queries: Tensor, labels: Tensor) -> dict[str, Tensor | None]:
    """The map of every object by every method, all objects of the shard as one batch."""
    inputs = {name: value[rows] for name, value in shard.inputs.items()}
    maps: dict[str, Any] = {}
    for name in shard.methods:
        if name not in shard.left_out:
            found = shard.attempted(inputs, lambda part: logit(labels[part], queries[part]), name)
            if found is not None:
                maps[name] = found["image"]
    return maps | shard.priors(inputs, maps)


def _masks(shard: Shard, row: int, scores: Tensor, otsu: Otsu) -> list[dict[str, Any]]:
    picture = shard.encoded[row].picture
    assert picture is not None
    width, height = picture.image.size
    masks = object_masks(scores, shard.size, shard.content(row), (height, width), otsu=otsu)
    rle = extra("pycocotools.mask")
    encoded = rle.encode(masks.permute(1, 2, 0).to(torch.uint8).cpu().numpy().copy(order="F"))
    return [{"size": list(one["size"]), "counts": one["counts"].decode()} for one in encoded]


def _truth(shard: Shard, row: int) -> dict[str, Any]:
    names = labels_of(shard.loaded_model.model)
    picture = shard.samples[row].picture
    assert picture is not None

    def category(thing: Thing) -> int:
        return thing.label if isinstance(thing.label, int) else label_index(thing.label, names, len(names))

    things = [
        {"category": category(thing), "mask": thing.run_lengths, "area": thing.area, "crowd": thing.is_crowd}
        for thing in shard.samples[row].things
    ]
    return {"width": picture.width, "height": picture.height, "things": things}


def _evaluated(texts: Sequence[str]) -> Any:
    """The images of all these texts, each by itself, matched with their truth."""
    rle = extra("pycocotools.mask")
    images: list[Any] = []
    annotations: list[Any] = []
    found: list[Instance] = []
    for number, text in enumerate(texts):
        one = json.loads(text)
        images.append({"id": number, "width": one["width"], "height": one["height"]})
        for thing in one["things"]:
            box = rle.toBbox(thing["mask"]).tolist()
            place = {"id": len(annotations) + 1, "image_id": number, "category_id": thing["category"]}
            about = {"segmentation": thing["mask"], "area": thing["area"], "bbox": box, "iscrowd": int(thing["crowd"])}
            annotations.append(place | about)
        found += [Instance(number, each["category"], each["score"], each["mask"]) for each in one["found"]]
    categories = [{"id": kind} for kind in sorted({annotation["category_id"] for annotation in annotations})]
    return evaluated({"images": images, "annotations": annotations, "categories": categories}, found)

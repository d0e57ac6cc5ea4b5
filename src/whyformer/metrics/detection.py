"""Weakly supervised segmentation: maps of a detector's objects as masks, scored by COCO (GA Table 1)."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch.nn import functional as F

from whyformer.axes import DrawnFigures, ImageCounts, MaskArray, PatchScores, PixelMask
from whyformer.errors import check_choice
from whyformer.extras import extra
from whyformer.metrics.pixel_maps import unit_range, upsampled

IOU_THRESHOLDS = tuple(number / 100 for number in range(20, 100, 5))  # GA's supplement; COCO's start at 0.5
ObjectSize = Literal["all", "medium", "large"]
OBJECT_SIZES = get_args(ObjectSize)
RECALLS = np.linspace(0, 1, 101)  # recall levels of COCO's precision
TINY = np.spacing(1)  # COCO's guard against 0 / 0
DRAWN_AT_ONCE = 2**22  # draws × thresholds × detections
Otsu = Literal["pixels", "patches"]
Size = tuple[int, int]


@dataclass(frozen=True)
class DetectedObject:
    """A detection: its image, label, confidence, and mask (or its run-length encoding)."""

    image: int
    category: int
    score: float
    mask: MaskArray | Mapping[str, Any]


def object_masks(
    scores: PatchScores, padded: Size, content: Size, original: Size, *, otsu: Otsu = "pixels"
) -> PixelMask:
    """Masks of one image's objects: where each map is above its Otsu threshold.

    The maps cover the padded input, whose upper left `content` is the image; `original` is its (height, width). GA's
    code thresholds the patches, and takes every pixel that a chosen patch influences when upsampled ("patches").
    """
    check_choice("otsu", otsu, Otsu)
    if otsu == "pixels":
        masks = above_otsu(upsampled(scores, padded))
    else:
        masks = upsampled(above_otsu(scores).to(scores.dtype), padded) > 0
    inside = masks[:, None, : content[0], : content[1]].float()
    return F.interpolate(inside, original, mode="nearest")[:, 0].bool()


def above_otsu(maps: PatchScores) -> PixelMask:
    """Where each map, quantised to 256 levels, is above its Otsu threshold; nowhere if it is constant."""
    threshold = extra("skimage.filters").threshold_otsu
    shades = (unit_range(maps) * 255).to(torch.uint8)
    masks = [shade > int(threshold(shade.cpu().numpy())) for shade in shades]
    return torch.stack(masks) if masks else shades.bool()


def evaluate_objects(
    truth: Mapping[str, Any], objects: Sequence[DetectedObject], thresholds: Sequence[float] = IOU_THRESHOLDS
) -> Any:
    """Match detections with the ground truth (a COCO instances dictionary); return the COCOeval."""
    coco, coco_eval, rle = (extra(f"pycocotools.{part}") for part in ("coco", "cocoeval", "mask"))
    results = [
        {
            "image_id": one.image,
            "category_id": one.category,
            "score": one.score,
            "segmentation": dict(one.mask)
            if isinstance(one.mask, Mapping)
            else rle.encode(np.asfortranarray(one.mask.astype(np.uint8))),
        }
        for one in objects
    ]
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints on every step
        known = coco.COCO()
        known.dataset = {"info": {}, **truth}
        known.createIndex()
        answers = known.loadRes(results) if results else coco.COCO()
        if not results:
            answers.dataset = {**known.dataset, "annotations": []}
            answers.createIndex()
        evaluation = coco_eval.COCOeval(known, answers, "segm")
        evaluation.params.iouThrs = np.array(thresholds)
        evaluation.evaluate()
    return evaluation


@dataclass(frozen=True, eq=False)
class Matches:
    """Objects of one category: their number per image, and the detections by descending confidence.

    Each detection has its image, its confidence, and whether it is right or wrong at each IoU threshold [threshold,
    detection]. It is neither if it is ignored, as a crowd or of another size.
    """

    objects: Any
    image: Any
    score: Any
    right: Any
    wrong: Any


def matches(evaluation: Any, area: ObjectSize = "all") -> list[Matches]:
    """Matches per category, for objects of a size; `evaluation` comes from `evaluate_objects`."""
    check_choice("area", area, ObjectSize)
    parameters = evaluation.params
    shape = (len(parameters.catIds), len(parameters.areaRng), len(parameters.imgIds))
    by_kind = np.array(evaluation.evalImgs, dtype=object).reshape(shape)[:, parameters.areaRngLbl.index(area)]
    return [_matches(images, len(parameters.iouThrs)) for images in by_kind]


def _matches(images: Any, thresholds: int) -> Matches:
    by_image = {number: one for number, one in enumerate(images) if one is not None}
    objects = np.zeros(len(images))
    objects[list(by_image)] = [np.count_nonzero(np.asarray(one["gtIgnore"]) == 0) for one in by_image.values()]
    score = np.concatenate([np.empty(0), *(one["dtScores"] for one in by_image.values())])
    image = np.repeat(np.array(list(by_image), dtype=int), [len(one["dtScores"]) for one in by_image.values()])
    none = np.empty((thresholds, 0))
    matched, ignored = (
        np.concatenate([none, *(one[key] for one in by_image.values())], axis=1) != 0
        for key in ("dtMatches", "dtIgnore")
    )
    return _surest_first(objects, image, score, matched & ~ignored, ~matched & ~ignored)


def concatenate_matches(evaluations: Sequence[Sequence[Matches]]) -> list[Matches]:
    """Concatenate evaluations of the same categories along images."""
    return [_joined(parts) for parts in zip(*evaluations, strict=True)]


def _joined(parts: Sequence[Matches]) -> Matches:
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0, *(len(part.objects) for part in parts)])
    image = np.concatenate([part.image + start for part, start in zip(parts, before, strict=False)])
    objects, score = (np.concatenate([getattr(part, name) for part in parts]) for name in ("objects", "score"))
    right, wrong = (np.concatenate([getattr(part, name) for part in parts], axis=1) for name in ("right", "wrong"))
    return _surest_first(objects, image, score, right, wrong)


def _surest_first(objects: Any, image: Any, score: Any, right: Any, wrong: Any) -> Matches:
    order = np.argsort(-score, kind="stable")
    return Matches(objects, image[order], score[order], right[:, order], wrong[:, order])


def object_average_precision(by_kind: Sequence[Matches], counts: ImageCounts) -> DrawnFigures:
    """COCO's AP with images weighted by bootstrap counts: precision at 101 recalls, over thresholds and categories."""

    def precision(one: Matches, weights: Any, objects: Any) -> Any:
        hits, misses = (np.cumsum(weights[:, None] * part, axis=-1) for part in (one.right, one.wrong))
        reached = np.searchsorted(RECALLS, hits / objects[:, None], side="right")
        best_from_here = np.maximum.accumulate((hits / (hits + misses + TINY))[..., ::-1], axis=-1)[..., ::-1]
        return (np.diff(reached, axis=-1, prepend=0) * best_from_here).sum(axis=-1) / len(RECALLS)

    return _over_kinds(by_kind, counts, precision)


def average_recall(by_kind: Sequence[Matches], counts: ImageCounts) -> DrawnFigures:
    """COCO's AR with images weighted by bootstrap counts: recall, over thresholds and categories."""
    return _over_kinds(by_kind, counts, lambda one, weights, objects: weights @ one.right.T / objects)


def _over_kinds(
    by_kind: Sequence[Matches], counts: ImageCounts, figure: Callable[[Matches, Any, Any], Any]
) -> DrawnFigures:
    """Mean over thresholds, and over the categories that have objects."""
    weights = counts.reshape(-1, counts.shape[-1])
    total, kinds = np.zeros(len(weights)), np.zeros(len(weights))
    for one in by_kind:
        objects = weights @ one.objects
        there = np.flatnonzero(objects)
        for some in np.array_split(there, ceil(len(there) * one.right.size / DRAWN_AT_ONCE) or 1):
            total[some] += figure(one, weights[some][:, one.image], objects[some, None]).mean(axis=-1)
        kinds += objects > 0
    means: DrawnFigures = np.divide(total, kinds, out=np.full(len(weights), np.nan), where=kinds > 0)
    return means.reshape(counts.shape[:-1])

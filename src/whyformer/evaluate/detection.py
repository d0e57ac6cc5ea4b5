"""Weakly supervised segmentation: the maps of a detector's objects as masks, scored as by COCO (GA Table 1)."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch.nn import functional as F

from whyformer.axes import ImagePlaces, MaskArray, PatchScores, PixelMask
from whyformer.errors import check_choice
from whyformer.evaluate.maps import unit_range, upsampled
from whyformer.extras import extra

IOU_THRESHOLDS = tuple(number / 100 for number in range(20, 100, 5))  # GA's supplement; COCO's own start at 0.5
AREAS = ("all", "medium", "large")
Otsu = Literal["pixels", "patches"]
Size = tuple[int, int]


@dataclass(frozen=True)
class Found:
    """One object that a detector found: in which image, what, how surely, and where (a mask, or its run lengths)."""

    image: int
    category: int
    score: float
    mask: MaskArray | Mapping[str, Any]


def object_masks(
    scores: PatchScores, padded: Size, content: Size, original: Size, *, otsu: Otsu = "pixels"
) -> PixelMask:
    """The masks of one image's objects, each where its map is above Otsu's threshold.

    The maps cover the padded input, whose upper left `content` is the image, `original` its own (height, width). GA's
    code thresholds the patches, and takes every pixel that a chosen patch still reaches when upsampled ("patches").
    """
    check_choice("otsu", otsu, Otsu)
    if otsu == "pixels":
        masks = above_otsu(upsampled(scores, padded))
    else:
        masks = upsampled(above_otsu(scores).to(scores.dtype), padded) > 0
    inside = masks[:, None, : content[0], : content[1]].float()
    return F.interpolate(inside, original, mode="nearest")[:, 0].bool()


def above_otsu(maps: PatchScores) -> PixelMask:
    """Where each map, in 256 shades, is above its own Otsu threshold; nowhere if it is the same everywhere."""
    threshold = extra("skimage.filters").threshold_otsu
    shades = (unit_range(maps) * 255).to(torch.uint8)
    found = [shade > int(threshold(shade.cpu().numpy())) for shade in shades]
    return torch.stack(found) if found else shades.bool()


def evaluated(truth: Mapping[str, Any], found: Sequence[Found], thresholds: Sequence[float] = IOU_THRESHOLDS) -> Any:
    """Every object found matched with those of the truth (a COCO instances dictionary), image by image: a COCOeval."""
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
        for one in found
    ]
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools reports on every step
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


def average_precision_recall(evaluation: Any, images: ImagePlaces | None = None) -> dict[str, float]:
    """AP and AR over the IoU thresholds: of all objects, medium and large ones.

    `images` are places in the sorted list of the truth's images, drawn with replacement: for a bootstrap over images.
    """
    coco_eval = extra("pycocotools.cocoeval")
    count = len(evaluation.params.imgIds)
    drawn = np.arange(count) if images is None else np.asarray(images)
    resampled = coco_eval.COCOeval(iouType="segm")
    resampled.params = evaluation.params.__class__("segm")
    for name in ("iouThrs", "recThrs", "areaRng", "areaRngLbl", "useCats", "catIds"):
        setattr(resampled.params, name, getattr(evaluation.params, name))
    resampled.params.maxDets = evaluation.params.maxDets[-1:]  # the only ones read below
    resampled.params.imgIds = list(range(len(drawn)))
    resampled._paramsEval = resampled.params
    by_image = np.array(evaluation.evalImgs, dtype=object).reshape(-1, count)
    resampled.evalImgs = by_image[:, drawn].ravel().tolist()
    with contextlib.redirect_stdout(io.StringIO()):
        resampled.accumulate()
    found: dict[str, float] = {}
    for name, key in (("AP", "precision"), ("AR", "recall")):
        values = resampled.eval[key]  # …, category, area, most detections per image
        for area in AREAS:
            chosen = values[..., :, resampled.params.areaRngLbl.index(area), -1]
            known = chosen[chosen > -1]  # −1 is no such object in the truth
            found[name if area == "all" else f"{name}_{area}"] = float(known.mean()) if known.size else float("nan")
    return found

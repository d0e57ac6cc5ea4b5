"""Weakly supervised segmentation: Otsu's masks and COCO's figures, against plain loops."""

from __future__ import annotations

import contextlib
import io
import itertools
import json

import numpy as np
import pytest
import torch
from pycocotools import mask as rle
from pycocotools.cocoeval import COCOeval

from whyformer.benchmark.protocols import PROTOCOLS, objects
from whyformer.metrics.detection import (
    IOU_THRESHOLDS,
    OBJECT_SIZES,
    DetectedObject,
    above_otsu,
    average_recall,
    evaluate_objects,
    matches,
    object_average_precision,
    object_masks,
)
from whyformer.metrics.statistics import OfTexts, draws, interval, paired_comparison

SIDE = 180


def average_precision_recall(evaluation):
    """AP and AR of all images, each counted once, by size of the objects."""
    once = np.ones(len(evaluation.params.imgIds))
    return {
        name if area == "all" else f"{name}_{area}": float(figure(matches(evaluation, area), once))
        for name, figure in (("AP", object_average_precision), ("AR", average_recall))
        for area in OBJECT_SIZES
    }


def twin_otsu(shades):
    """The shade whose split parts the pixels into the two most distant classes, by their sizes."""
    best, chosen = -1.0, 0
    for shade in range(255):
        low, high = shades[shades <= shade], shades[shades > shade]
        if len(low) and len(high):
            between = len(low) * len(high) * (low.mean() - high.mean()) ** 2
            if between > best + 1e-6:
                best, chosen = between, shade
    return chosen


def test_a_map_is_split_by_otsu():
    maps = torch.rand(3, 12, 10, generator=torch.Generator().manual_seed(0)) ** 3
    for heat, found in zip(maps, above_otsu(maps), strict=True):
        stretched = (heat - heat.min()) / (heat.max() - heat.min())
        shades = (stretched * 255).to(torch.uint8).numpy().astype(float)
        assert np.array_equal(found.numpy(), shades > twin_otsu(shades))


def test_a_map_that_says_the_same_everywhere_marks_nothing():
    assert not above_otsu(torch.full((2, 4, 4), 0.3)).any()
    assert above_otsu(torch.zeros(0, 4, 4)).shape == (0, 4, 4)


@pytest.mark.parametrize("otsu", ["pixels", "patches"])
def test_masks_leave_the_padding_and_come_back_to_the_original_size(otsu):
    maps = torch.zeros(1, 4, 4)
    maps[0, 1, 1] = maps[0, :, 3] = 1.0  # the last column is padding
    masks = object_masks(maps, (32, 32), (32, 24), (64, 48), otsu=otsu)
    assert masks.shape == (1, 64, 48)
    assert masks[0, 24, 24]
    assert not masks[0, 60, 4]
    # An upsampled patch still reaches the middle of its neighbours.
    assert masks.float().mean() > (0.2 if otsu == "patches" else 0.05)
    wide = object_masks(maps, (32, 32), (32, 24), (64, 48), otsu="patches")
    assert (wide | ~masks).all()


def square(top, left, side):
    mask = np.zeros((SIDE, SIDE), dtype=bool)
    mask[top : top + side, left : left + side] = True
    return mask


def truth_of(masks):
    """COCO's dictionary of masks by image and category."""
    annotations = []
    for number, (image, category, mask) in enumerate(masks, start=1):
        code = rle.encode(np.asfortranarray(mask.astype(np.uint8)))
        annotations.append(
            {
                "id": number,
                "image_id": image,
                "category_id": category,
                "segmentation": code,
                "area": float(mask.sum()),
                "bbox": rle.toBbox(code).tolist(),
                "iscrowd": 0,
            }
        )
    images = [{"id": image, "width": SIDE, "height": SIDE} for image in sorted({image for image, _, _ in masks})]
    return {"images": images, "annotations": annotations, "categories": [{"id": 1}, {"id": 2}]}


def scattered(seed):
    """Objects of two kinds on four images, and what a poor detector finds of them."""
    rng = np.random.default_rng(seed)
    known, found = [], []
    for image in range(1, 5):
        for _ in range(3):
            top, left, side, category = *rng.integers(0, 40, 2), rng.integers(34, 120), int(rng.integers(1, 3))
            known.append((image, category, square(top, left, side)))
            moved = square(top + rng.integers(0, 20), left + rng.integers(0, 20), side)
            found.append(DetectedObject(image, category, float(rng.random()), moved))
        found.append(DetectedObject(image, 1, float(rng.random()), square(*rng.integers(0, 60, 2), 35)))
    return known, found


def twin_average_precision(known, found, category, threshold):
    """Precision interpolated at 101 recalls, objects matched greedily by descending score."""
    wanted = [(image, mask) for image, kind, mask in known if kind == category]
    taken, hits = set(), []
    for one in sorted((one for one in found if one.category == category), key=lambda one: -one.score):
        best, chosen = threshold, None
        for number, (image, mask) in enumerate(wanted):
            overlap = (mask & one.mask).sum() / (mask | one.mask).sum()
            if image == one.image and number not in taken and overlap >= best:
                best, chosen = overlap, number
        taken |= {chosen} - {None}
        hits.append(chosen is not None)
    true = np.cumsum(hits)
    precision, recall = true / np.arange(1, len(hits) + 1), true / len(wanted)
    return np.mean([precision[recall >= point].max(initial=0) for point in np.linspace(0, 1, 101)]), recall[-1]


@pytest.mark.parametrize("seed", [0, 1])
def test_precision_and_recall_are_those_of_a_plain_loop(seed):
    known, found = scattered(seed)
    pairs = [twin_average_precision(known, found, c, t) for c in (1, 2) for t in IOU_THRESHOLDS]
    figures = average_precision_recall(evaluate_objects(truth_of(known), found))
    assert (figures["AP"], figures["AR"]) == pytest.approx(tuple(np.mean(pairs, axis=0)), abs=1e-9)


def test_medium_and_large_figures_are_cocos_own():
    known, found = scattered(2)
    evaluation = evaluate_objects(truth_of(known), found, [0.5, 0.75])
    figures = average_precision_recall(evaluation)
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.accumulate()
    for area, number in (("medium", 2), ("large", 3)):
        precision = evaluation.eval["precision"][:, :, :, number, 2]
        assert figures[f"AP_{area}"] == pytest.approx(precision[precision > -1].mean())


def coco_figures(evaluation, images):
    """COCO's own accumulation over images drawn so, some of them several times."""
    count = len(evaluation.params.imgIds)
    drawn = COCOeval(iouType="segm")
    drawn.params = drawn._paramsEval = evaluation.params.__class__("segm")
    drawn.params.iouThrs, drawn.params.catIds = evaluation.params.iouThrs, evaluation.params.catIds
    drawn.params.imgIds = list(range(len(images)))
    drawn.evalImgs = np.array(evaluation.evalImgs, dtype=object).reshape(-1, count)[:, images].ravel().tolist()
    with contextlib.redirect_stdout(io.StringIO()):
        drawn.accumulate()
    found = {}
    for name, key in (("AP", "precision"), ("AR", "recall")):
        for area, number in (("all", 0), ("medium", 2), ("large", 3)):
            values = drawn.eval[key][..., number, -1]
            known = values[values > -1]
            found[name, area] = known.mean() if known.size else np.nan
    return found


@pytest.mark.parametrize("seed", range(6))
def test_figures_of_images_counted_so_often_are_cocos_of_images_drawn_so_often(seed):
    known, found = scattered(seed)
    evaluation = evaluate_objects(truth_of(known), found)
    draws = np.random.default_rng(seed).integers(0, 4, (20, 4))
    counts = np.array([np.bincount(drawn, minlength=4) for drawn in draws], dtype=np.float64)
    twins = [coco_figures(evaluation, drawn) for drawn in draws]
    for name, figure in (("AP", object_average_precision), ("AR", average_recall)):
        for area in OBJECT_SIZES:
            expected = [twin[name, area] for twin in twins]
            np.testing.assert_allclose(figure(matches(evaluation, area), counts), expected, rtol=1e-12)


def test_images_drawn_twice_count_twice():
    known, found = scattered(3)
    twice = [*known, *((9, kind, mask) for image, kind, mask in known if image == 1)]
    copies = [*found, *(DetectedObject(9, one.category, one.score, one.mask) for one in found if one.image == 1)]
    counted = object_average_precision(matches(evaluate_objects(truth_of(known), found)), np.array([2.0, 1, 1, 1]))
    assert counted == pytest.approx(average_precision_recall(evaluate_objects(truth_of(twice), copies))["AP"])


def test_perfect_masks_score_one_and_none_score_nought():
    known, _ = scattered(4)
    perfect = [DetectedObject(image, kind, 0.9, mask) for image, kind, mask in known]
    assert average_precision_recall(evaluate_objects(truth_of(known), perfect))["AP"] == pytest.approx(1.0)
    assert average_precision_recall(evaluate_objects(truth_of(known), []))["AR"] == 0


def test_nothing_is_printed_and_cocos_own_defaults_stay(capsys):
    known, found = scattered(5)
    average_precision_recall(evaluate_objects(truth_of(known), found))
    assert capsys.readouterr().out == ""
    assert COCOeval(iouType="segm").params.iouThrs[0] == 0.5


def run_lengths(mask):
    code = rle.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": list(code["size"]), "counts": code["counts"].decode()}


def texts_of(known, found):
    """Each image's truth and what was found, as a run keeps them."""
    texts = []
    for image in sorted({image for image, *_ in known}):
        things = [
            {"category": kind, "mask": run_lengths(mask), "area": float(mask.sum()), "crowd": False}
            for where, kind, mask in known
            if where == image
        ]
        seen = [
            {"category": one.category, "score": one.score, "mask": run_lengths(one.mask)}
            for one in found
            if one.image == image
        ]
        texts.append(json.dumps({"width": SIDE, "height": SIDE, "things": things, "found": seen}))
    return np.array(texts, dtype=object)


def plain_average_precision(texts):
    return average_precision_recall(objects._evaluate(texts))["AP"]


@pytest.fixture
def two_detectors():
    known, found = scattered(0)
    poorer = [DetectedObject(one.image, one.category, one.score, np.roll(one.mask, 9, axis=0)) for one in found]
    return texts_of(known, found), texts_of(known, poorer)


def test_the_interval_of_average_precision_is_the_basic_bootstrap_of_images(two_detectors):
    texts, of = two_detectors[0], OfTexts(PROTOCOLS["weak_segmentation"].figures["AP"].of_texts)
    got = interval(texts, of, resamples=40, seed=3)
    drawn = [plain_average_precision(np.repeat(texts, counts.astype(int))) for counts in draws(len(texts), 40, 3)]
    value = plain_average_precision(texts)
    low, high = np.percentile(drawn, [2.5, 97.5])
    expected = (value, 2 * value - high, 2 * value - low)
    assert (got.value, got.low, got.high) == pytest.approx(expected, abs=1e-12)


def test_two_detectors_are_compared_with_their_images_exchanged(two_detectors):
    first, second = two_detectors
    of = OfTexts(PROTOCOLS["weak_segmentation"].figures["AP"].of_texts)
    got = paired_comparison(first, second, of, resamples=40, seed=3)
    value = plain_average_precision(first) - plain_average_precision(second)
    chance = np.array(
        [
            plain_average_precision(np.where(change, first, second))
            - plain_average_precision(np.where(change, second, first))
            for change in itertools.product([True, False], repeat=len(first))
        ]
    )
    p = 2 * min((chance >= value - 1e-12).mean(), (chance <= value + 1e-12).mean())
    assert got.difference.value == pytest.approx(value, abs=1e-12)
    assert got.p == pytest.approx(min(1.0, p))
    assert p < 1

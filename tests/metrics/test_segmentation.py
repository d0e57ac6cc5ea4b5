"""Segmentation: counts and figures against the reference, scikit-learn and loops over pixels; pointing and priors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, jaccard_score
from test_perturbation import EXPECTED, INPUTS

from whyformer.metrics.pixel_maps import unit_range, upsampled
from whyformer.metrics.priors import PRIORS, centre_prior, edge_prior
from whyformer.metrics.sanity import mass_on_object, pointing_game
from whyformer.metrics.segmentation import (
    COUNTS,
    THRESHOLDS,
    f1,
    foreground,
    mean_iou,
    overlap,
    pixel_accuracy,
    pixel_average_precision,
    precisions,
    row_f1,
)

MAPS = upsampled(torch.from_numpy(INPUTS["segmentation/low_res_maps"]), (224, 224))
MASKS = torch.from_numpy(INPUTS["segmentation/masks"]).long()


def random_case(seed=0, with_unknown=True):
    generator = torch.Generator().manual_seed(seed)
    maps = torch.rand(4, 9, 7, generator=generator)
    truth = torch.randint(0, 3 if with_unknown else 2, (4, 9, 7), generator=generator)
    return maps, truth


def test_counts_are_exactly_those_of_the_reference():
    counts = overlap(foreground(MAPS), MASKS)
    for number, row in enumerate(counts.tolist()):
        parts = ("pixel_correct_labelled", "intersection_bg_fg", "union_bg_fg")
        expected = [EXPECTED[f"segmentation/{number}/{part}"] for part in parts]
        assert row == np.concatenate(expected).tolist()
    assert pixel_accuracy(counts.numpy()) == pytest.approx(
        float(EXPECTED["segmentation/total/pixel_accuracy"]), abs=1e-12
    )
    assert mean_iou(counts.numpy()) == pytest.approx(float(EXPECTED["segmentation/total/mIoU"]), abs=1e-12)


def test_figures_of_no_pixel_are_no_number():
    nothing = overlap(torch.ones(1, 2, 2, dtype=torch.bool), torch.full((1, 2, 2), 2)).numpy()
    assert np.isnan(pixel_accuracy(nothing))
    assert np.isnan(mean_iou(nothing))
    only_background = overlap(torch.zeros(1, 2, 2, dtype=torch.bool), torch.zeros(1, 2, 2)).numpy()
    assert (pixel_accuracy(only_background), mean_iou(only_background)) == (1.0, 1.0)
    both = np.stack([nothing[0], only_background[0]]).astype(float)
    assert np.isnan(pixel_accuracy.of(both)).tolist() == np.isnan(mean_iou.of(both)).tolist() == [True, False]


def test_precision_and_f1_are_those_of_the_reference():
    found = pixel_average_precision(MAPS, MASKS)
    for number in range(3):
        expected = EXPECTED[f"segmentation/{number}/average_precision"].item()
        assert found[number].item() == pytest.approx(expected, abs=1e-6)
        rows = EXPECTED[f"segmentation/{number}/f1_per_pixel_row"]
        assert np.abs(row_f1(MAPS, MASKS)[number].numpy() - rows).max() < 1e-12
    assert found.mean().item() == pytest.approx(float(EXPECTED["segmentation/total/mAP"]), abs=1e-6)
    mean = f1(MAPS, MASKS, "rows").mean().item()
    assert mean == pytest.approx(float(EXPECTED["segmentation/total/mF1_over_pixel_rows"]), abs=1e-12)
    per_image = EXPECTED["segmentation/total/f1_per_image"]
    assert f1(MAPS, MASKS, "image").numpy() == pytest.approx(per_image, abs=1e-12)


def test_counts_are_those_of_a_loop_over_the_known_pixels():
    maps, truth = random_case()
    for heat, marks, row in zip(maps, truth, overlap(foreground(maps), truth).tolist(), strict=True):
        expected = dict.fromkeys(COUNTS, 0)
        for value, mark in zip(heat.flatten().tolist(), marks.flatten().tolist(), strict=True):
            if mark == 2:
                continue
            said = int(value > heat.mean())
            expected["labelled"] += 1
            expected["correct"] += said == mark
            for side, name in enumerate(("background", "object")):
                expected[f"{name}_intersection"] += said == mark == side
                expected[f"{name}_union"] += side in (said, mark)
        assert row == list(expected.values())


def test_intersection_over_union_is_scikit_learns_over_the_whole_set():
    maps, truth = random_case(with_unknown=False)
    found = foreground(maps)
    expected = jaccard_score(truth.flatten(), found.flatten().long(), average="macro")
    assert mean_iou(overlap(found, truth).numpy()) == pytest.approx(expected)


@pytest.mark.parametrize("averaged", ["image", "thresholds"])
def test_f1_and_precision_are_scikit_learns_on_the_known_pixels(averaged):
    maps, truth = random_case(1)
    scores, precision = f1(maps, truth, averaged), pixel_average_precision(maps, truth)
    for number, (heat, marks) in enumerate(zip(unit_range(maps), truth, strict=True)):
        known = marks != 2
        at = [number / THRESHOLDS for number in range(THRESHOLDS)] if averaged == "thresholds" else [heat.mean().item()]
        each = [f1_score(marks[known], heat[known] > point, zero_division=0) for point in at]
        assert scores[number].item() == pytest.approx(np.mean(each), abs=1e-6)
        both = [torch.cat([1 - part[known], part[known]]) for part in (marks, heat)]
        assert precision[number].item() == pytest.approx(average_precision_score(*both), abs=1e-6)


def test_unknown_pixels_change_nothing():
    maps, truth = random_case(2)
    other = maps.clone()
    other[truth == 2] = maps.flatten(1).mean(dim=1).repeat_interleave((truth == 2).sum(dim=(1, 2)))
    found = foreground(maps)
    flipped = found ^ (truth == 2)
    assert torch.equal(overlap(found, truth), overlap(flipped, truth))
    assert torch.isfinite(pixel_average_precision(other, truth)).all()


def test_a_map_that_says_the_same_everywhere_finds_nothing():
    maps, truth = torch.full((1, 4, 4), 3.0), torch.ones(1, 4, 4).long()
    assert not foreground(maps).any()
    assert not unit_range(maps).any()
    for averaged in ("thresholds", "image", "rows"):
        assert f1(maps, truth, averaged).item() == 0


def test_pointing_at_the_object_counts_and_unknown_pixels_are_not_pointed_at():
    truth = torch.tensor([[[1, 0], [2, 0]]])
    assert pointing_game(torch.tensor([[[3.0, 1], [2, 0]]]), truth).item() == 1
    assert pointing_game(torch.tensor([[[1.0, 3], [2, 0]]]), truth).item() == 0
    assert pointing_game(torch.tensor([[[2.0, 1], [3, 0]]]), truth).item() == 1
    assert pointing_game(torch.zeros(1, 2, 2), truth).item() == pytest.approx(1 / 3)


def test_the_mass_on_the_object_is_of_positive_scores_and_unknown_pixels_count_nothing():
    truth = torch.tensor([[[1, 0], [2, 0]]])
    assert mass_on_object(torch.tensor([[[3.0, 1], [5, -4]]]), truth).item() == pytest.approx(3 / 4)
    assert mass_on_object(torch.tensor([[[-3.0, 1], [5, 0]]]), truth).item() == 0
    assert mass_on_object(torch.tensor([[[-3.0, -1], [5, 0]]]), truth).item() == pytest.approx(1 / 3)  # as if uniform
    assert mass_on_object(torch.ones(1, 2, 2), truth).item() == pytest.approx(1 / 3)


def test_the_centre_prior_is_highest_in_the_middle_and_alike_on_all_sides():
    blob = centre_prior(torch.zeros(2, 3, 8, 8), 5, 7)
    assert blob.shape == (2, 5, 7)
    assert blob[0].argmax() == 2 * 7 + 3
    for turned in (blob.flip(1), blob.flip(2)):
        torch.testing.assert_close(blob, turned)


def test_the_edge_prior_sees_edges_and_nothing_else():
    pixels = torch.zeros(1, 3, 16, 16)
    pixels[..., 8:] = 1
    found = edge_prior(pixels, 4, 4)
    assert found[0].sum(dim=0).argsort(descending=True)[:2].sort().values.tolist() == [1, 2]
    assert not found[0, :, [0, 3]].any()
    assert edge_prior(torch.full((1, 3, 16, 16), 0.7), 4, 4).max() < 1e-6
    assert set(PRIORS) == {"centre_prior", "edge_prior"}


@pytest.mark.parametrize("levels", [3, 1000])
def test_precisions_of_many_examples_are_those_of_each(levels):
    rng = np.random.default_rng(levels)
    scores = torch.from_numpy(rng.integers(0, levels, (5, 60)) / levels - 0.3)
    truth = torch.from_numpy(rng.integers(0, 3, (5, 60)))
    for row, marks, found in zip(scores, truth, precisions(scores, truth).tolist(), strict=True):
        known = marks != 2
        assert found == pytest.approx(average_precision_score(marks[known], row[known]), abs=1e-12)
    assert precisions(torch.rand(1, 4), torch.zeros(1, 4).long()).item() == 0


def test_f1_over_thresholds_is_the_mean_of_those_at_each():
    maps, truth = random_case()
    stretched = unit_range(maps)
    known = truth != 2
    for number in range(len(maps)):
        marks = truth[number][known[number]].numpy()
        each = [
            f1_score(marks, (stretched[number][known[number]] > point / 100).numpy(), zero_division=0)
            for point in range(100)
        ]
        assert f1(maps, truth)[number].item() == pytest.approx(np.mean(each), abs=1e-12)

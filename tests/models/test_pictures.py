"""Which patches a decoder's placeholder tokens stand for: as the models themselves have it, by their gradients."""

from __future__ import annotations

import pytest
import torch

from dependences import FEATURE_BLOCKS, dependences
from tiny_vlms import GRIDS, IMAGE_TOKEN, TINY_VLMS
from whyformer.models.pictures import (
    SeenPicture,
    packed_pictures,
    pooled_pictures,
    shuffled_pictures,
    tiled_pictures,
    whole_pictures,
)

KINDS = {
    "LLaVA": whole_pictures,
    "PaliGemma": whole_pictures,
    "Gemma 3": pooled_pictures,
    "InternVL": shuffled_pictures,
    "Idefics 3": shuffled_pictures,
    "SmolVLM": shuffled_pictures,
    "Qwen2-VL": packed_pictures,
    "Qwen2.5-VL": packed_pictures,
    "Qwen3-VL": packed_pictures,
    "LLaVA-NeXT": tiled_pictures,
    "LLaVA-OneVision": tiled_pictures,
}


def expected(pictures: list[SeenPicture]) -> list[set[int]]:
    features, start = [], 0
    for one in pictures:
        runs = torch.empty_like(one.order)
        runs[one.order] = torch.arange(len(one.order))  # where in the tower's run a position is
        for sources, weights in zip(one.sources, one.weights, strict=True):
            features.append({start + int(runs[s]) for s, w in zip(sources, weights, strict=True) if w > 0})
        start += len(one.order)
    return features


@pytest.mark.parametrize("name", KINDS)
def test_a_feature_is_made_of_the_patches_it_depends_on(name):
    vlm = TINY_VLMS[name]
    model, inputs = vlm.build(), vlm.inputs((1, 2), (4, 3))
    pictures = KINDS[name](model.config, inputs, 1 if name in ("LLaVA", "InternVL", "LLaVA-NeXT") else 0)
    assert expected(pictures) == dependences(model, inputs, FEATURE_BLOCKS[name])


def test_interpolated_features_are_made_of_the_patches_around_them():
    vlm = TINY_VLMS["LLaVA-OneVision"]
    model, inputs = vlm.build(), vlm.inputs((0, 1), (1, 3))
    model.config.vision_aspect_ratio = "anyres_max_1"
    inputs["image_sizes"] = torch.tensor([(60, 62)])
    inputs["pixel_values"] = torch.randn(1, 5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    (one,) = tiled_pictures(model.config, inputs, 0)
    count = len(one.sources)
    assert one.grids[1].rows * one.grids[1].stride == count - 16 < 8 * 9
    inputs["input_ids"] = torch.tensor([[1, *[IMAGE_TOKEN] * count, 9]])
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    assert expected([one]) == dependences(model, inputs, "vision_tower.encoder.layers.2")
    is_picture = one.weights.sum(dim=1) > 0
    torch.testing.assert_close(
        one.weights[is_picture].sum(dim=1), torch.ones(int(is_picture.sum()), dtype=torch.float64)
    )


def test_the_patches_of_a_view_lie_row_by_row_whatever_order_the_tower_runs_them_in():
    vlm = TINY_VLMS["Qwen2.5-VL"]
    pictures = packed_pictures(vlm.build().config, vlm.inputs((1, 1), (2, 2)), 0)
    for one, (rows, columns) in zip(pictures, GRIDS, strict=False):
        (view,) = one.views
        assert (view.rows, view.columns) == (rows, columns)
        assert view.positions.tolist() == list(range(rows * columns))
        first_block = [row * columns + column for row in range(2) for column in range(2)]
        assert one.order[:4].tolist() == first_block
        assert one.sources[0].tolist() == first_block


def test_tiles_cover_more_than_a_picture_that_was_padded():
    vlm = TINY_VLMS["LLaVA-NeXT"]
    wide, tall = tiled_pictures(vlm.build().config, vlm.inputs(), 1)
    whole, fine = wide.views
    assert (whole.rows, whole.columns, whole.box) == (4, 4, (0.0, 0.0, 1.0, 1.0))
    assert (fine.rows, fine.columns) == (4, 8)
    left, top, right, bottom = fine.box
    assert (left, right) == (0.0, 1.0)
    assert top < 0 < 1 < bottom
    assert (tall.views[1].rows, tall.views[1].columns) == (8, 4)

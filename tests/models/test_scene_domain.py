"""A model of drawn scenes warns of a photograph, and not of a scene."""

from __future__ import annotations

import pytest
from PIL import Image

import whyformer
from whyformer.models.scene_domain import LEAST_GROUND, TRAINED_ON_SCENES, ground_share
from whyformer.models.zoo import ZOO
from whyformer.scenes import example

HINT = "was trained on drawn scenes only, and this picture does not look like one"


@pytest.mark.parametrize("enlarged", [1, 4])
def test_scenes_are_mostly_ground_and_a_photograph_is_not(enlarged):
    scenes = [example(number).image for number in range(20)]
    scenes = [one.resize((64 * enlarged, 64 * enlarged), Image.Resampling.BILINEAR) for one in scenes]
    assert min(map(ground_share, scenes)) > LEAST_GROUND
    assert ground_share(Image.open(ZOO / "cat.jpg")) < LEAST_GROUND


def test_a_photograph_of_mini_detr_has_a_hint_and_a_scene_has_none():
    hints = [
        any(HINT in note for note in whyformer.explain(picture, "mini-detr", method="rollout").notes)
        for picture in (ZOO / "cat.jpg", example(0).image)
    ]
    assert hints == [True, False]
    assert "mini-vit" not in TRAINED_ON_SCENES

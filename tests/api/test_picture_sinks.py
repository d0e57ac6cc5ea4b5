"""Picture sinks: a planted one is found, told and left out; ordinary patches are not taken for one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import whyformer
from whyformer import WhyformerError
from whyformer.backward.blocks import find_blocks
from whyformer.models.loading import load

PLANTED = 37  # a patch, row by row


@pytest.fixture
def with_register():
    """mini-vit-mae, one of whose patches has states four times as long from the fourth block on."""
    loaded_model = load("mini-vit-mae")
    block = find_blocks(loaded_model.model)[3]

    def plant(module, args, output):
        state = (output if isinstance(output, torch.Tensor) else output[0]).clone()
        state[:, 1 + PLANTED] *= 4
        return state if isinstance(output, torch.Tensor) else (state, *output[1:])

    handle = block.register_forward_hook(plant)
    yield loaded_model
    handle.remove()


@pytest.fixture(scope="module")
def photo():
    from whyformer.models.zoo import ZOO

    return ZOO / "cat.jpg"


def test_a_planted_register_is_found_and_can_be_left_out(with_register, photo):
    explanation = whyformer.explain(photo, with_register, method="rollout")
    sinks = whyformer.picture_sinks(explanation)
    assert sinks.registers == (PLANTED,)
    scores = explanation.parts["image"].scores
    assert sinks.register_share == pytest.approx(abs(scores[PLANTED]) / np.abs(scores).sum(), rel=1e-6)
    left = sinks.left_out()
    expected = scores.copy()
    expected[PLANTED] = 0
    np.testing.assert_array_equal(left.parts["image"].scores, expected)
    assert left.notes[-1].startswith("Left out as sinks: 1 patch")
    assert explanation.parts["image"].scores[PLANTED] == scores[PLANTED]


def test_ordinary_patches_are_no_sinks(photo):
    sinks = whyformer.picture_sinks(whyformer.explain(photo, "mini-vit-mae", method="rollout"))
    assert (sinks.registers, sinks.register_share) == ((), 0.0)
    assert sinks.corners == (0, 15, 240, 255)
    assert sinks.area == pytest.approx(4 / 256)
    scores = np.abs(sinks.explanation.parts["image"].scores)
    assert sinks.corner_share == pytest.approx(scores[list(sinks.corners)].sum() / scores.sum(), rel=1e-6)
    assert not sinks.left_out(corners=True).parts["image"].scores[list(sinks.corners)].any()


def test_what_has_no_patches_is_refused(tmp_path, photo):
    with pytest.raises(WhyformerError, match="this explanation has no picture"):
        whyformer.picture_sinks(whyformer.explain("A wonderful film.", "mini-bert", method="rollout"))
    explanation = whyformer.explain(photo, "mini-vit-mae", method="rollout")
    explanation.save(tmp_path / "cat.json")
    with pytest.raises(WhyformerError, match="explain again"):
        whyformer.picture_sinks(whyformer.Explanation.load(tmp_path / "cat.json"))

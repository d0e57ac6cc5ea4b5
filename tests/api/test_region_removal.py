"""Responses about a picture, explained by removing regions of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import whyformer
from whyformer import WhyformerError, explain_response
from whyformer.scenes import example

SCENE = example(3)
HALVES = [(0, 0, 32, 64), (32, 0, 64, 64)]
ASKED = (SCENE.image, SCENE.question)


@pytest.fixture(scope="module")
def vlm():
    return whyformer.load("mini-vlm", device="cpu")


def test_a_box_scores_what_the_response_loses_without_it(vlm):
    found = explain_response(ASKED, SCENE.reply, vlm, "occlusion", regions=HALVES, units="response")
    prompt, reply = ([token.id for token in tokens] for tokens in (found.prompt.tokens, found.tokens))
    pixels = vlm.image_processor(images=SCENE.image, return_tensors="pt")["pixel_values"]
    ids = torch.tensor([prompt + reply])

    def log_probability(seen):
        with torch.no_grad():
            chances = vlm.model(input_ids=ids, pixel_values=seen).logits[0].log_softmax(dim=-1)
        return sum(float(chances[len(prompt) + n - 1, token]) for n, token in enumerate(reply))

    part = found.parts["image"].part(0)
    scores = part.scores.reshape(part.layout.rows, part.layout.columns)
    middle = part.layout.columns // 2
    for half, columns in enumerate((slice(0, middle), slice(middle, None))):
        without = pixels.clone()
        side = pixels.shape[-1] // 2
        without[..., half * side : (half + 1) * side] = 0
        expected = log_probability(pixels) - log_probability(without)
        np.testing.assert_allclose(scores[:, columns], expected, rtol=1e-3, atol=1e-4)
    assert found.options["regions"] == [list(map(float, box)) for box in HALVES]
    assert found.to_dict()["options"]["units"] == "token"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"method": "leave_one_out"}, "leave_one_out removes sources of a text, and this prompt has a picture"),
        ({"method": "rollout", "regions": "patch"}, "regions='patch' has no effect here"),
        ({"method": "occlusion", "regions": "circle"}, "regions='circle': 'patch', 'superpixel', or boxes"),
        ({"method": "occlusion", "regions": []}, "give at least one box"),
        ({"method": "occlusion", "regions": [(5, 0, 5, 9)]}, "is not a box"),
        ({"method": "occlusion", "regions": [(90, 90, 99, 99)]}, "covers no pixel that the model reads"),
    ],
)
def test_regions_that_cannot_be_removed_are_refused_in_one_line(vlm, settings, reason):
    with pytest.raises(WhyformerError, match=reason) as error:
        explain_response(ASKED, SCENE.reply, vlm, **settings)
    assert "\n" not in str(error.value)

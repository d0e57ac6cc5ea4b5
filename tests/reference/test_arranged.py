"""Tokens that are joined, moved or fewer from stage to stage, against rollout carried by hand."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from tiny_arranged import eomt, levit, mobilevit, timesformer
from tiny_models import noise
from whyformer import Pixel, UnsupportedModel, attribute
from whyformer.tracing.build import trace


@cache
def model_of(make) -> nn.Module:
    return make().double().requires_grad_(False)


def maps_and_start(model: nn.Module, inputs: dict[str, Tensor], target) -> tuple[list[Tensor], Tensor]:
    asked = trace(model, inputs, target)
    return [record.map.mean(dim=1) for record in asked.records], asked.readout.weights[0]


def expect(model: nn.Module, inputs: dict[str, Tensor], target, row: Tensor) -> None:
    """Rollout gives this row; what is read itself, carried down without any attention, is taken off before."""
    scores = attribute(model, inputs, target, "rollout")
    assert list(scores) == ["image"]
    torch.testing.assert_close(scores["image"][0], row, rtol=1e-9, atol=1e-12)


def test_tokens_that_only_read_the_stage_before_keep_nothing_of_their_own():
    model, inputs = model_of(levit), {"pixel_values": noise(1, 3, 64, 64).double()}
    maps, row = maps_and_start(model, inputs, 1)
    assert [tuple(one.shape[1:]) for one in maps] == [(16, 16), (16, 16), (4, 16), (4, 4), (1, 4), (1, 1)]
    for (mean,) in reversed(maps):
        is_square = mean.shape[0] == mean.shape[1]
        row = row @ mean + row if is_square else row @ mean
    expect(model, inputs, 1, row)


def test_tokens_at_one_place_of_their_squares_read_each_other():
    model, inputs = model_of(mobilevit), {"pixel_values": noise(1, 3, 64, 64).double()}
    maps, start = maps_and_start(model, inputs, 1)
    row = start
    sides = [8, 8, 4, 4, 4, 4, 2, 2, 2]
    assert [one.shape[1] for one in maps] == [(side // 2) ** 2 for side in sides]
    for number in reversed(range(len(maps))):
        side = sides[number]
        if number + 1 < len(maps) and sides[number + 1] < side:
            row = by_convolution(row, side)
        added = torch.zeros(side, side, dtype=torch.float64)
        for down, across in ((0, 0), (0, 1), (1, 0), (1, 1)):
            own = row.view(side, side)[down::2, across::2].flatten()
            added[down::2, across::2] = (own @ maps[number][down * 2 + across]).view(side // 2, side // 2)
        row = row + added.flatten()
    expect(model, inputs, 1, row - by_convolution(by_convolution(start, 4), 8))


def by_convolution(row: Tensor, side: int) -> Tensor:
    """Scores of tokens that a convolution of 3 by 3 makes at every other place, shared out among what it reads."""
    shares = torch.zeros(side, side, dtype=torch.float64)
    for place, score in enumerate(row):
        y, x = place // (side // 2) * 2, place % (side // 2) * 2
        square = (slice(max(0, y - 1), y + 2), slice(max(0, x - 1), x + 2))
        shares[square] += score / shares[square].numel()
    return shares.flatten()


def test_patches_read_their_own_place_in_time_and_then_their_frame():
    model, inputs = model_of(timesformer), {"pixel_values": noise(1, 4, 3, 32, 32).double()}
    maps, start = maps_and_start(model, inputs, 1)
    frames = start.view(4, 17)  # the copies of the class token, of which the answer is read in the mean
    assert frames[:, 0].tolist() == [0.25] * 4
    for number in reversed(range(0, len(maps), 2)):
        in_time, in_space = maps[number : number + 2]
        after = torch.stack([own + own @ in_space[time] for time, own in enumerate(frames)])
        first, patches = after[:, 0].sum(), after[:, 1:].T
        patches = torch.stack([own + own @ in_time[patch] for patch, own in enumerate(patches)])
        frames = torch.cat([(first / 4).expand(4, 1), patches.T], dim=1)
    expect(model, inputs, 1, torch.cat([first[None] - 1, patches.flatten()]))


def test_the_pixels_of_a_video_have_a_score_each_in_every_frame():
    model, pixels = model_of(timesformer), noise(1, 4, 3, 32, 32).double().requires_grad_()
    (gradient,) = torch.autograd.grad(model(pixel_values=pixels).logits[0, 1], pixels)
    expected = (gradient * pixels).sum(dim=2).flatten(1).detach()
    scores = attribute(model, {"pixel_values": pixels.detach()}, 1, "input_x_gradient")
    torch.testing.assert_close(scores["pixels"], expected)


def test_frames_that_are_looked_at_one_by_one_are_refused():
    model = timesformer()
    model.config.attention_type = "space_only"
    with pytest.raises(UnsupportedModel, match=r"processes each frame separately \(attention_type='space_only'\)"):
        attribute(model, {"pixel_values": noise(1, 4, 3, 32, 32)}, 1, "rollout")


def test_queries_that_join_the_patches_late_are_made_of_none_of_them():
    model, inputs = model_of(eomt), {"pixel_values": noise(1, 3, 32, 32).double()}
    maps, start = maps_and_start(model, inputs, Pixel(0.4, 0.4))
    assert [one.shape[1] for one in maps] == [21, 26, 26]
    row = start
    for (mean,) in (maps[2], maps[1]):
        row = row + row @ mean
    row = row[5:]
    expect(model, inputs, Pixel(0.4, 0.4), row + row @ maps[0][0] - start[5:])

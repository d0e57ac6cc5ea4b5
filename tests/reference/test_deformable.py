"""Deformable attention against the dense map of its points, built by hand."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor, nn

from tiny_detectors import d_fine, rt_detr
from tiny_models import STREAM_FAMILIES, noise
from whyformer import UnsupportedModel, attribute, doctor, explain, explain_batch
from whyformer.axes import Inputs
from whyformer.tracing.build import trace

MAKERS = {"rt": rt_detr, "rt 2": lambda: rt_detr("RTDetrV2"), "d-fine": d_fine}


@cache
def case(name: str) -> tuple[nn.Module, Inputs]:
    make = STREAM_FAMILIES["deformable detr"][0] if name == "deformable" else MAKERS[name]
    return make().double().requires_grad_(False), {"pixel_values": noise(1, 3, 64, 96).double()}


def samples_of(model: nn.Module, inputs: Inputs) -> list[tuple]:
    """What every deformable attention is called with, and what it gives."""
    calls: list[tuple] = []
    modules = [module for module in model.modules() if type(module).__name__ == "MultiScaleDeformableAttention"]
    hooks = [module.register_forward_hook(lambda _, args, output: calls.append((args, output))) for module in modules]
    with torch.no_grad():
        model(**inputs)
    for hook in hooks:
        hook.remove()
    return calls


def dense(locations: Tensor, weights: Tensor, sizes: list[tuple[int, int]]) -> Tensor:
    """The map of one picture, [head, query, token], point by point."""
    queries, heads, levels, points = weights.shape
    starts = [sum(height * width for height, width in sizes[:level]) for level in range(levels)]
    matrix = torch.zeros(heads, queries, sum(height * width for height, width in sizes), dtype=torch.float64)
    for query in range(queries):
        for head in range(heads):
            for level, (height, width) in enumerate(sizes):
                for point in range(points):
                    x, y = (locations[query, head, level, point] * torch.tensor([width, height]) - 0.5).tolist()
                    for row in (math.floor(y), math.floor(y) + 1):
                        for column in (math.floor(x), math.floor(x) + 1):
                            if 0 <= row < height and 0 <= column < width:
                                share = (1 - abs(y - row)) * (1 - abs(x - column))
                                token = starts[level] + row * width + column
                                matrix[head, query, token] += share * weights[query, head, level, point]
    return matrix


@pytest.mark.parametrize("name", ["deformable", "rt"])
def test_the_map_of_points_is_weight_times_bilinear_weight(name):
    model, inputs = case(name)
    records = [record for record in trace(model, inputs, 1).records if record.key_stream == "image"]
    calls = samples_of(model, inputs)
    assert len(records) == len(calls)
    for record, ((value, _, sizes, _, locations, weights, _), output) in zip(records, calls, strict=True):
        expected = dense(locations[0], weights[0], [tuple(map(int, size)) for size in sizes])
        torch.testing.assert_close(record.map[0], expected, rtol=1e-9, atol=1e-12)
        mixed = torch.einsum("hqk,khd->qhd", expected, value[0]).flatten(1)
        torch.testing.assert_close(mixed, output[0], rtol=1e-9, atol=1e-12)
        some = torch.tensor([[1, 3]])
        torch.testing.assert_close(record.pick(some).map, record.map[:, :, [1, 3]])
        torch.testing.assert_close(record.pick(some).gradient, record.gradient[:, :, [1, 3]])


@pytest.mark.parametrize("name", ["rt 2", "d-fine"])
def test_points_of_feature_maps_side_by_side_make_the_map_that_mixes_the_values(name, monkeypatch):
    model, inputs = case(name)
    module, calls = sys.modules[type(model).__module__], []
    original = module.multi_scale_deformable_attention_v2

    def spy(value, *args, **kwargs):
        calls.append((value, original(value, *args, **kwargs)))
        return calls[-1][1]

    monkeypatch.setattr(module, "multi_scale_deformable_attention_v2", spy)
    with torch.no_grad():
        model(**inputs)
    records = [record for record in trace(model, inputs, 1).records if record.key_stream == "image"]
    assert len(records) == 2
    for record, (value, output) in zip(records, calls, strict=False):
        assert value.shape[1] == record.map.shape[-1] == 126
        mixed = torch.einsum("bhqk,bkhd->bqhd", record.map, value).flatten(2)
        torch.testing.assert_close(mixed, output, rtol=1e-9, atol=1e-12)


def test_the_gradient_of_the_map_is_that_of_the_weights_of_its_points():
    """Σ_j ∂s/∂A_j · bilinear_j is the gradient of a point's weight; A ⊙ ∇A adds up to weight times gradient."""
    model, inputs = case("deformable")
    record = [record for record in trace(model, inputs, 1).records if record.key_stream == "image"][-1]
    taken: list[Tensor] = []
    module = model.model.decoder.layers[-1].encoder_attn.attn

    def leaf(_, args):
        taken.append(args[5].detach().requires_grad_())
        return (*args[:5], taken[0], *args[6:])

    hook = module.register_forward_pre_hook(leaf)
    try:
        logits = model(**inputs).logits
    finally:
        hook.remove()
    query = int(logits[0, :, 1].argmax())
    (gradient,) = torch.autograd.grad(logits[0, query, 1], taken[0])
    expected = (gradient * taken[0]).sum(dim=(3, 4))[0].T
    torch.testing.assert_close((record.map * record.gradient).sum(dim=-1)[0], expected.detach(), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", ["deformable", *MAKERS])
def test_rollout_goes_through_the_points(name):
    model, inputs = case(name)
    asked = trace(model, inputs, 1)
    tokens = {"queries": 5, "image": asked.masks["image"].shape[1]}
    row = torch.cat([asked.readout.weights, torch.zeros(1, tokens["image"], dtype=torch.float64)], dim=1)[:, None]
    start, whole = row, 5 + tokens["image"]
    for step in reversed(asked.steps):
        matrix = torch.eye(whole, dtype=torch.float64)[None].clone()
        for record in step:
            rows, columns = (
                slice(0, 5) if s == "queries" else slice(5, whole) for s in (record.query_stream, record.key_stream)
            )
            matrix[:, rows, columns] += record.map.mean(dim=1)
        row = row @ matrix
    scores = attribute(model, inputs, 1, "rollout")
    both = torch.cat([scores["queries"], scores["image"]], dim=1)
    torch.testing.assert_close(both, (row - start)[:, 0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["partial_lrp", "transformer_attribution"])
def test_points_have_no_map_that_relevance_passes(method):
    model, inputs = case("deformable")
    with pytest.raises(UnsupportedModel, match=r"at a few points.*use generic_attention, or lrp for the pixels"):
        attribute(model, inputs, 1, method)


def on_the_finest(scores: Tensor, sizes: list[tuple[int, int]]) -> Tensor:
    """Scores of all levels on the cells of the finest, cell by cell: the part of each token's box that lies in it."""
    rows, columns = sizes[0]
    total = torch.zeros(rows, columns, dtype=torch.float64)
    for row, column in product(range(rows), range(columns)):
        first = 0
        for height, width in sizes:
            for y, x in product(range(height), range(width)):
                down = min((row + 1) / rows, (y + 1) / height) - max(row / rows, y / height)
                across = min((column + 1) / columns, (x + 1) / width) - max(column / columns, x / width)
                share = max(down, 0.0) * max(across, 0.0) * height * width
                total[row, column] += share * scores[first + y * width + x]
            first += height * width
    return total


@pytest.mark.parametrize("name", ["deformable", *MAKERS])
@pytest.mark.parametrize("method", ["rollout", "generic_attention"])
def test_levels_are_drawn_on_one_grid_over_the_picture(name, method):
    model, _ = case(name)
    # Of 40 by 72 pixels the coarsest level has cells that the finest does not divide.
    size, pixels = ((64, 96), (40, 72))[name == "deformable"], 8
    processor = transformers.DeformableDetrImageProcessorPil(size=dict(zip(("height", "width"), size, strict=True)))
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (120, 200, 3), dtype=np.uint8))
    explanation = explain(picture, model, 1, method, processor=processor)
    inputs = {"pixel_values": processor(images=[picture], return_tensors="pt")["pixel_values"].double()}
    sizes = [(-(-size[0] // step), -(-size[1] // step)) for step in (pixels, pixels * 2, pixels * 4)]
    raw = attribute(model, inputs, 1, method)["image"][0]
    expected, layout = on_the_finest(raw, sizes), explanation.parts["image"].layout
    assert (layout.rows, layout.columns) == sizes[0]
    assert layout.box == (0, 0, 200, 120)
    assert explanation.scores.reshape(sizes[0]) == pytest.approx(expected.numpy(), rel=1e-5, abs=1e-9)
    assert float(explanation.scores.sum()) == pytest.approx(float(raw.sum()), rel=1e-5)


def test_two_pictures_of_several_levels_are_drawn_like_each_alone():
    model, _ = case("deformable")
    processor = transformers.DeformableDetrImageProcessorPil(size={"height": 64, "width": 64})
    pixels = np.random.default_rng(0).integers(0, 256, (2, 50, 80, 3), dtype=np.uint8)
    pictures = [Image.fromarray(one) for one in pixels]
    together = explain_batch(pictures, model, 1, "generic_attention", processor=processor, batch_size=2)
    for picture, one in zip(pictures, together, strict=True):
        alone = explain(picture, model, 1, "generic_attention", processor=processor)
        assert one.scores == pytest.approx(alone.scores, rel=1e-5, abs=1e-9)
        layouts = [explanation.parts["image"].layout for explanation in (one, alone)]
        assert layouts[0].outline == pytest.approx(layouts[1].outline)  # the box that was found, by two passes
        assert replace(layouts[0], outline=None) == replace(layouts[1], outline=None)


def test_the_doctor_names_the_finest_of_several_levels():
    model, _ = case("deformable")
    processor = transformers.DeformableDetrImageProcessorPil(size={"height": 64, "width": 64})
    report = str(doctor(model, processor=processor))
    assert "8×8" in report

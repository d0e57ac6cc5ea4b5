"""Queries that read feature maps of a backbone of windows, against scores carried by hand."""

from __future__ import annotations

from functools import cache
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor, nn

from tiny_models import noise
from tiny_segmenters import mask2former, maskformer
from whyformer import Pixel, WhyformerError, attribute, detection, explain
from whyformer.targets.areas import resolve_area
from whyformer.tracing.build import trace

SIZE = (64, 96)
GRIDS = {stage: (SIZE[0] // 2 ** (stage + 1), SIZE[1] // 2 ** (stage + 1)) for stage in (1, 2, 3, 4)}
INPUTS = {"pixel_values": noise(1, 3, *SIZE).double()}
KINDS = [(make, kind) for make in (mask2former, maskformer) for kind in ("swin", "resnet")]


@cache
def model_of(make, kind: str) -> nn.Module:
    return make(kind).double().requires_grad_(False)


def through_windows(row: Tensor, maps: Tensor, grid: tuple[int, int], size: int) -> Tensor:
    """A row of scores after attention inside windows, of which those at the edge are filled up."""
    rows, columns = grid
    across, result = -(-columns // size), row.clone()
    for (a, b), (c, d) in product(product(range(rows), range(columns)), repeat=2):
        if (a // size, b // size) == (c // size, d // size):
            window = a // size * across + b // size
            weight = maps[window].mean(dim=0)[a % size * size + b % size, c % size * size + d % size]
            result[c * columns + d] += row[a * columns + b] * weight
    return result


def unmerged(row: Tensor, grid: tuple[int, int]) -> Tensor:
    """A row of scores of tokens that are each the mean of two by two: shared out among them."""
    shares = row.view(grid).repeat_interleave(2, dim=0).repeat_interleave(2, dim=1) / 4
    return shares.flatten()


def by_hand(model: nn.Module, make, kind: str) -> dict[str, Tensor]:
    """Rollout from the queries to the patches, or to the feature maps of a backbone without attention."""
    asked = trace(model, INPUTS, Pixel(0.5, 0.5))
    maps = [record.map for record in asked.records]
    windows, maps = (maps[:4], maps[4:]) if kind == "swin" else ([], maps)
    mixed, maps = (maps[:2], maps[2:]) if make is mask2former else ([], maps)
    counts = [GRIDS[stage][0] * GRIDS[stage][1] for stage in ((4, 3, 2) if make is mask2former else (4,))]
    features = [torch.zeros(count, dtype=torch.float64) for count in counts]
    queries = start = asked.readout.weights[0]
    for number, weights in reversed(list(enumerate(maps))):
        mean = weights[0].mean(dim=0)
        if mean.shape == (5, 5):
            queries = queries + queries @ mean
        else:  # in every layer the next of the feature maps
            level = number // 2 % len(counts)
            features[level] = features[level] + queries @ mean
    together = torch.cat(features)
    for weights in reversed(mixed):
        together = together + together @ weights[0].mean(dim=0)
    if kind == "resnet":
        return {"queries": queries - start, "image": together}
    (*finer,) = together.split(counts)
    added = dict(zip((4, 3, 2), finer, strict=False))
    row = added[4]
    for stage in (4, 3, 2, 1):
        row = through_windows(row, windows[stage - 1], GRIDS[stage], 4)
        if stage > 1:
            row = unmerged(row, GRIDS[stage]) + added.get(stage - 1, 0)
    return {"queries": queries - start, "image": row}


@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_rollout_goes_from_queries_over_feature_maps_to_patches(make, kind):
    model = model_of(make, kind)
    expected = by_hand(model, make, kind)
    scores = attribute(model, INPUTS, Pixel(0.5, 0.5), "rollout")
    assert scores.keys() == expected.keys()
    for stream, row in expected.items():
        torch.testing.assert_close(scores[stream][0], row, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("make", "kind"), KINDS)
def test_an_instance_is_what_a_query_gives_its_label_and_its_pixels(make, kind):
    model = model_of(make, kind)
    with torch.no_grad():
        output = model(**INPUTS)
    taken = (output.masks_queries_logits[0] > 0).flatten(1).any(dim=1)
    query = int(taken.nonzero()[-1])
    inside = output.masks_queries_logits[0, query] > 0

    def score(output):
        shares = (
            output.class_queries_logits[0, query].softmax(dim=0)[2] * output.masks_queries_logits[0, query].sigmoid()
        )
        return shares[inside].log().mean()[None]

    for method in ("generic_attention", "input_x_gradient"):
        got = attribute(model, INPUTS, detection(query, "tree"), method)
        for stream, scores in attribute(model, INPUTS, score, method).items():
            torch.testing.assert_close(got[stream], scores, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(("make", "kind"), KINDS)
@pytest.mark.parametrize("target", ["predicted", Pixel(0.2, 0.7), detection(1)])
def test_labels_pixels_and_instances_are_drawn_over_the_picture(make, kind, target):
    processor = transformers.MaskFormerImageProcessorPil(size={"height": 64, "width": 96}, do_resize=True)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (120, 200, 3), dtype=np.uint8))
    model = model_of(make, kind)
    explanation = explain(picture, model, target, "generic_attention", processor=processor)
    part = explanation.parts["image"]
    pixels = processor(images=[picture], return_tensors="pt")["pixel_values"].double()
    raw = attribute(model, {"pixel_values": pixels}, target, "generic_attention")["image"]
    finest = {(mask2former, "resnet"): GRIDS[2], (maskformer, "resnet"): GRIDS[4]}.get((make, kind), GRIDS[1])
    assert (part.layout.rows, part.layout.columns) == finest
    assert float(part.scores.sum()) == pytest.approx(float(raw.sum()), rel=1e-5)
    if (make, kind) != (mask2former, "resnet"):  # whose feature maps are three, laid on one
        assert part.scores == pytest.approx(raw[0].numpy(), rel=1e-5)
    assert explanation.target.endswith(" by query 1") == (target == detection(1))


def test_the_coarse_feature_maps_come_first_and_are_spread_over_the_finest():
    model = model_of(mask2former, "resnet")
    processor = transformers.MaskFormerImageProcessorPil(size={"height": 64, "width": 96}, do_resize=True)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8))
    scores = explain(picture, model, Pixel(0.5, 0.5), "rollout", processor=processor).scores
    pixels = processor(images=[picture], return_tensors="pt")["pixel_values"].double()
    raw = attribute(model, {"pixel_values": pixels}, Pixel(0.5, 0.5), "rollout")["image"][0]
    expected = unmerged(unmerged(raw[:6], (2, 3)) + raw[6:30], (4, 6)) + raw[30:]
    assert scores == pytest.approx(expected.numpy(), rel=1e-5)


def test_an_instance_that_is_not_there_is_said():
    model = model_of(mask2former, "resnet")
    with pytest.raises(WhyformerError, match="No object query 9: this model has 5, 0 to 4"):
        attribute(model, INPUTS, detection(9), "rollout")
    nothing = SimpleNamespace(masks_queries_logits=-torch.ones(1, 5, 4, 4), class_queries_logits=torch.ones(1, 5, 5))
    with pytest.raises(WhyformerError, match="Query 2 takes no pixel of this picture: ask about another one"):
        resolve_area(detection(2), nothing, {})
    with pytest.raises(WhyformerError, match="segments without queries: ask about a label, a pixel or a region"):
        resolve_area(detection(2), SimpleNamespace(logits=torch.ones(1, 5, 4, 4)), {})

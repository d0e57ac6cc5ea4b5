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
from tiny_segmenters import mask2former, maskformer, segment_anything
from whyformer import Pixel, Region, WhyformerError, attribute, detection, doctor, explain, explain_batch, load
from whyformer.targets.image_segments import resolve_area
from whyformer.tracing.build import trace

SIZE = (64, 96)
GRIDS = {stage: (SIZE[0] // 2 ** (stage + 1), SIZE[1] // 2 ** (stage + 1)) for stage in (1, 2, 3, 4)}
INPUTS = {"pixel_values": noise(1, 3, *SIZE).double()}
KINDS = [(make, kind) for make in (mask2former, maskformer) for kind in ("swin", "resnet")]


@cache
def model_of(make, kind: str) -> nn.Module:
    return make(kind).double().requires_grad_(False)


@cache
def sam() -> nn.Module:
    return segment_anything().double().requires_grad_(False)


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
    with pytest.raises(WhyformerError, match="Query 2 has no pixel of this picture: choose another one"):
        resolve_area(detection(2), nothing, {})
    with pytest.raises(WhyformerError, match="segments without queries: give a label, a pixel or a region"):
        resolve_area(detection(2), SimpleNamespace(logits=torch.ones(1, 5, 4, 4)), {})


PROMPT = {"pixel_values": noise(1, 3, 64, 64).double(), "input_points": torch.tensor([[[[20.0, 40.0]]]]).double()}
SQUARE = transformers.SamImageProcessorPil(size={"longest_edge": 64}, pad_size={"height": 64, "width": 64})
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (120, 200, 3), dtype=np.uint8))


def test_rollout_goes_from_a_mask_over_tokens_and_patches_that_read_each_other():
    asked = trace(sam(), PROMPT, Pixel(0.4, 0.4))
    start = {readout.stream: readout.weights[0] for readout in asked.readouts}
    queries, image = start["queries"], start["image"]
    maps = [record.map for record in asked.records]
    for weights in reversed(maps[3:]):
        mean = weights[0].mean(dim=0)
        if mean.shape == (64, 7):  # patches read tokens
            queries = queries + image @ mean
        elif mean.shape == (7, 64):
            image = image + queries @ mean
        else:
            queries = queries + queries @ mean
    image = through_windows(image, maps[2], (8, 8), 3)
    image = image + image @ maps[1][0].mean(dim=0)
    image = through_windows(image, maps[0], (8, 8), 3)
    scores = attribute(sam(), PROMPT, Pixel(0.4, 0.4), "rollout")
    torch.testing.assert_close(scores["queries"][0], queries - start["queries"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(scores["image"][0], image - start["image"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("prompt", [(0.3, 0.6), (0.1, 0.2, 0.8, 0.9)])
@pytest.mark.parametrize("target", ["predicted", Pixel(0.5, 0.9), Region(box=(0.0, 0.5, 0.5, 1.0))])
def test_a_mask_a_pixel_and_a_box_of_it_are_explained_and_drawn_over_the_picture(prompt, target):
    """The picture is 64 by 38 pixels of the square that the model sees, and its mask 32 by 19 of 32 by 32."""
    explanation = explain((PICTURE, prompt), sam(), target, "generic_attention", processor=SQUARE)
    pixels = SQUARE(images=[PICTURE], return_tensors="pt")["pixel_values"].double()
    places = torch.tensor([prompt]).double() * torch.tensor([64, 38] * (len(prompt) // 2))
    prompts = {"input_boxes": places[None]} if len(prompt) == 4 else {"input_points": places[None, None]}
    inputs = {"pixel_values": pixels, **prompts}
    with torch.no_grad():
        output = sam()(**inputs)
    best = int(output.iou_scores[0, 0].argmax())
    inside = {
        "predicted": output.pred_masks[0, 0, best] > 0,
        Pixel(0.5, 0.9): (slice(17, 18), slice(16, 17)),  # of 19.2 rows and 32 columns
    }.get(target, (slice(10, 19), slice(0, 16)))
    raw = attribute(
        sam(), inputs, lambda output: output.pred_masks[:, 0, best][0][inside].mean()[None], "generic_attention"
    )
    part = explanation.parts["image"]
    assert part.scores == pytest.approx(raw["image"][0].numpy(), rel=1e-4, abs=1e-9)
    assert (part.layout.rows, part.layout.columns, part.layout.box) == (8, 8, (0.0, 0.0, 200.0, 200.0))
    outline = (20.0, 24.0, 160.0, 108.0) if len(prompt) == 4 else (58.0, 70.0, 62.0, 74.0)  # a mark around a point
    assert part.layout.outline == pytest.approx(outline)
    names = {"predicted": "mask", Pixel(0.5, 0.9): "mask at (0.5, 0.9)"}
    assert explanation.target == names.get(target, "mask in (0, 0.5, 0.5, 1)")
    assert "expects its mask to overlap with the truth" in explanation.notes[0]


def test_prompts_in_a_batch_are_explained_like_each_alone():
    examples = [(PICTURE, (0.3, 0.6)), (PICTURE.rotate(90, expand=True), (0.7, 0.2))]
    together = explain_batch(examples, sam(), Pixel(0.5, 0.5), "rollout", processor=SQUARE, batch_size=2)
    for example, one in zip(examples, together, strict=True):
        alone = explain(example, sam(), Pixel(0.5, 0.5), "rollout", processor=SQUARE)
        assert one.scores == pytest.approx(alone.scores, rel=1e-5)
    assert together[0].scores != pytest.approx(together[1].scores, rel=1e-2)


def test_a_model_of_masks_is_loaded_and_seen_by_the_doctor(tmp_path):
    segment_anything().save_pretrained(tmp_path)
    SQUARE.save_pretrained(tmp_path)
    checkup = doctor(load(tmp_path, device="cpu"))
    assert checkup.answers == "a mask for a point or a box of a picture"
    assert checkup.targets == "Pixel(x, y), Region(box=…), or none for all of it"


@pytest.mark.parametrize("prompt", ["here", (0.5,), (0.5, 3.0), (0.6, 0.1, 0.2, 0.9), (0.5, "0.5")])
def test_a_prompt_that_is_no_place_of_the_picture_is_said(prompt):
    with pytest.raises(WhyformerError, match=r"A point is \(x, y\) and a box \(left, top, right, bottom\), as shares"):
        explain((PICTURE, prompt), sam(), processor=SQUARE)


def test_what_cannot_be_asked_of_a_mask_is_said():
    with pytest.raises(
        WhyformerError, match=r"takes a picture and a point or a box of it: \('street.jpg', \(0.4, 0.6\)\)"
    ):
        explain(PICTURE, sam(), processor=SQUARE)
    with pytest.raises(WhyformerError, match="A mask has no labels: give a pixel or a box"):
        explain((PICTURE, (0.5, 0.5)), sam(), "cat", processor=SQUARE)
    both = [(PICTURE, (0.5, 0.5)), (PICTURE, (0.1, 0.1, 0.9, 0.9))]
    with pytest.raises(WhyformerError, match="Points and boxes do not fit one batch"):
        explain_batch(both, sam(), Pixel(0.5, 0.5), processor=SQUARE, batch_size=2)
    two = PROMPT | {"input_points": PROMPT["input_points"].repeat(1, 2, 1, 1)}
    with pytest.raises(WhyformerError, match="2 prompts for a picture: give one for each picture"):
        attribute(sam(), two, method="rollout")

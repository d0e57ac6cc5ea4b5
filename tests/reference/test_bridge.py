"""Scores over the bridge against dense matrices made by hand, from maps that the models' own calls are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.vision_utils import get_vision_window_index

from dependences import FEATURE_BLOCKS, dependences
from tiny_vlms import IMAGE_TOKEN, TINY_VLMS
from whyformer import WhyformerError, attribute
from whyformer.axes import Inputs

# How many blocks of a tower its features are made of; Qwen-VL has an operation for each picture, or window of one.
TOWERS = {
    "LLaVA": 2,
    "PaliGemma": 3,
    "Gemma 3": 3,
    "InternVL": 3,
    "Idefics 3": 3,
    "SmolVLM": 3,
    "LLaVA-NeXT": 2,
    "LLaVA-OneVision": 3,
}
QWEN = {"Qwen2-VL": 2, "Qwen2.5-VL": 3, "Qwen3-VL": 3}


@contextmanager
def maps_of_calls() -> Iterator[list[Tensor]]:
    """The head mean of every map that is computed while inside, in float64."""
    maps: list[Tensor] = []
    plain = F.scaled_dot_product_attention

    def call(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        groups = query.shape[1] // key.shape[1]
        scores = query @ key.repeat_interleave(groups, 1).mT * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        weights = scores.softmax(-1)
        maps.append(weights.mean(1).detach())
        return weights @ value.repeat_interleave(groups, 1)

    F.scaled_dot_product_attention = torch.nn.functional.scaled_dot_product_attention = call
    try:
        yield maps
    finally:
        F.scaled_dot_product_attention = torch.nn.functional.scaled_dot_product_attention = plain


@cache
def case(name: str) -> tuple[nn.Module, Inputs]:
    """A model in float64, and one prompt with two pictures."""
    inputs = TINY_VLMS[name].inputs((2,) if name != "InstructBLIP" else (1,), (4,))
    return TINY_VLMS[name].build().double(), {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}


def through(row: Tensor, maps: list[Tensor]) -> Tensor:
    """row · (I + M_L)…(I + M_1), by whole matrices."""
    product = torch.eye(len(row), dtype=torch.float64)
    for one in maps:
        product = (torch.eye(len(row), dtype=torch.float64) + one) @ product
    return row @ product


def twin(name: str) -> tuple[Tensor, Tensor]:
    """What rollout gives the text, and the tower's tokens in the order they run."""
    model, inputs = case(name)
    with maps_of_calls() as maps:
        model(**inputs)
    length = inputs["input_ids"].shape[1]
    decoder = [one[0] for one in maps[-2:]]
    if name in TOWERS:
        tower = [torch.block_diag(*one) for one in maps[: TOWERS[name]]]
    else:
        tower = layers_of_a_packed_sequence(maps[:-2], QWEN[name], int(inputs["image_grid_thw"].prod(dim=1).sum()))
    start = torch.zeros(length, dtype=torch.float64)
    start[-1] = 1
    features = dependences(model, inputs, FEATURE_BLOCKS[name])
    spread = torch.zeros(len(features), len(tower[0]), dtype=torch.float64)
    for number, sources in enumerate(features):
        for source in sources:
            spread[number, source] = 1 / len(sources)
    is_picture = (inputs["input_ids"][0] == IMAGE_TOKEN).nonzero()[:, 0]
    held: dict[int, Tensor] = {}
    row = start
    if name == "Qwen3-VL":  # what blocks 0 and 1 of the tower give is added after blocks 0 and 1 of the decoder
        held[1] = row[is_picture]
        row = through(row, decoder[1:])
        held[0] = row[is_picture]
        row = through(row, decoder[:1])
    else:
        row = through(row, decoder)
    image = row[is_picture] @ spread
    for number in reversed(range(len(tower))):
        image = image + held[number] @ spread if number in held else image
        image = image + image @ tower[number]
    made = torch.tensor([bool(sources) for sources in features])
    row = row - start
    row[is_picture[made]] = 0
    return row, image


def layers_of_a_packed_sequence(maps: list[Tensor], layers: int, total: int) -> list[Tensor]:
    """The operations of each layer, one for each picture or window, as one matrix."""
    result, parts = [], []
    for one in maps:
        parts.append(one[0])
        if sum(map(len, parts)) == total:
            result.append(torch.block_diag(*parts))
            parts = []
    assert len(result) == layers
    return result


def row_by_row(name: str, inputs: Inputs) -> list[int]:
    """For each token that the tower runs its place where the patches of each picture lie row by row."""
    if "image_grid_thw" not in inputs:
        return list(range(10_000))
    places, start = [], 0
    for _, rows, columns in inputs["image_grid_thw"].tolist():
        for block_row in range(rows // 2):
            for block_column in range(columns // 2):
                for row in range(2):
                    for column in range(2):
                        places.append(start + (2 * block_row + row) * columns + 2 * block_column + column)
        start += rows * columns
    if name == "Qwen2.5-VL":
        order, _ = get_vision_window_index(inputs["image_grid_thw"], 2, 16, 4)
        places = torch.tensor(places).reshape(-1, 4)[order].flatten().tolist()
    return places


@pytest.mark.parametrize("name", [*TOWERS, *QWEN])
def test_rollout_goes_through_the_decoder_over_the_bridge_into_the_tower(name):
    model, inputs = case(name)
    scores = attribute(model, inputs, 3, "rollout")
    text, image = twin(name)
    torch.testing.assert_close(scores["text"][0], text, rtol=0, atol=1e-9)
    places = row_by_row(name, inputs)[: len(image)]
    torch.testing.assert_close(scores["image"][0, places], image, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["BLIP-2", "InstructBLIP"])
def test_rollout_goes_through_a_q_former(name):
    model, inputs = case(name)
    with maps_of_calls() as maps:
        model(**inputs)
    *tower, self_1, cross, self_2, lower, upper = maps
    length, queries = inputs["input_ids"].shape[1], 6
    start = torch.zeros(length, dtype=torch.float64)
    start[-1] = 1
    row = through(start, [lower[0], upper[0]])
    is_picture = (inputs["input_ids"][0] == IMAGE_TOKEN).nonzero()[:, 0]
    size, pictures = self_1.shape[1], len(self_1)
    asked = torch.zeros(pictures, size, dtype=torch.float64)
    asked[:, :queries] = row[is_picture].reshape(pictures, queries)
    image = torch.zeros(pictures, tower[0].shape[1], dtype=torch.float64)
    for number in range(pictures):
        asked[number] = asked[number] + asked[number] @ self_2[number]
        image[number] = asked[number, :queries] @ cross[number]
        asked[number] = asked[number] + asked[number] @ self_1[number]
        image[number] = through(image[number], [one[number] for one in tower])
    scores = attribute(model, inputs, 3, "rollout")
    torch.testing.assert_close(scores["image"][0], image.flatten(), rtol=0, atol=1e-9)
    torch.testing.assert_close(scores["queries"][0], asked.flatten(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["LLaVA", "Gemma 3", "Qwen2-VL", "LLaVA-NeXT"])
def test_a_stop_at_the_bridge_leaves_the_scores_of_placeholders_with_their_patches(name):
    model, inputs = case(name)
    with maps_of_calls() as maps:
        model(**inputs)
    length = inputs["input_ids"].shape[1]
    start = torch.zeros(length, dtype=torch.float64)
    start[-1] = 1
    row = through(start, [one[0] for one in maps[-2:]]) - start
    features = dependences(model, inputs, FEATURE_BLOCKS[name])
    is_picture = (inputs["input_ids"][0] == IMAGE_TOKEN).nonzero()[:, 0].tolist()
    scores = attribute(model, inputs, 3, "rollout", bridge="stop")
    image = torch.zeros_like(scores["image"][0])
    for position, sources in zip(is_picture, features, strict=True):
        for source in sources:
            image[row_by_row(name, inputs)[source]] += row[position] / len(sources)
        row[position] = 0 if sources else row[position]
    torch.testing.assert_close(scores["image"][0], image, rtol=0, atol=1e-9)
    torch.testing.assert_close(scores["text"][0], row, rtol=0, atol=1e-9)


def test_a_bridge_is_only_where_there_are_pictures():
    model, inputs = case("LLaVA")
    with pytest.raises(WhyformerError, match=r"rollout: bridge='over'. Choose from: through, stop."):
        attribute(model, inputs, 3, "rollout", bridge="over")
    with pytest.raises(WhyformerError, match="grad_cam has no option 'bridge'"):
        attribute(model, inputs, 3, "grad_cam", bridge="stop")
    words = {"input_ids": torch.tensor([[1, 12, 13]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    with pytest.raises(WhyformerError, match="bridge='stop' needs a model that reads pictures among its words"):
        attribute(model, words, 3, "rollout", bridge="stop")
    assert attribute(model, words, 3, "rollout").keys() == {"text"}

"""TAM against its formula written out in loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tiny_vlms import IMAGE_TOKEN, TINY_VLMS
from whyformer import UnsupportedModel, attribute
from whyformer.methods.activation import rank_filter


def naive_filter(image: np.ndarray) -> np.ndarray:
    rows, columns = image.shape
    padded = np.pad(image, 1, mode="reflect")
    result = np.zeros_like(image)
    for row in range(rows):
        for column in range(columns):
            window = sorted(padded[row + a, column + b] for a in range(3) for b in range(3))
            mean = sum(window) / 9
            if mean <= 0:
                continue
            deviation = math.sqrt(sum((value - mean) ** 2 for value in window) / 9) / mean
            weights = [math.exp(-((rank - 4) ** 2) / (2 * deviation**2)) for rank in range(9)]
            result[row, column] = sum(w * v for w, v in zip(weights, window, strict=True)) / sum(weights)
    return result


def test_the_map_of_a_token_is_the_formula():
    vlm = TINY_VLMS["LLaVA"]
    model, inputs = vlm.build().double(), vlm.inputs((1,), (5,))
    inputs["pixel_values"] = inputs["pixel_values"].double()
    token = 17
    with torch.no_grad():
        logits = model(**inputs).logits[0].numpy()
    ids = inputs["input_ids"][0].tolist()
    pictures = [j for j, one in enumerate(ids) if one == IMAGE_TOKEN]
    words = [j for j, one in enumerate(ids) if one != IMAGE_TOKEN]
    a = {j: max(0.0, logits[j, token]) for j in range(len(ids))}
    earlier = [i for i in words if ids[i] != token]
    total = sum(a[i] for i in earlier)
    interference = [sum(a[i] / total * max(0.0, logits[j, ids[i]]) for i in earlier) for j in pictures]
    x = sum(a[j] * other for j, other in zip(pictures, interference, strict=True)) / sum(v * v for v in interference)
    kept = [max(0.0, a[j] - x * other) for j, other in zip(pictures, interference, strict=True)]
    scores = attribute(model, inputs, token, "tam")
    np.testing.assert_allclose(scores["image"][0, 1:], naive_filter(np.array(kept).reshape(4, 4)).flatten(), atol=1e-9)
    np.testing.assert_allclose(scores["text"][0, words], [a[j] for j in words], atol=1e-9)
    assert not scores["text"][0, pictures].any()


def test_the_filter_keeps_what_is_alike_and_drops_what_stands_alone():
    flat = torch.full((4, 5), 2.0, dtype=torch.float64)
    torch.testing.assert_close(rank_filter(flat), flat)
    lone = torch.zeros(5, 5, dtype=torch.float64)
    lone[2, 2] = 1.0
    assert rank_filter(lone).max() < 0.2
    assert not rank_filter(torch.zeros(3, 3)).any()


def test_a_model_without_pictures_is_told_what_tam_reads():
    words = {"input_ids": torch.tensor([[1, 12, 13]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    with pytest.raises(UnsupportedModel, match="at the tokens of a picture, and this prompt has none"):
        attribute(TINY_VLMS["LLaVA"].build(), words, 3, "tam")
    vlm = TINY_VLMS["LLaVA"]
    with pytest.raises(UnsupportedModel, match="at every position of the decoder: leave logits_to_keep out"):
        attribute(vlm.build(), vlm.inputs((1,), (5,)) | {"logits_to_keep": 1}, 3, "tam")

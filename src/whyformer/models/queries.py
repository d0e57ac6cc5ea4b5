"""Models that segment or detect by queries: how queries read a picture's features, and what these are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import torch
from torch import Tensor, nn

from whyformer.axes import KEY, QUERY, Inputs
from whyformer.models.joined import (
    NO_TOKEN,
    AttentionShape,
    AttentionShapes,
    Leaving,
    MapTokens,
    Place,
    Transfer,
    mean_of,
)
from whyformer.models.structure import main_input
from whyformer.models.windows import IMAGE, flat_windows, shifted_windows

QUERIES, FEATURE_STREAM = "queries", "features"
_BACKBONE, _ENCODER = "pixel_level_module.encoder", "pixel_level_module.decoder"
_CROSS = ("cross_attn", "encoder_attn")


def masked_queries(model: nn.Module, inputs: Inputs, operations: AttentionShapes) -> Iterator[Place | Transfer]:
    """MaskFormer and Mask2Former: queries read feature maps, in turn by size if an encoder mixes them.

    Scores follow a windowed backbone down to its patches; for others they stop at the feature maps. The per-pixel
    features of a mask, which convolutions compute, are not followed.
    """
    backbone, encoder, decoder = (
        [one for one in operations if _BACKBONE in one.path],
        [one for one in operations if _ENCODER in one.path],
        [one for one in operations if _BACKBONE not in one.path and _ENCODER not in one.path],
    )
    _, pixels = main_input(inputs)
    crossings = [one.shape[KEY] for one in decoder if _reads_features(one)]
    sizes = crossings[:3] if encoder else crossings[:1]  # coarsest first
    features = FEATURE_STREAM if backbone else IMAGE
    yield from _levels(list(shifted_windows(model, inputs, backbone)), sizes, pixels)
    for block, _ in enumerate(encoder):
        yield Place(block, features, features)
    block, crossed = -1, 0
    for operation in decoder:
        block += operation.path.partition(".layers.")[2].split(".")[0] != str(block)
        if not _reads_features(operation):
            yield Place(block, QUERIES, QUERIES)
            continue
        tokens = _tokens_of(crossed % len(sizes), sizes, operation.shape[QUERY], pixels) if len(sizes) > 1 else None
        yield Place(block, QUERIES, features, tokens=tokens)
        crossed += 1


def _reads_features(operation: AttentionShape) -> bool:
    return any(part in operation.path for part in _CROSS)


def _tokens_of(level: int, sizes: Sequence[int], queries: int, pixels: Tensor) -> MapTokens:
    """All queries, and the tokens of one feature map."""
    batch, whole = len(pixels), sum(sizes)
    example = torch.arange(batch, device=pixels.device)[:, None]
    own = torch.arange(queries, device=pixels.device) + example * queries
    keys = sum(sizes[:level]) + torch.arange(sizes[level], device=pixels.device) + example * whole
    return MapTokens(own, keys, (queries, whole), batch)


def _levels(stages: list[Place | Transfer], sizes: Sequence[int], pixels: Tensor) -> Iterator[Place | Transfer]:
    """The windows of a backbone, and a token-wise transfer after each stage that yields a feature map."""
    streams = dict.fromkeys(place.query_stream for place in stages if isinstance(place, Place))
    levels = dict(zip(reversed(list(streams)), enumerate(sizes), strict=False))
    for place, following in zip_longest(stages, stages[1:]):
        yield place
        is_last = isinstance(place, Place) and not isinstance(following, Place)
        if is_last and isinstance(place, Place) and place.query_stream in levels:
            level, size = levels[place.query_stream]
            own = torch.arange(size, device=pixels.device).expand(len(pixels), -1)
            leaving: Leaving = "all" if level == len(sizes) - 1 else "carried"
            lengths, positions = (sum(sizes), size), sum(sizes[:level]) + own
            yield mean_of(
                FEATURE_STREAM, place.query_stream, own[..., None], lengths, positions=positions, leaving=leaving
            )


def prompted_masks(model: nn.Module, inputs: Inputs, operations: AttentionShapes) -> Iterator[Place | Transfer]:
    """SAM: an image encoder, then two-way attention between prompt and mask tokens and patches."""
    encoder = [one for one in operations if one.path.startswith("vision_encoder.")]
    yield from flat_windows(model, inputs, encoder)
    layers: dict[str, int] = {}
    for operation in operations[len(encoder) :]:
        layer, _, attention = operation.path.removesuffix(".out_proj").rpartition(".")
        block = layers.setdefault(layer, len(layers))
        if attention == "cross_attn_image_to_token":
            yield Place(len(encoder) + block, IMAGE, QUERIES)
        else:
            yield Place(block, QUERIES, QUERIES if attention == "self_attn" else IMAGE)


def gated_detector(model: nn.Module, inputs: Inputs, operations: AttentionShapes) -> Iterator[Place | Transfer]:
    """D-FINE: queries read feature maps mixed by convolutions, with gates instead of output projections."""
    block = 0
    for number, operation in enumerate(operations):
        if "encoder" in operation.path:
            yield Place(number, FEATURE_STREAM, FEATURE_STREAM)
        elif operation.path:
            yield Place(block, QUERIES, QUERIES)
        else:
            yield Place(block, QUERIES, IMAGE)
            block += 1


def late_queries(model: nn.Module, inputs: Inputs, operations: AttentionShapes) -> Iterator[Place | Transfer]:
    """EoMT: an image encoder; queries are prepended before its last blocks."""
    _, pixels = main_input(inputs)
    stream, count = IMAGE, operations[0].shape[QUERY]
    for block, operation in enumerate(operations):
        added = operation.shape[QUERY] - count
        if added:
            stream, own = f"{IMAGE} with {QUERIES}", torch.arange(count, device=pixels.device)
            parts = torch.cat([torch.full((added,), NO_TOKEN, device=pixels.device), own])
            yield mean_of(stream, IMAGE, parts[None, :, None].expand(len(pixels), -1, -1), (added + count, count))
            count += added
        yield Place(block, stream, stream)

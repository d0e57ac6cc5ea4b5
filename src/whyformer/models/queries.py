"""Models that segment by queries: what their queries read of feature maps, and what those are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import torch
from torch import Tensor, nn

from whyformer.axes import KEY, QUERY, Inputs
from whyformer.models.joined import Leaving, MapTokens, Operation, Place, Transfer, mean_of
from whyformer.models.structure import main_input
from whyformer.models.windows import IMAGE, shifted_windows

QUERIES, FEATURES = "queries", "features"
_BACKBONE, _ENCODER = "pixel_level_module.encoder", "pixel_level_module.decoder"
_CROSS = ("cross_attn", "encoder_attn")


def masked_queries(model: nn.Module, inputs: Inputs, operations: Sequence[Operation]) -> Iterator[Place | Transfer]:
    """MaskFormer's and Mask2Former's: queries read feature maps, of several sizes in turn where an encoder mixes them.

    A backbone of windows is followed down to its patches; of another one the feature maps are the picture. What a mask
    takes from its pixels' own features, which convolutions make, is not followed.
    """
    backbone, encoder, decoder = (
        [one for one in operations if _BACKBONE in one.path],
        [one for one in operations if _ENCODER in one.path],
        [one for one in operations if _BACKBONE not in one.path and _ENCODER not in one.path],
    )
    _, pixels = main_input(inputs)
    crossings = [one.shape[KEY] for one in decoder if _reads_features(one)]
    sizes = crossings[:3] if encoder else crossings[:1]  # coarsest first, as they follow each other
    features = FEATURES if backbone else IMAGE
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


def _reads_features(operation: Operation) -> bool:
    return any(part in operation.path for part in _CROSS)


def _tokens_of(level: int, sizes: Sequence[int], queries: int, pixels: Tensor) -> MapTokens:
    """All queries, and the tokens of one of the feature maps."""
    batch, whole = len(pixels), sum(sizes)
    example = torch.arange(batch, device=pixels.device)[:, None]
    own = torch.arange(queries, device=pixels.device) + example * queries
    keys = sum(sizes[:level]) + torch.arange(sizes[level], device=pixels.device) + example * whole
    return MapTokens(own, keys, (queries, whole), batch)


def _levels(stages: list[Place | Transfer], sizes: Sequence[int], pixels: Tensor) -> Iterator[Place | Transfer]:
    """The windows of a backbone, and after each stage that a feature map is made of what makes it: token by token."""
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
            yield mean_of(FEATURES, place.query_stream, own[..., None], lengths, positions=positions, leaving=leaving)

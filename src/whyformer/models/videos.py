"""Video encoders that alternate attention over time and space, or pool by a query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from whyformer.axes import QUERY, Inputs
from whyformer.errors import UnsupportedModel
from whyformer.models.joined import NO_TOKEN, AttentionShapes, MapTokens, Place, Transfer, mean_of
from whyformer.models.structure import main_input
from whyformer.models.windows import IMAGE

POOL = "pool"


def divided_space_time(model: nn.Module, inputs: Inputs, operations: AttentionShapes) -> Iterator[Place | Transfer]:
    """TimeSformer: each patch attends to itself over time, then to all patches of its frame.

    Every frame gets a copy of the class token; they are averaged afterwards.
    """
    config: Any = model.config
    if config.attention_type == "joint_space_time":
        yield from (Place(block, IMAGE, IMAGE) for block, _ in enumerate(operations))
        return
    if config.attention_type != "divided_space_time":
        raise UnsupportedModel(
            f"{type(model).__name__} processes each frame separately (attention_type={config.attention_type!r}): "
            "explain its frames one by one."
        )
    _, pixels = main_input(inputs)
    batch, frames = pixels.shape[:2]
    patches = operations[1].shape[QUERY] - 1
    example = torch.arange(batch, device=pixels.device)[:, None, None]
    whole, copies = 1 + patches * frames, frames * (1 + patches)
    by_patch = 1 + torch.arange(patches * frames, device=pixels.device).view(patches, frames)
    by_frame = torch.cat([by_patch.new_zeros(1, frames), by_patch]).T  # each with the class token
    own = torch.arange(copies, device=pixels.device).view(frames, 1 + patches)
    merged = torch.full((whole, frames), NO_TOKEN, device=pixels.device)
    merged[0], merged[by_patch.T, 0] = own[:, 0], own[:, 1:]
    in_time, in_space = ((x + example * size).flatten(0, 1) for x, size in ((by_patch, whole), (own, copies)))
    for layer in range(len(operations) // 2):
        stream, spread, later = (f"{IMAGE}{part}" for part in (_after(layer), f", frames {layer}", _after(layer + 1)))
        yield Place(2 * layer, stream, stream, tokens=MapTokens(in_time, in_time, (whole, whole), batch))
        yield mean_of(spread, stream, by_frame.reshape(1, -1, 1).expand(batch, -1, -1), (copies, whole))
        yield Place(2 * layer + 1, spread, spread, tokens=MapTokens(in_space, in_space, (copies, copies), batch))
        yield mean_of(later, spread, merged.expand(batch, -1, -1), (whole, copies))


def pooled_by_query(model: nn.Module, inputs: Inputs, operations: AttentionShapes) -> Iterator[Place | Transfer]:
    """V-JEPA 2: an encoder, more blocks of a pooler, and a final query without an output projection."""
    *blocks, _ = operations
    yield from (Place(block, IMAGE, IMAGE) for block, _ in enumerate(blocks))
    yield Place(0, POOL, IMAGE)


def _after(layers: int) -> str:
    return f", after layer {layers}" if layers else ""

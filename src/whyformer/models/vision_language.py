"""Generative vision-language models: which attention belongs to which stream, and where image features enter."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from whyformer.axes import Inputs
from whyformer.errors import UnsupportedModel
from whyformer.models.bridges import Bridge, bridge_of
from whyformer.models.joined import AttentionShape, AttentionShapes, MapTokens, Place, Transfer
from whyformer.models.pictures import ImageTokenLayout
from whyformer.models.structure import config_of

# The module that an attention operation belongs to, by a part of its path; the first match wins.
STREAMS = (
    ("crossattention", "queries", "image"),
    ("qformer", "queries", "queries"),
    ("head.attention", "pool", "image"),  # a pooling head, which features do not use
    ("language_model", "text", "text"),
    ("text_model", "text", "text"),
    ("vision", "image", "image"),
    ("visual", "image", "image"),
)

Ways = dict[int, list[Transfer]]  # by the index of the preceding layer


@dataclass(frozen=True)
class _Layer:
    """A layer's attention between two streams: one operation, or one per part of a packed sequence."""

    path: str
    query: str
    key: str
    block: int
    operations: list[AttentionShape] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Number of queries of its map."""
        return self.operations[0].shape[2]


def arrange_pictures(
    sight: ImageTokenLayout,
) -> Callable[[nn.Module, Inputs, AttentionShapes], list[Place | Transfer]]:
    """Return a function that places the operations of a tower and a decoder, and the transfers between them."""

    def arrange(model: nn.Module, inputs: Inputs, operations: AttentionShapes) -> list[Place | Transfer]:
        layers = _layers(model, operations)
        tower = [layer for layer in layers if (layer.query, layer.key) == ("image", "image")]
        if not tower:  # a prompt without pictures
            return [Place(layer.block, layer.query, layer.key) for layer in layers]
        config = config_of(model)
        bridge = bridge_of(model, inputs, sight)
        ways = _ways(config, bridge, layers)
        parts: list[Place | Transfer] = [*ways.get(-1, [])]
        for number, layer in enumerate(layers):
            parts += [*_places(layer, bridge, _query_size(layers)), *ways.get(number, [])]
        return parts

    return arrange


def _layers(model: nn.Module, operations: AttentionShapes) -> list[_Layer]:
    """The operations by layer, in order of execution; blocks are counted in the queries' stream."""
    layers: list[_Layer] = []
    known: defaultdict[str, list[str]] = defaultdict(list)
    for operation in operations:
        ends = next(((query, key) for part, query, key in STREAMS if part in operation.path), None)
        if ends is None:
            raise UnsupportedModel(
                f"{type(model).__name__} has attention outside its image tower and its decoder: "
                f"{operation.path or 'without a plain output projection'}."
            )
        path = (re.match(r".*?\.\d+\.", operation.path) or [operation.path])[0]  # up to the first number
        if path not in known[ends[0]]:
            known[ends[0]].append(path)
        if not layers or (layers[-1].path, layers[-1].query, layers[-1].key) != (path, *ends):
            layers.append(_Layer(path, *ends, known[ends[0]].index(path)))
        layers[-1].operations.append(operation)
    return layers


def _query_size(layers: Sequence[_Layer]) -> int:
    """Tokens of a Q-Former per picture: its queries, and the instruction if it reads one."""
    return max((layer.size for layer in layers if layer.query == "queries"), default=0)


def _places(layer: _Layer, bridge: Bridge, query_size: int) -> Iterator[Place]:
    """The places of a layer's operations; those of a packed sequence are one step."""
    run = 0
    for number, operation in enumerate(layer.operations):
        maps, _, queries, keys = operation.shape
        tokens: MapTokens | None = None
        states = None
        if layer.query not in ("text", "pool"):
            tokens = bridge.map_tokens(maps, (queries, keys), (layer.query, layer.key), run, query_size)
        if tokens is not None:
            ends = ((layer.query, tokens.queries), (layer.key, tokens.keys))
            of_queries, of_keys = (bridge.tower_tokens() if stream == "image" else own for stream, own in ends)
            states = of_queries, of_keys
        run += maps * keys
        yield Place(layer.block, layer.query, layer.key, number > 0, tokens, states)


def _ways(config: Any, bridge: Bridge, layers: Sequence[_Layer]) -> Ways:
    """The transfers from the decoder to the tower, by the layer that their features come from."""
    last = {(layer.query, layer.block): number for number, layer in enumerate(layers)} | {("image", -1): -1}
    ways: defaultdict[int, list[Transfer]] = defaultdict(list)
    if _query_size(layers):
        final = max(number for (stream, _), number in last.items() if stream == "queries")
        ways[final].append(bridge.to_queries(_query_size(layers)))
        return ways
    depth = sum(stream == "image" for stream, _ in last) - 1
    blocks = sorted(_feature_blocks(config, depth))
    for number, block in enumerate(blocks):  # the backward direction reaches the first of them last
        ways[last["image", block]].append(
            bridge.to_image(share=1 / len(blocks), leaving="none" if number else "carried")
        )
    for number, block in enumerate(getattr(config.vision_config, "deepstack_visual_indexes", None) or ()):
        stream = f"deepstack {number}"  # added to the text after the block of this index
        ways[last["text", number]].append(bridge.to_placeholders(stream))
        ways[last["image", block]].append(bridge.to_image(stream, leaving="all"))
    return ways


def _feature_blocks(config: Any, depth: int) -> list[int]:
    """The blocks of a tower whose outputs become features; −1 is the embeddings."""
    chosen = getattr(config, "vision_feature_layer", -1)
    states = [chosen] if isinstance(chosen, int) else chosen
    return [state % (depth + 1) - 1 for state in states]

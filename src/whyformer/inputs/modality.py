"""The interface of a modality: how one kind of input is encoded, collated, found among tokens and laid out.

Each modality is a module of `whyformer.modalities` with a `MODALITY`. Those modules may draw and so stand above this
one, which imports them by name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.inputs.layouts import Layout
from whyformer.models.loading import LoadedModel


@dataclass(frozen=True)
class PartPlace:
    """A part of an example: its stream, the first of its tokens there, and how many; of a picture also their grid."""

    kind: Literal["text", "written", "picture", "regions", "sound", "video"]
    stream: str
    first: int
    count: int
    grid: tuple[int, int] | None = None


@dataclass(frozen=True)
class ForwardBatch:
    """A forward pass of a batch, as far as layouts depend on it; `queries` are the detections asked about."""

    model: nn.Module
    inputs: Inputs
    output: Any = None
    queries: Sequence[int] | Tensor | None = None


class ScoredLayout(NamedTuple):
    """A part of an explanation: its name, its layout, and a score for each token of the layout."""

    name: str
    layout: Layout
    scores: Tensor


@dataclass(frozen=True)
class Modality:
    """A kind of input.

    Attributes:
        name: The key of its encoded parts in `EncodedExample.parts`.
        collate: The inputs of a batch: `collate(loaded_model, parts)`.
        place: Where its tokens are: `place(model, inputs, lengths)`, by the length of each stream; None without any.
        lay: The part of an explanation: `lay(part, row, forward_pass, place, scores)`, with the scores of the stream.
        encode: The parts of an example, by name: `encode(example, loaded_model, truncate=…, room=…)`, once for each
            chunk; None for what only accompanies another modality. `Task.modality` says which one an example is.
        length: What parts must agree in to run in one batch; None where they are padded.
        noise: An example of noise that the model takes, without the text beside it; None for texts.
    """

    name: str
    collate: Callable[[LoadedModel, Sequence[Any]], Inputs]
    place: Callable[[nn.Module, Inputs, Mapping[str, int]], PartPlace | None] | None = None
    lay: Callable[[Any, int, ForwardBatch, PartPlace, Tensor], ScoredLayout] | None = None
    encode: Callable[..., Iterator[dict[str, Any]]] | None = None
    length: Callable[[Any], int] | None = None
    noise: Callable[[LoadedModel], Any] | None = None


@cache
def modalities() -> dict[str, Modality]:
    """All modalities by name, in the order of `whyformer.modalities.NAMES`."""
    names = importlib.import_module("whyformer.modalities").NAMES
    return {name: importlib.import_module(f"whyformer.modalities.{name}").MODALITY for name in names}

"""Parts of inputs whose places can be removed, and how a modality removes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import Tensor

from whyformer.axes import Inputs
from whyformer.errors import WhyformerError

if TYPE_CHECKING:
    from whyformer.inputs.encode import EncodedExample
    from whyformer.inputs.fills import Erasure, Fill
    from whyformer.inputs.modality import PartPlace
    from whyformer.models.loading import LoadedModel
    from whyformer.tracing.trace import Trace

UnitKind = Literal["token", "word", "superpixel"]
# One kind for all parts, or by modality their kind or the unit of each place.
PartUnits = Mapping[str, UnitKind | Tensor]
UnitChoice = UnitKind | PartUnits


@dataclass(frozen=True, eq=False)
class RemovablePart:
    """A part of the inputs whose places can be removed.

    `kind` is its modality, `numbers` [example, place] are their units before counting, `tokens` [example, place] their
    tokens in the stream; -1 for none. Places are pixels, word pieces or regions.
    """

    kind: str
    stream: str
    shape: tuple[int, ...]
    numbers: np.ndarray
    tokens: np.ndarray


@dataclass(frozen=True)
class TraceRemoval:
    """How places are removed: pixels filled, word pieces erased.

    Attributes:
        fill: "mean" for 0 after the processor's normalisation, "black", "road" for imputation by neighbours, or a
            colour as a tensor [channel, 1, 1].
        erasure: "pad", "mask", "delete", or the id of a replacement token.
        padding: The id of padding.
    """

    fill: Fill | Tensor = "mean"
    erasure: Erasure | int = "pad"
    padding: int = 0


@dataclass(frozen=True)
class PartRemoval:
    """How a modality removes places of its parts.

    Attributes:
        places: Returns the removable places and their units: `places(trace, place, units)`.
        without: Returns its inputs at every step, without the places that are not kept: `without(inputs, kept,
            removal)`, where `kept` [step, example, *shape] is 1 for places that are kept.
        options: Resolves options of methods by the model's processor: `options(options, loaded_model, inputs,
            encoded)`, where `encoded` are the examples or empty; None without such options.
    """

    places: Callable[[Trace, PartPlace, PartUnits], RemovablePart]
    without: Callable[[Inputs, Tensor, TraceRemoval], Inputs]
    options: Callable[[Mapping[str, Any], LoadedModel, Inputs, Sequence[EncodedExample]], dict[str, Any]] | None = None


def token_line(kind: str, stream: str, first: int, may_go: Tensor, units: PartUnits) -> RemovablePart:
    """A part whose places are consecutive tokens."""
    batch, count = may_go.shape
    tokens = np.broadcast_to(first + np.arange(count), (batch, count))
    numbers = np.where(may_go.cpu().numpy(), np.arange(count), -1)
    if isinstance(choice := units.get(kind), Tensor):
        numbers = np.where(numbers < 0, -1, units_of_shape(kind, choice, (batch, count)))
    return RemovablePart(kind, stream, (count,), numbers, tokens)


def units_of_shape(kind: str, numbers: Tensor, shape: tuple[int, ...]) -> np.ndarray:
    """Validate the units that were given as a tensor."""
    if tuple(numbers.shape) != shape:
        raise WhyformerError(f"units of the {kind} have shape {tuple(numbers.shape)}, not {shape}.")
    array: np.ndarray = numbers.cpu().numpy()
    return array

"""The interface of a modality: how one kind of input is read, encoded, collated, laid out, removed, drawn and stored.

Each modality is a module of `whyformer.modalities` with a `MODALITY`. Those modules may draw, so they sit above this
one, which finds them in their folder. One of your own is an entry of `known_modalities()`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from whyformer.axes import Inputs, StreamScores
from whyformer.inputs.layouts import Layout
from whyformer.models.loading import LoadedModel

if TYPE_CHECKING:
    from whyformer.inputs.removable import PartRemoval
    from whyformer.render.layout_kinds import LayoutKind


@dataclass(frozen=True)
class PartPlace:
    """Where a part of an example is: its kind, stream, first token and length there, and a picture's grid."""

    kind: str
    stream: str
    first: int
    count: int
    grid: tuple[int, int] | None = None


@dataclass(frozen=True)
class ForwardBatch:
    """A forward pass of a batch, as far as layouts depend on it; `queries` are the detections to explain."""

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
class FileKind:
    """The files of a modality: their suffixes, and what one and several are called in messages.

    `not_a_text` says what such a file is where a text is expected, and the way out; it is empty for texts.
    """

    suffixes: frozenset[str] = frozenset()
    singular: str = "file"
    plural: str = "files"
    not_a_text: str = ""


@dataclass(frozen=True)
class Modality:
    """A kind of input.

    Attributes:
        name: The key of its encoded parts in `EncodedExample.parts`, and its name in the rows of families.
        collate: The inputs of a batch: `collate(loaded_model, parts)`.
        place: Locates its tokens: `place(model, inputs, lengths)`, given the length of each stream; None if absent.
        lay_out: Returns a part of an explanation: `lay_out(part, row, forward, place, scores)`, scores of the stream.
        encode: Yields the parts of an example by name, once per chunk: `encode(example, loaded_model, truncate=…,
            room=…)`; None if it only accompanies another modality. `Task.modality` names the modality of an example.
        length: A length that all parts of a batch must share; None where they are padded.
        noise: Returns a random example that the model takes, without its text; None for texts.
        noun: What an example is called in messages and audit files: "picture".
        files: Its files.
        read: Reads an example, a file or an object; None where only `encode` can, since it depends on the model.
        types: The classes of examples that audit files identify by a digest.
        arrays: Returns the arrays of an example that `read` returned, to compute its digest from.
        is_prompt: Whether an example is a prompt by itself, to which a decoder responds, as it transcribes speech.
        pool: Sums scores of the input itself over tokens where `lay_out` cannot: `pool(model, scores)` by stream.
        removal: How its parts are removed by methods that run the model without them; None if they cannot be.
        layouts: How its layouts are drawn, ranked and stored, by class.

    Example:
        >>> whyformer.extend.known_modalities()["image"].noun
        'picture'
    """

    name: str
    collate: Callable[[LoadedModel, Sequence[Any]], Inputs]
    place: Callable[[nn.Module, Inputs, Mapping[str, int]], PartPlace | None] | None = None
    lay_out: Callable[[Any, int, ForwardBatch, PartPlace, Tensor], ScoredLayout] | None = None
    encode: Callable[..., Iterator[dict[str, Any]]] | None = None
    length: Callable[[Any], int] | None = None
    noise: Callable[[LoadedModel], Any] | None = None
    noun: str = ""
    files: FileKind = FileKind()
    read: Callable[[Any], Any] | None = None
    types: tuple[type, ...] = ()
    arrays: Callable[[Any], Sequence[Any]] | None = None
    is_prompt: bool = False
    pool: Callable[[nn.Module, StreamScores], StreamScores] | None = None
    removal: PartRemoval | None = None
    layouts: Mapping[type, LayoutKind] = field(default_factory=dict)


@cache
def known_modalities() -> dict[str, Modality]:
    """All modalities by name: the `MODALITY` of each module of `whyformer.modalities`, in the order given there."""
    package = importlib.import_module("whyformer.modalities")
    names = dict.fromkeys((*package.ORDER, *(module.name for module in iter_modules(package.__path__))))
    modules = {name: importlib.import_module(f"{package.__name__}.{name}") for name in names}
    return {name: module.MODALITY for name, module in modules.items() if hasattr(module, "MODALITY")}

"""The form of a row that says what a forward pass does not show of an architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from whyformer.axes import Inputs
from whyformer.models.joined import Operation, Place, Transfer
from whyformer.models.pictures import ImageTokenLayout

NOTHING = ""  # scales nothing: the stream is not an input, such as a detector's object queries
JOINT = "joint"  # a stream of words and patches, which are inputs of their own

Readout = str | Callable[[nn.Module], str] | None
Arrange = Callable[[nn.Module, Inputs, Sequence[Operation]], Iterable[Place | Transfer]]


@dataclass(frozen=True)
class Stream:
    """A sequence of tokens inside a model.

    Args:
        name: What it is called in scores: "text", "image", "source", "target", "audio", "queries".
        readout: Where the answer is read in it, by the kinds of `readout.KINDS`; None is found from the gradient.
        scaled: The module of the base model whose output the path of integrated gradients scales; None for the pixels
            themselves, NOTHING for a stream that is not an input.
        is_read: Whether the answer is read in it.
        mask: The input that says which of its tokens are real; None where padding shows in the attention alone.

    Example:
        >>> whyformer.extend.Stream("image", scaled="encoder.visn_fc", mask="visual_attention_mask").name
        'image'
    """

    name: str
    readout: Readout = None
    scaled: str | None = None
    is_read: bool = False
    mask: str | None = None


@dataclass(frozen=True)
class Family:
    """Facts about an architecture that its forward pass does not show.

    Args:
        stream: The stream the answer is read from, with its `readout`, `scaled` and `mask` as in `Stream`.
        others: The other streams.
        attention: For a part of an attention's path (* is anything between), the streams of its queries and of its
            keys; the first row that fits counts. Rows for the same part are taken in turn, and are one step: they read
            the same state.
        pads_to_limit: Whether every text is padded to the model's limit, with the mask its row names; without one, all
            of it is read (SigLIP).
        arrange: For streams that are cut up or joined, such as windows or merged patches: the place of each attention
            operation, in the order they ran, and between them what makes one stream of another; None where map b is
            that of example b, and query i that of token i.
        sight: For a decoder with pictures among its words: which patches its placeholder tokens stand for.
        modality: The module of `whyformer.modalities` that encodes its examples, where its processor does not tell.

    Example:
        >>> from whyformer.extend import FAMILIES, Family
        >>> FAMILIES["my_bert"] = Family("text", readout="first", scaled="embeddings")
        >>> del FAMILIES["my_bert"]
    """

    stream: str
    readout: Readout = None
    scaled: str | None = None
    others: tuple[Stream, ...] = ()
    attention: tuple[tuple[str, str, str], ...] = ()
    mask: str | None = "attention_mask"
    pads_to_limit: bool = False
    arrange: Arrange | None = None
    sight: ImageTokenLayout | None = None
    modality: str | None = None

    @property
    def is_one_stack(self) -> bool:
        """Whether it is one stream whose tokens keep their places."""
        return not self.attention and self.arrange is None

    @property
    def streams(self) -> tuple[Stream, ...]:
        """All its streams, the one that is read from first."""
        return Stream(self.stream, self.readout, self.scaled, is_read=True, mask=self.mask), *self.others

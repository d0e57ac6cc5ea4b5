"""Rows of the architecture table: what a forward pass does not show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import nn

from whyformer.axes import Inputs
from whyformer.models.joined import AttentionShapes, Place, Transfer
from whyformer.models.pictures import ImageTokenLayout

NOTHING = ""  # scales nothing: the stream is not an input, such as a detector's object queries
JOINT = "joint"  # a stream of words and patches, which are separate inputs

Readout = str | Callable[[nn.Module], str] | None
Arrange = Callable[[nn.Module, Inputs, AttentionShapes], Iterable[Place | Transfer]]


@dataclass(frozen=True)
class Stream:
    """A sequence of tokens inside a model.

    Args:
        name: Its name in the scores: "text", "image", "source", "target", "audio", "queries".
        readout: Where the answer is read in it, one of `readout.READOUT_KINDS`; None to find it from the gradient.
        scaled: The module of the base model whose output integrated gradients scale; None for the pixels themselves,
            NOTHING for a stream that is not an input.
        is_read: Whether the answer is read in it.
        mask: The input that marks its real tokens; None if padding shows in the attention mask only.

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
        attention: The streams of the queries and the keys by a part of the attention's path (* matches anything); the
            first match wins. Rows for the same part are used in turn and form one step: they read the same state.
        pads_to_limit: Whether every text is padded to the model's limit, with the mask that its row names; without a
            mask, padding is read too (SigLIP).
        arrange: For streams that are split or joined, such as windows or merged patches: yields the place of each
            attention operation in the order of execution, and the transfers between streams. It is None if map b
            belongs to example b and query i to token i.
        sight: For a decoder with images in its text: the patches that its placeholder tokens stand for.
        modality: The module of `whyformer.modalities` that encodes its examples, if its processor does not tell.
        processor: The class in transformers and the file of its image processor, if AutoImageProcessor would load one
            that needs torchvision.

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
    processor: tuple[str, str] | None = None

    @property
    def is_one_stack(self) -> bool:
        """Whether it has a single stream whose tokens keep their positions."""
        return not self.attention and self.arrange is None

    @property
    def streams(self) -> tuple[Stream, ...]:
        """All streams, the one with the read-out first."""
        return Stream(self.stream, self.readout, self.scaled, is_read=True, mask=self.mask), *self.others

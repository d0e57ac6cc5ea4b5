"""A call of a model, and a question: the call with the score to explain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.backward.rules import Backward
from whyformer.models.answering import forward_arguments
from whyformer.models.bridges import Bridge
from whyformer.models.family import Family
from whyformer.models.input_tensors import REGION_INPUTS, SOUND_INPUTS
from whyformer.models.mixers import sequence_mixers
from whyformer.models.structure import can_write, vocabulary_size
from whyformer.targets.scores import Score
from whyformer.tracing.noise import Noise

LAST = {"logits_to_keep": 1}  # of a decoder: the logits of the last position alone
MOST_LOGITS = 2**24  # that are computed although the answer reads those of one position
WORD_PIECES = {"text": "input_ids", "source": "input_ids", "target": "decoder_input_ids"}  # by stream


@dataclass(frozen=True)
class ModelCall:
    """A model and its inputs; `backward` names the rules of gradients."""

    model: nn.Module
    inputs: Inputs
    family: Family
    batch: int
    backward: Backward = "gradient"
    bridge: Bridge | None = None  # if pictures are among the words
    noise: Noise | None = None  # on pixels, and on the embeddings of word pieces and regions

    @property
    def words(self) -> int:
        """The number of word pieces of the longest text, 0 without text."""
        ids = self.inputs.get("input_ids")
        return 0 if ids is None else ids.shape[-1]

    def word_pieces(self, stream: str) -> Tensor | None:
        """The word pieces of a stream, [example, token]; None if it has none, or the caller left them out."""
        ids: Tensor | None = self.inputs.get(WORD_PIECES.get(stream, ""))
        return ids

    @property
    def is_words_alone(self) -> bool:
        """Whether every token is a word, without pictures, regions or sounds among the inputs."""
        return self.words > 0 and not any(
            name in self.inputs for name in ("pixel_values", *REGION_INPUTS, *SOUND_INPUTS)
        )

    def ask(self, score: Score, *, by_blocks: bool = False) -> Question:
        """The question about a score of the output."""
        return Question(**vars(self), score=score, by_blocks=by_blocks)


@dataclass(frozen=True)
class Question(ModelCall):
    """A model call and the score to explain.

    `by_blocks` computes gradients block by block, to save memory.
    """

    score: Score = field(kw_only=True)
    by_blocks: bool = field(default=False, kw_only=True)


def settings_of(model: nn.Module, inputs: Inputs, *, reads_all: bool) -> dict[str, Any]:
    """Arguments that leave out what nobody reads: a cache of keys and values, and all but the last of many logits.

    With `reads_all`, the answer may depend on the logits of any position.
    """
    taken = forward_arguments(model)
    hands_on = "kwargs" in taken and bool(sequence_mixers(model))  # Granite's hybrid caches its states by default
    settings: dict[str, Any] = {"use_cache": False} if "use_cache" in taken or hands_on else {}
    ids, mask = inputs.get("input_ids"), inputs.get("attention_mask")
    is_free = not (reads_all or LAST.keys() & inputs.keys()) and LAST.keys() <= taken and can_write(model)
    if not is_free or not isinstance(ids, Tensor) or "pixel_values" in inputs or "decoder_input_ids" in inputs:
        return settings
    ends_last = mask is None or (isinstance(mask, Tensor) and mask.shape == ids.shape and bool(mask[:, -1].all()))
    is_large = ids.numel() * (vocabulary_size(model) or 0) > MOST_LOGITS
    return settings | LAST if is_large and ends_last else settings

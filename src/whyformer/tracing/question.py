"""A call of a model, and a question: the call with the score to explain."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.backward.rules import Backward
from whyformer.models.bridges import Bridge
from whyformer.models.family import Family
from whyformer.models.input_tensors import REGION_INPUTS, SOUND_INPUTS
from whyformer.targets.scores import Score
from whyformer.tracing.noise import Noise

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

"""A model and its inputs, and with the score that is explained: a question."""

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

WORD_PIECES = {"text": "input_ids", "source": "input_ids", "target": "decoder_input_ids"}  # of a stream of words


@dataclass(frozen=True)
class ModelCall:
    """A model and its inputs; `backward` is how gradients are taken."""

    model: nn.Module
    inputs: Inputs
    family: Family
    batch: int
    backward: Backward = "gradient"
    bridge: Bridge | None = None  # by which pictures are among the words
    noise: Noise | None = None  # on the inputs: pixels as they are given, word pieces and regions once embedded

    @property
    def words(self) -> int:
        """How many word pieces the longest text has, 0 where there is none."""
        ids = self.inputs.get("input_ids")
        return 0 if ids is None else ids.shape[-1]

    def word_pieces(self, stream: str) -> Tensor | None:
        """The word pieces of a stream, [example, token]; None of one that has none, or whose the caller left out."""
        ids: Tensor | None = self.inputs.get(WORD_PIECES.get(stream, ""))
        return ids

    @property
    def is_words_alone(self) -> bool:
        """Whether every token is a word: no picture, no regions and no sound are among the inputs."""
        return self.words > 0 and not any(
            name in self.inputs for name in ("pixel_values", *REGION_INPUTS, *SOUND_INPUTS)
        )

    def ask(self, score: Score, *, by_blocks: bool = False) -> Question:
        """The question about a score of the output, once that is known."""
        return Question(**vars(self), score=score, by_blocks=by_blocks)


@dataclass(frozen=True)
class Question(ModelCall):
    """A model call and the score that is explained.

    `by_blocks` has gradients taken block by block, each run again, where the graph of all would take too much memory.
    """

    score: Score = field(kw_only=True)
    by_blocks: bool = field(default=False, kw_only=True)

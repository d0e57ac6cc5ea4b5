"""A call of a model, and a question: the call with the score to explain."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from whyformer.axes import Inputs
from whyformer.backward.rules import Backward
from whyformer.models.answering import forward_arguments
from whyformer.models.bridges import Bridge
from whyformer.models.family import Family
from whyformer.models.input_tensors import PICTURE_INPUTS, REGION_INPUTS, SOUND_INPUTS
from whyformer.models.mixers import sequence_mixers
from whyformer.models.structure import can_write, vocabulary_size
from whyformer.targets.scores import Score

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

    @property
    def has_other_streams(self) -> bool:
        """Whether some stream is not one of word pieces, also where all inputs are words."""
        return self.family.arrange is not None or any(one.name not in WORD_PIECES for one in self.family.streams)

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


@dataclass(frozen=True)
class Noise:
    """Noise on the inputs of a model.

    Attributes:
        size: Its standard deviation, as a share of the range max − min of each example's values (Smilkov et al. 2017).
        draw: The number of the draw, from 0.
    """

    size: float
    draw: int = 0

    def on(self, stream: str, values: Tensor, examples: Tensor, is_real: Tensor | None = None) -> Tensor:
        """Add noise to the real values of a stream's input; `examples` is the example of each row.

        Numbers are drawn for an example's real values in order, so that padding and other examples do not change them.
        """
        real = (torch.ones_like(values) if is_real is None else is_real.expand_as(values)).bool()
        noise = torch.zeros_like(values, dtype=torch.float64)
        for example in examples.unique():
            rows = examples == example
            own, own_real = values[rows], real[rows]
            known = own[own_real].double()
            if len(known):
                numbers = _numbers(self.draw, stream, len(known)).to(known)
                noise[rows] = noise[rows].masked_scatter(own_real, numbers * self.size * (known.max() - known.min()))
        return values + noise.to(values.dtype)


def _numbers(draw: int, stream: str, count: int) -> Tensor:
    """Draw standard normal numbers, from a separate sequence for each draw and stream."""
    generator = np.random.default_rng((draw, zlib.crc32(stream.encode())))
    return torch.from_numpy(generator.standard_normal(count))


def repeat_inputs(inputs: Inputs, times: int, batch: int) -> Inputs:
    """Repeat the inputs that have an entry per example `times` times along the batch."""
    return {name: _repeat(name, value, times, batch) for name, value in inputs.items()}


def _repeat(name: str, value: Any, times: int, batch: int) -> Any:
    if times == 1 or not isinstance(value, Tensor) or value.dim() == 0:
        return value
    if len(value) != batch and name not in PICTURE_INPUTS:  # an example may have several pictures, or none
        return value
    return value.repeat(times, *[1] * (value.dim() - 1))


def split_output(output: Any, batch: int, count: int) -> Iterator[Any]:
    """Split the output along the batch into the outputs of the copies."""
    for number in range(count):
        yield _rows(output, slice(number * batch, (number + 1) * batch), batch * count)


def _rows(output: Any, rows: slice, total: int) -> Any:
    if isinstance(output, Tensor):
        return output[rows] if output.dim() and len(output) == total else output
    if isinstance(output, Mapping):
        cut = {name: _rows(value, rows, total) for name, value in output.items()}
        # A dual encoder scores every image against every text: keep those of the same copy.
        cut |= {name: cut[name][:, rows] for name in ("logits_per_image", "logits_per_text") if name in cut}
        return type(output)(**cut) if isinstance(output, ModelOutput) else cut
    if hasattr(output, "_make"):
        return output._make(_rows(value, rows, total) for value in output)
    if isinstance(output, (tuple, list)):
        return type(output)(_rows(value, rows, total) for value in output)
    if is_dataclass(output) and not isinstance(output, type):
        parts = {field.name: _rows(getattr(output, field.name), rows, total) for field in fields(output)}
        return replace(output, **parts)
    return output

"""A prompt and its response read in one pass (teacher forcing), and rows: the parts of a response to explain."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whyformer.axes import Inputs, TokenScores
from whyformer.inputs.chunks import check_ids
from whyformer.inputs.collate import on_device
from whyformer.inputs.image_prompt import ImagePrompt, image_inputs
from whyformer.inputs.modality import known_modalities
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import config_of, device_of

# Token type of the response where it is not 0: PaliGemma attends to its prompt in both directions, then causally.
RESPONSE_TOKEN_TYPE = {"paligemma": 1}


@dataclass(frozen=True)
class Exchange:
    """The tokens of a prompt and of a response.

    An encoder-decoder reads the prompt in one stream and writes in another, which starts with `beginning`; without it
    both are one stream.
    """

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    beginning: tuple[int, ...] | None = None
    image_prompt: ImagePrompt | None = None  # the prompt, if it contains images
    encoder_part: tuple[str, Any] | None = None  # the prompt, if it is not a text: its modality and its encoded part

    @property
    def is_text(self) -> bool:
        """Whether the prompt has words only."""
        return self.image_prompt is None and self.encoder_part is None

    @property
    def first(self) -> int:
        """Position of the response's first token in its stream; it is predicted one position earlier."""
        return len(self.prompt if self.beginning is None else self.beginning)

    @property
    def written(self) -> tuple[int, ...]:
        """The whole stream that contains the response."""
        return (*(self.prompt if self.beginning is None else self.beginning), *self.response)


@dataclass(frozen=True)
class ResponseRow:
    """Some tokens of a response, explained by everything before the last of them.

    `weights` are those of the tokens in the explained score; None for 1 each. `without` are the tokens'
    log-probabilities without the sources, if the weights are still to be computed from them.
    """

    exchange: Exchange
    tokens: tuple[int, ...]
    weights: tuple[float, ...] | None = None
    without: tuple[float, ...] | None = None

    @property
    def focus(self) -> tuple[float, ...]:
        """The weight of each token in the explained score."""
        return (1.0,) * len(self.tokens) if self.weights is None else self.weights

    @property
    def positions(self) -> list[int]:
        """Positions in the stream where the tokens are predicted."""
        return [self.exchange.first + token - 1 for token in self.tokens]

    @property
    def token(self) -> int | None:
        """The token's id; None if there are several tokens."""
        return self.exchange.response[self.tokens[0]] if len(self.tokens) == 1 else None

    @property
    def length(self) -> int:
        """How many tokens of the stream are read."""
        return self.exchange.first + max(self.tokens)

    @property
    def has_last(self) -> bool:
        """Whether the whole response is predicted in this pass."""
        return len(self.exchange.response) - 1 in self.tokens


def row_inputs(loaded_model: LoadedModel, rows: Sequence[ResponseRow], *, every_logit: bool = False) -> Inputs:
    """The model's inputs for these rows: each exchange up to the row's last token, padded on the right.

    If the model can, it computes the logits of the responses only: those of a long prompt would fill the memory.
    `every_logit` computes all of them.
    """
    check_ids(loaded_model, (tokens for row in rows for tokens in (row.exchange.prompt, row.exchange.written)))
    device = device_of(loaded_model.model)
    written, is_written = _padded([row.exchange.written[: row.length] for row in rows], device)
    if loaded_model.task.has_decoder:
        return _encoder_inputs(loaded_model, rows) | {
            "decoder_input_ids": written,
            "decoder_attention_mask": is_written,
        }
    inputs: Inputs = {"input_ids": written, "attention_mask": is_written}
    image_prompt = [row.exchange.image_prompt for row in rows if row.exchange.image_prompt is not None]
    if image_prompt:
        inputs |= _inputs_of_pictures(loaded_model, rows, image_prompt)
    if not every_logit and "logits_to_keep" in inspect.signature(loaded_model.model.forward).parameters:
        inputs["logits_to_keep"] = written.shape[1] - min(row.exchange.first - 1 for row in rows)
    return inputs


def _encoder_inputs(loaded_model: LoadedModel, rows: Sequence[ResponseRow]) -> Inputs:
    """The encoder's inputs: the tokens of the prompts, or parts of another modality."""
    parts = [row.exchange.encoder_part for row in rows if row.exchange.encoder_part is not None]
    if parts:
        ((name, _), *_) = parts
        return on_device(loaded_model, known_modalities()[name].collate(loaded_model, [part for _, part in parts]))
    source, is_source = _padded([row.exchange.prompt for row in rows], device_of(loaded_model.model))
    return {"input_ids": source, "attention_mask": is_source}


def _inputs_of_pictures(
    loaded_model: LoadedModel, rows: Sequence[ResponseRow], prompts: Sequence[ImagePrompt]
) -> Inputs:
    """The inputs beside token ids of prompts with images."""
    device, inputs = device_of(loaded_model.model), on_device(loaded_model, image_inputs(prompts))
    own = RESPONSE_TOKEN_TYPE.get(getattr(config_of(loaded_model.model), "model_type", ""), 0)
    for name in prompts[0].by_token:
        if name != "attention_mask":
            values = [
                [*prompt.by_token[name], *[own] * len(row.exchange.response)]
                for prompt, row in zip(prompts, rows, strict=True)
            ]
            inputs[name], _ = _padded([part[: row.length] for part, row in zip(values, rows, strict=True)], device)
    return inputs


def stream_mask(inputs: Inputs) -> str:
    """Name of the attention mask of the stream that contains the response."""
    return "decoder_attention_mask" if "decoder_input_ids" in inputs else "attention_mask"


def first_logit(inputs: Inputs) -> int:
    """Position of the first logit."""
    keep: int | None = inputs.get("logits_to_keep")
    return 0 if keep is None else inputs["input_ids"].shape[1] - keep


def row_weights(rows: Sequence[ResponseRow], length: int) -> TokenScores:
    """The read-out of each row: the weights of its tokens at the positions that predict them, of sum 1."""
    weights = torch.zeros(len(rows), length)
    for number, row in enumerate(rows):
        weights[number, row.positions] = torch.tensor([weight / sum(row.focus) for weight in row.focus])
    return weights


def _padded(sequences: Sequence[Sequence[int]], device: Any) -> tuple[Tensor, Tensor]:
    """Pad the sequences into one tensor, and return its mask; padding is never read."""
    longest = max(map(len, sequences))
    ids = torch.tensor([[*one, *[0] * (longest - len(one))] for one in sequences], device=device)
    real = torch.tensor([[1] * len(one) + [0] * (longest - len(one)) for one in sequences], device=device)
    return ids, real

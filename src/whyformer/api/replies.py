"""A reply to a prompt, given as text or tokens, or written by the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from whyformer.api.generation import check_written, end_ids, generate, transcribe
from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import length_limit
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.modality import known_modalities
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.prompt_encoding import EncodedPrompt
from whyformer.inputs.prompt_tokens import Token, id_tokens, text_tokens
from whyformer.inputs.teacher_forcing import Exchange
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import config_of, device_of


@dataclass(frozen=True)
class Reply:
    """A reply to a prompt, with the tokens of both, and notes on how it was obtained."""

    prompt: Prompt
    text: str
    tokens: tuple[Token, ...]
    exchange: Exchange
    seed: int | None = None
    notes: tuple[str, ...] = ()


def reply_of(
    loaded_model: LoadedModel, opening: EncodedPrompt, response: Any, *, tokens: int = 1, seed: int | None = None
) -> Reply:
    """The reply given as text or token ids, or written by the model if None."""
    if not loaded_model.task.writes:
        raise WhyformerError(f"{loaded_model.name} does not write text: use explain.")
    takes = getattr(loaded_model.model, "main_input_name", "input_ids")
    if opening.encoded is None and (takes != "input_ids" or loaded_model.task.sees is not None):
        raise WhyformerError(
            f"{loaded_model.name} does not read texts only: responses can be explained for text models, and with their "
            "processor for models that read pictures among words, or sounds."
        )
    prompt, beginning = opening.prompt, opening.beginning
    notes: tuple[str, ...] = ()
    if response is None:
        check_written(tokens)
        room = _room(loaded_model, prompt, beginning)
        most = tokens if room is None else min(tokens, room)
        written_ids = _written(loaded_model, opening, most, seed)
        if len(written_ids) == most:
            why = "as requested" if most == tokens else "the limit of its context"
            notes = (f"The response was stopped after {most} tokens, {why}.",)
        before = prompt.ids[-1:] if beginning is None else []
        text, reply_tokens = id_tokens(written_ids, loaded_model.tokenizer, before)
    else:
        text, reply_tokens, seed = *_text_and_tokens(loaded_model, prompt, response), None
        _check_length(loaded_model, prompt, beginning, len(reply_tokens))
        goes_on = beginning is None and not prompt.messages and prompt.rendered.endswith(prompt.text)
        notes = tuple(_seam(prompt.text, text)) if goes_on else ()
    exchange = opening.exchange([token.id for token in reply_tokens])
    return Reply(prompt, text, reply_tokens, exchange, seed, notes)


def _written(loaded_model: LoadedModel, opening: EncodedPrompt, most: int, seed: int | None) -> list[int]:
    """Generate the reply to an encoded prompt."""
    if opening.encoded is None:
        return generate(loaded_model, _inputs(loaded_model, opening.prompt.ids, opening.beginning), most, seed=seed)
    inputs = model_inputs(loaded_model, [opening.encoded])
    if opening.encoded.encoder_part is None:
        return generate(loaded_model, inputs, most, seed=seed)
    if seed is not None:
        raise WhyformerError(
            f"seed={seed}: {loaded_model.name} writes the most likely words about a "
            f"{known_modalities()[loaded_model.task.modality].noun}, so leave it out."
        )
    return transcribe(loaded_model, inputs, most)


def _text_and_tokens(loaded_model: LoadedModel, prompt: Prompt, response: Any) -> tuple[str, tuple[Token, ...]]:
    """The text and tokens of a given response, without the end-of-text token."""
    if isinstance(response, str):
        if not response.strip():
            raise WhyformerError(
                "The response is empty: give its text or token ids, or None to let the model write it."
            )
        return response, text_reply(loaded_model, prompt, response)
    if hasattr(response, "tolist"):
        response = response.tolist()
    count = len(loaded_model.tokenizer)
    is_ids = isinstance(response, Sequence) and all(type(token) is int and 0 <= token < count for token in response)
    if not is_ids:
        raise WhyformerError(
            f"A response is a text, token ids from 0 to {count - 1}, or None to let the model write it, "
            f"not {response!r:.40}."
        )
    ids, ends = list(response), end_ids(loaded_model)
    while len(ids) > 1 and ids[-1] in ends:
        ids.pop()
    if not ids:
        raise WhyformerError("The response is empty: give its text or token ids, or None to let the model write it.")
    return id_tokens(ids, loaded_model.tokenizer, [] if loaded_model.task.has_decoder else prompt.ids[-1:])


def _seam(prompt: str, response: str) -> Iterator[str]:
    """A note if the space between prompt and response seems to be missing."""
    last, first = prompt[-1], response[:1]
    if last.isascii() and first.isascii() and last.isalnum() and first.isalnum():
        joined = f"{prompt.split()[-1]}{response.split()[0]}"
        yield f"The response follows the prompt without a space: {joined!r:.60}."


def text_reply(loaded_model: LoadedModel, prompt: Prompt, response: str) -> tuple[Token, ...]:
    """The tokens of a text after its prompt: those of both together, if the prompt's are unchanged."""
    tokenizer = loaded_model.tokenizer
    alone = text_tokens(response, tokenizer, add_special_tokens=False)
    if loaded_model.task.has_decoder:
        return alone
    # Both without beginning-of-text tokens; a prompt may have placeholders for pictures between its words.
    before, both = (
        text_tokens(text, tokenizer, add_special_tokens=False) for text in (prompt.rendered, prompt.rendered + response)
    )
    start, rest = len(prompt.rendered), both[len(before) :]
    is_continued = _ids(both[: len(before)]) == _ids(before) and _ids(before)[-1:] == prompt.ids[-1:]
    if not is_continued or not rest or any(token.start < start for token in rest):
        return alone
    return tuple(
        Token(token.id, token.text, token.start - start, token.end - start, token.is_special) for token in rest
    )


def _ids(tokens: Sequence[Token]) -> list[int]:
    return [token.id for token in tokens]


def _inputs(loaded_model: LoadedModel, ids: Sequence[int], beginning: tuple[int, ...] | None) -> dict[str, Any]:
    device = device_of(loaded_model.model)
    prompt = torch.tensor([list(ids)], device=device)
    inputs = {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}
    if beginning is not None:
        inputs["decoder_input_ids"] = torch.tensor([beginning], device=device)
    return inputs


def _room(loaded_model: LoadedModel, prompt: Prompt, beginning: tuple[int, ...] | None) -> int | None:
    """The number of tokens that the model can write; None without a limit. The last takes no position."""
    _check_length(loaded_model, prompt, beginning, 1)
    limit = _written_limit(loaded_model, beginning)
    return None if limit is None else limit - (len(prompt.tokens) if beginning is None else len(beginning)) + 1


def _written_limit(loaded_model: LoadedModel, beginning: tuple[int, ...] | None) -> int | None:
    """The maximum number of tokens in the stream of the response."""
    if beginning is None:
        return length_limit(loaded_model.model, loaded_model.tokenizer)
    config = config_of(loaded_model.model)
    limits = (getattr(config, name, None) for name in ("max_position_embeddings", "max_target_positions"))
    return next((limit for limit in limits if isinstance(limit, int)), None)


def _check_length(loaded_model: LoadedModel, prompt: Prompt, beginning: tuple[int, ...] | None, response: int) -> None:
    """Validate that the reply fits the model's context."""
    name, length = loaded_model.name, len(prompt.tokens)
    limit = length_limit(loaded_model.model, loaded_model.tokenizer) if length else None
    if limit is not None and length > limit:
        raise WhyformerError(
            f"The prompt has {length} tokens, but {name} takes at most {limit}: shorten it, since it is never cut."
        )
    most = _written_limit(loaded_model, beginning)
    before = length if beginning is None else len(beginning)
    if most is not None and before + response - 1 > most:
        together = (
            f"the prompt {length}, and {name} takes at most {most} together"
            if beginning is None
            else (f"but {name} writes at most {most - before + 1}")
        )
        raise WhyformerError(f"The response has {response} tokens, {together}: shorten one, since nothing is cut.")

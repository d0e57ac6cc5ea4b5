"""A reply to a prompt: given as a text or as tokens, or written by the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from whyformer.api.generation import check_written, end_ids, generate, transcribe
from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import length_limit
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.prompt_encoding import EncodedPrompt
from whyformer.inputs.prompt_tokens import Token, id_tokens, text_tokens
from whyformer.inputs.teacher_forcing import Exchange
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import config_of, device_of


@dataclass(frozen=True)
class Reply:
    """A reply to a prompt, the tokens of both as the model reads them, and how the reply came about."""

    prompt: Prompt
    text: str
    tokens: tuple[Token, ...]
    exchange: Exchange
    seed: int | None = None
    notes: tuple[str, ...] = ()


def reply_of(
    loaded_model: LoadedModel, opening: EncodedPrompt, response: Any, *, tokens: int = 1, seed: int | None = None
) -> Reply:
    """The reply given as text or token ids; if None, the one the model writes."""
    if not loaded_model.task.writes:
        raise WhyformerError(f"{loaded_model.name} writes nothing: use explain.")
    takes = getattr(loaded_model.model, "main_input_name", "input_ids")
    if opening.encoded is None and (takes != "input_ids" or loaded_model.task.sees is not None):
        raise WhyformerError(
            f"{loaded_model.name} does not read texts alone: only responses to texts are explained, and with their "
            "processor those of models that have pictures among their words, or hear a sound."
        )
    prompt, beginning = opening.prompt, opening.beginning
    notes: tuple[str, ...] = ()
    if response is None:
        check_written(tokens)
        room = _room(loaded_model, prompt, beginning)
        most = tokens if room is None else min(tokens, room)
        written_ids = _written(loaded_model, opening, most, seed)
        if len(written_ids) == most:
            why = "as many as asked for" if most == tokens else "as many as its context has room for"
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
    if "audio" not in opening.encoded.parts:
        return generate(loaded_model, inputs, most, seed=seed)
    if seed is not None:
        raise WhyformerError(
            f"seed={seed}: about a sound {loaded_model.name} writes the likeliest words, leave it out."
        )
    return transcribe(loaded_model, inputs, most)


def _text_and_tokens(loaded_model: LoadedModel, prompt: Prompt, response: Any) -> tuple[str, tuple[Token, ...]]:
    """The text and the tokens of a response that is given; the end-of-text token is not part of it."""
    if isinstance(response, str):
        if not response.strip():
            raise WhyformerError("The response is empty: give its text or token ids, or None to have it written.")
        return response, _text_reply(loaded_model, prompt, response)
    if hasattr(response, "tolist"):
        response = response.tolist()
    count = len(loaded_model.tokenizer)
    is_ids = isinstance(response, Sequence) and all(type(token) is int and 0 <= token < count for token in response)
    if not is_ids:
        raise WhyformerError(
            f"A response is a text, or token ids from 0 to {count - 1}, or None to have it written, "
            f"not {response!r:.40}."
        )
    ids, ends = list(response), end_ids(loaded_model)
    while len(ids) > 1 and ids[-1] in ends:
        ids.pop()
    if not ids:
        raise WhyformerError("The response is empty: give its text or token ids, or None to have it written.")
    return id_tokens(ids, loaded_model.tokenizer, [] if loaded_model.task.has_decoder else prompt.ids[-1:])


def _seam(prompt: str, response: str) -> Iterator[str]:
    """A note where a space between a prompt and a response may have been forgotten."""
    last, first = prompt[-1], response[:1]
    if last.isascii() and first.isascii() and last.isalnum() and first.isalnum():
        joined = f"{prompt.split()[-1]}{response.split()[0]}"
        yield f"The response follows the prompt without a space: {joined!r:.60}."


def _text_reply(loaded_model: LoadedModel, prompt: Prompt, response: str) -> tuple[Token, ...]:
    """The tokens of a text after its prompt: as those of both together go on, where the prompt's stay as they are."""
    tokenizer = loaded_model.tokenizer
    alone = text_tokens(response, tokenizer, add_special_tokens=False)
    if loaded_model.task.has_decoder:
        return alone
    # Both without what begins a text; between a prompt's words there may be placeholders for its pictures.
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
    """How many tokens the model can write; None without a limit. The last of them takes no position."""
    _check_length(loaded_model, prompt, beginning, 1)
    limit = _written_limit(loaded_model, beginning)
    return None if limit is None else limit - (len(prompt.tokens) if beginning is None else len(beginning)) + 1


def _written_limit(loaded_model: LoadedModel, beginning: tuple[int, ...] | None) -> int | None:
    """The most tokens that the stream of the response takes."""
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
        raise WhyformerError(f"The prompt has {length} tokens, and {name} takes {limit}: shorten it, nothing is cut.")
    most = _written_limit(loaded_model, beginning)
    before = length if beginning is None else len(beginning)
    if most is not None and before + response - 1 > most:
        together = (
            f"the prompt {length}, and {name} takes {most} together"
            if beginning is None
            else (f"and {name} writes {most - before + 1}")
        )
        raise WhyformerError(f"The response has {response} tokens, {together}: shorten one, nothing is cut.")

"""A reply to a prompt: given as a text or as tokens, or written by the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from whyformer.api.generation import check_written, end_ids, generate
from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import length_limit
from whyformer.inputs.encode import decoder_beginning
from whyformer.inputs.exchange import Exchange
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.tokens import Token, id_tokens, text_tokens
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
    loaded_model: LoadedModel, prompt: Prompt, response: Any, *, tokens: int = 1, seed: int | None = None
) -> Reply:
    """The reply that a text or token ids are, or if it is None the one that the model writes."""
    if not loaded_model.task.writes:
        raise WhyformerError(f"{loaded_model.name} writes nothing: use explain.")
    takes = getattr(loaded_model.model, "main_input_name", "input_ids")
    if takes != "input_ids" or loaded_model.task.sees is not None:
        explains_tokens = loaded_model.task.sees_pictures_in_text or loaded_model.task.hears
        way_out = " continuation explains each token that it writes." if explains_tokens else ""
        raise WhyformerError(
            f"{loaded_model.name} does not read texts alone: only responses to texts are explained.{way_out}"
        )
    beginning = tuple(decoder_beginning(loaded_model)) if loaded_model.task.has_decoder else None
    ids = tuple(prompt.ids)
    notes: tuple[str, ...] = ()
    if response is None:
        check_written(tokens)
        room = _room(loaded_model, prompt, beginning)
        most = tokens if room is None else min(tokens, room)
        written_ids = generate(loaded_model, _inputs(loaded_model, ids, beginning), most, seed=seed)
        if len(written_ids) == most:
            why = "as many as asked for" if most == tokens else "as many as its context has room for"
            notes = (f"The response was stopped after {most} tokens, {why}.",)
        text, reply_tokens = id_tokens(written_ids, loaded_model.tokenizer, ids[-1:] if beginning is None else ())
    else:
        text, reply_tokens, seed = *_text_and_tokens(loaded_model, prompt, response), None
        _check_length(loaded_model, prompt, beginning, len(reply_tokens))
        notes = () if beginning is not None or prompt.messages else tuple(_seam(prompt.text, text))
    return Reply(
        prompt, text, reply_tokens, Exchange(ids, tuple(token.id for token in reply_tokens), beginning), seed, notes
    )


def _text_and_tokens(loaded_model: LoadedModel, prompt: Prompt, response: Any) -> tuple[str, tuple[Token, ...]]:
    """The text and the tokens of a response that is given; the end of its text is no part of it."""
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
    both = text_tokens(prompt.rendered + response, tokenizer, add_special_tokens=not prompt.messages)
    start, first = len(prompt.rendered), len(prompt.tokens)
    rest = both[first:]
    if [token.id for token in both[:first]] != prompt.ids or not rest or any(token.start < start for token in rest):
        return alone
    return tuple(
        Token(token.id, token.text, token.start - start, token.end - start, token.is_special) for token in rest
    )


def _inputs(loaded_model: LoadedModel, ids: tuple[int, ...], beginning: tuple[int, ...] | None) -> dict[str, Any]:
    device = device_of(loaded_model.model)
    prompt = torch.tensor([ids], device=device)
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
    limit = getattr(config_of(loaded_model.model), "max_position_embeddings", None)
    return limit if isinstance(limit, int) else None


def _check_length(loaded_model: LoadedModel, prompt: Prompt, beginning: tuple[int, ...] | None, response: int) -> None:
    """Refuse what is longer than the model's context."""
    name, length = loaded_model.name, len(prompt.tokens)
    limit = length_limit(loaded_model.model, loaded_model.tokenizer)
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

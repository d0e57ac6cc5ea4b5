"""Encode a prompt with parts of its text removed."""

from __future__ import annotations

from collections.abc import Iterable

from whyformer.errors import WhyformerError
from whyformer.inputs.prompt import HasTokenizer, Prompt, remove_ranges, render_messages
from whyformer.inputs.sentences import CharRange
from whyformer.models.loading import LoadedModel


def ids_without(loaded_model: LoadedModel, prompt: Prompt, places: Iterable[CharRange]) -> list[int]:
    """The tokens of a prompt without these places, through the same chat template, if there is one."""
    return rendered_ids(loaded_model, prompt, text_without(loaded_model, prompt, places))


def rendered_ids(loaded_model: LoadedModel, prompt: Prompt, text: str) -> list[int]:
    """The tokens of a variant of a prompt.

    An empty prompt is replaced by the token that begins a text, since a response needs at least one token before it.
    """
    ids: list[int] = loaded_model.tokenizer(text, add_special_tokens=not prompt.messages, verbose=False)["input_ids"]
    return ids or [_beginning(loaded_model)]


def text_without(renderer: HasTokenizer, prompt: Prompt, places: Iterable[CharRange]) -> str:
    """The text of a prompt without these places, through the same chat template, if there is one."""
    if prompt.places:
        return _rendered_without(prompt, with_white_space(prompt.text, places))
    rest = remove_ranges(prompt, with_white_space(prompt.text, places))
    return rest if isinstance(rest, str) else render_messages(renderer, rest)


def _rendered_without(prompt: Prompt, places: Iterable[CharRange]) -> str:
    """The rendered text of a conversation with tools without these places.

    Parts of a call or of a schema cannot be rendered again, so they are cut out of the text; the template's own words
    stay.
    """
    text, removed = prompt.rendered, list(places)
    for message, (first, _) in reversed(list(zip(prompt.messages, prompt.places, strict=True))):
        for start, end in sorted(removed, reverse=True):
            low, high = max(start, message.start), min(end, message.end)
            if low < high:
                text = text[: first + low - message.start] + text[first + high - message.start :]
    return text


def with_white_space(text: str, places: Iterable[CharRange]) -> list[CharRange]:
    """Extend places by the white space on one side, so that removing them leaves their neighbours separated as before.

    The side with fewer line breaks is removed, so that paragraphs stay separate. Places with only white space between
    them are merged.
    """
    joined: list[CharRange] = []
    for start, end in sorted(places):
        if joined and not text[joined[-1][1] : start].strip():
            start = joined.pop()[0]
        joined.append((start, end))
    return [_widened(text, place) for place in joined]


def _widened(text: str, place: CharRange) -> CharRange:
    start, end = len(text[: place[0]].rstrip()), len(text) - len(text[place[1] :].lstrip())
    before, after = text[start : place[0]], text[place[1] : end]
    if start == 0 or (end < len(text) and before.count("\n") > after.count("\n")):
        return place[0], end
    return start, place[1]


def _beginning(loaded_model: LoadedModel) -> int:
    tokenizer = loaded_model.tokenizer
    for token in (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id):
        if token is not None:
            return int(token)
    raise WhyformerError(
        f"Without these sources the prompt is empty, and the tokenizer of {loaded_model.name} has no token that "
        "begins a text: choose smaller sources, or add text before them."
    )

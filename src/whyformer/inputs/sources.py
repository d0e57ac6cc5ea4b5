"""Sources of a response: the tokens, words, sentences, paragraphs, messages or documents of its prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

from whyformer.errors import WhyformerError, nearest
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.prompt_tokens import tokens_on
from whyformer.inputs.sentences import CharRange, paragraph_ranges, sentence_ranges
from whyformer.inputs.words import word_ranges

SourceKind = Literal["token", "word", "sentence", "paragraph", "message", "document"]
Sources = SourceKind | Sequence[CharRange] | None

_SPLITTERS: dict[str, Callable[[str], list[CharRange]]] = {
    "word": word_ranges,
    "sentence": sentence_ranges,
    "paragraph": paragraph_ranges,
}


@dataclass(frozen=True)
class Source:
    """A part of a prompt that a response may depend on.

    Attributes:
        kind: "token", "word", "sentence", "paragraph", "message", "document", or "span" for a custom range.
        name: The document, or else the role of the message, that contains it; empty without either.
        start: Its first character in the prompt's text.
        end: The end of its range, exclusive.
        text: Its characters.
        tokens: The indices of its tokens in the prompt.
    """

    kind: str
    name: str
    start: int
    end: int
    text: str
    tokens: tuple[int, ...]


def sources_of(prompt: Prompt, sources: Sources = None) -> tuple[Source, ...]:
    """Split a prompt into sources, in the order of its text: a kind, or custom character ranges.

    The default is sentences, or words if there is only one sentence.
    """
    if sources is None:
        sentences = sources_of(prompt, "sentence")
        return sentences if len(sentences) > 1 else sources_of(prompt, "word")
    if not isinstance(sources, str):
        return _own_sources(prompt, sources)
    if sources not in get_args(SourceKind):
        raise WhyformerError(f"sources={sources!r}. {nearest(sources, get_args(SourceKind))}")
    if sources == "token" and not prompt.tokens and prompt.text:
        raise WhyformerError("sources='token': only the server knows the tokens of this prompt; choose words.")
    if sources == "token":
        return tuple(
            Source("token", prompt.name_at(token.start), token.start, token.end, token.text, (number,))
            for number, token in enumerate(prompt.tokens)
            if not token.is_special
        )
    places = _places(prompt, sources)
    by_place = tokens_on(places, prompt.tokens, prompt.text)
    return tuple(
        source for source in _sources_at(prompt, sources, places, by_place) if source.tokens or not prompt.tokens
    )


def _places(prompt: Prompt, kind: SourceKind) -> list[CharRange]:
    if kind in _SPLITTERS:
        return [
            (region.start + start, region.start + end)
            for region in prompt.regions
            for start, end in _SPLITTERS[kind](prompt.text[region.start : region.end])
        ]
    parts = prompt.messages if kind == "message" else prompt.documents
    if not parts:
        way_out = "give messages as prompt" if kind == "message" else "give documents by context=[…]"
        raise WhyformerError(f"sources={kind!r}: the prompt has no {kind}s; {way_out}, or choose sentences.")
    return [(part.start, part.end) for part in parts]


def _own_sources(prompt: Prompt, sources: Iterable[Any]) -> tuple[Source, ...]:
    places = sorted(check_range(place, prompt.text, "source", "prompt") for place in sources)
    if not places:
        raise WhyformerError("sources=[] selects no part of the prompt: give (start, end) of each, or a kind.")
    for first, second in pairwise(places):
        if second[0] < first[1]:
            raise WhyformerError(f"The sources {first} and {second} overlap: a character belongs to one source.")
    own = _sources_at(prompt, "span", places, tokens_on(places, prompt.tokens, prompt.text))
    empty = next((source for source in own if prompt.tokens and not source.tokens), None)
    if empty is not None:
        where = (empty.start, empty.end)
        raise WhyformerError(f"The source {where}, {empty.text!r:.40}, contains no whole token: widen it.")
    return own


def check_range(place: Any, text: str, noun: str, owner: str) -> CharRange:
    """Validate a caller's (start, end)."""
    is_pair = isinstance(place, (tuple, list)) and len(place) == 2 and all(type(end) is int for end in place)
    if not is_pair:
        raise WhyformerError(f"A {noun} is (start, end) in characters of the {owner}, not {place!r:.40}.")
    start, end = place
    if not 0 <= start < end <= len(text):
        raise WhyformerError(f"The {noun} {(start, end)} is not in the {owner}, which has {len(text)} characters.")
    return start, end


def _sources_at(
    prompt: Prompt, kind: str, places: Sequence[CharRange], tokens: Sequence[tuple[int, ...]]
) -> tuple[Source, ...]:
    return tuple(
        Source(kind, prompt.name_at(start), start, end, prompt.text[start:end], numbers)
        for (start, end), numbers in zip(places, tokens, strict=True)
    )

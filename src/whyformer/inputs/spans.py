"""Spans of a response to explain: all of it, its sentences, words or tokens, or custom ranges and quotations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from whyformer.errors import WhyformerError
from whyformer.inputs.prompt_tokens import TokenLike, tokens_on
from whyformer.inputs.sentences import CharRange, sentence_ranges
from whyformer.inputs.sources import check_range
from whyformer.inputs.words import word_ranges

SpanKind = Literal["response", "sentence", "word", "token"]
SpanSelection = str | Sequence[CharRange | str] | None  # a SpanKind, a quotation, or several ranges and quotations

_SPLITTERS: dict[str, Callable[[str], list[CharRange]]] = {"sentence": sentence_ranges, "word": word_ranges}


@dataclass(frozen=True)
class Span:
    """A part of a response to explain.

    Attributes:
        start: Its first character in the response's text.
        end: The end of its range, exclusive.
        text: Its characters.
        tokens: The indices of its tokens in the response.
    """

    start: int
    end: int
    text: str
    tokens: tuple[int, ...]


def spans_of(text: str, tokens: Sequence[TokenLike], units: SpanSelection = None) -> tuple[Span, ...]:
    """Split a response into spans: a kind, a quotation, or a list of quotations and ranges (start, end).

    The default is sentences, or the whole response if there is only one. Special tokens belong to no span.
    """
    if all(token.is_special for token in tokens):
        raise WhyformerError(f"The response {text!r:.40} has only special tokens: there is nothing to explain.")
    if units is None:
        sentences = spans_of(text, tokens, "sentence")
        return sentences if len(sentences) > 1 else spans_of(text, tokens, "response")
    if units == "response":
        numbers = tuple(number for number, token in enumerate(tokens) if not token.is_special)
        return (Span(0, len(text), text, numbers),)
    if units == "token":
        return tuple(
            Span(token.start, token.end, text[token.start : token.end], (number,))
            for number, token in enumerate(tokens)
            if not token.is_special
        )
    if isinstance(units, str) and units in _SPLITTERS:
        places = _SPLITTERS[units](text)
        by_place = zip(places, tokens_on(places, tokens, text), strict=True)
        return tuple(Span(start, end, text[start:end], numbers) for (start, end), numbers in by_place if numbers)
    return tuple(_own_spans(text, tokens, [units] if isinstance(units, str) else units))


def _own_spans(text: str, tokens: Sequence[TokenLike], units: Iterable[Any]) -> Iterator[Span]:
    places = [place for unit in units for place in _own_places(text, unit)]
    if not places:
        raise WhyformerError("units=[] selects no part of the response: quote some, or give (start, end) of each.")
    for start, end in places:
        (numbers,) = tokens_on([(start, end)], tokens, text)
        if not numbers:
            raise WhyformerError(
                f"The span {(start, end)}, {text[start:end]!r:.40}, contains no token of the response."
            )
        yield Span(start, end, text[start:end], numbers)


def _own_places(text: str, unit: Any) -> list[CharRange]:
    """All occurrences of a quotation; or the range itself."""
    if not isinstance(unit, str):
        return [check_range(unit, text, "span", "response")]
    places = [match.span() for match in re.finditer(re.escape(unit), text)] if unit.strip() else []
    if not places:
        raise WhyformerError(
            f"{unit!r:.60} is not in the response. The closest match is {_nearest_words(unit, text)!r}."
        )
    return places


def _nearest_words(quotation: str, text: str) -> str:
    """The words of a text that are most similar to a quotation, about as many as it has."""
    words, count = word_ranges(text), max(1, len(word_ranges(quotation)))
    windows = [
        text[words[first][0] : words[last - 1][1]]
        for size in {max(1, count - 1), count, count + 1}
        for first in range(max(1, len(words) - size + 1))
        if (last := min(len(words), first + size)) > first
    ]
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(quotation.casefold())

    def likeness(window: str) -> float:
        matcher.set_seq1(window.casefold())
        return matcher.ratio()

    return max(windows, key=likeness, default=text)

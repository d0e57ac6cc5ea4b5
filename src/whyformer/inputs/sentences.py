"""The sentences and paragraphs of a text, by Unicode-aware rules that need no download."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sentencex import segment  # type: ignore[import-untyped]

CharRange = tuple[int, int]

# Rules for abbreviations; what ends a sentence is known of all scripts whatever the language.
LANGUAGE = "en"
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")


def sentence_ranges(text: str) -> list[CharRange]:
    """Where the sentences of a text are, without the white space around them."""
    return list(_stripped(text, _lengths_as_places(map(len, segment(LANGUAGE, text)))))


def paragraph_ranges(text: str) -> list[CharRange]:
    """Where the paragraphs of a text are: what stands between blank lines."""
    breaks = [match.span() for match in _BLANK_LINE.finditer(text)]
    starts, ends = [0, *(end for _, end in breaks)], [*(start for start, _ in breaks), len(text)]
    return list(_stripped(text, zip(starts, ends, strict=True)))


def _lengths_as_places(lengths: Iterable[int]) -> Iterator[CharRange]:
    start = 0
    for length in lengths:
        yield start, start + length
        start += length


def _stripped(text: str, places: Iterable[CharRange]) -> Iterator[CharRange]:
    """The places without white space at their ends; those of white space alone are left out."""
    for start, end in places:
        part = text[start:end]
        if part.strip():
            yield start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())

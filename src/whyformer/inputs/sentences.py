"""Split a text into sentences and paragraphs, by Unicode-aware rules that need no download."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sentencex import segment  # type: ignore[import-untyped]

CharRange = tuple[int, int]

# Selects the rules for abbreviations; sentence ends are recognised in all scripts.
LANGUAGE = "en"
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")


def sentence_ranges(text: str) -> list[CharRange]:
    """Character ranges of the sentences, without surrounding white space."""
    return list(_stripped(text, _lengths_as_places(map(len, segment(LANGUAGE, text)))))


def paragraph_ranges(text: str) -> list[CharRange]:
    """Character ranges of the paragraphs, which blank lines separate."""
    breaks = [match.span() for match in _BLANK_LINE.finditer(text)]
    starts, ends = [0, *(end for _, end in breaks)], [*(start for start, _ in breaks), len(text)]
    return list(_stripped(text, zip(starts, ends, strict=True)))


def _lengths_as_places(lengths: Iterable[int]) -> Iterator[CharRange]:
    start = 0
    for length in lengths:
        yield start, start + length
        start += length


def _stripped(text: str, places: Iterable[CharRange]) -> Iterator[CharRange]:
    """Strip white space from the ends of ranges, and drop blank ones."""
    for start, end in places:
        part = text[start:end]
        if part.strip():
            yield start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())

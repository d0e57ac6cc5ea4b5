"""Citations in a response: [1], [doc-3], (source: name), a pattern, or a mapping from markers to names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from whyformer.errors import WhyformerError
from whyformer.inputs.sentences import CharRange

Citations = str | Mapping[str, str | Sequence[str]] | None
MARKERS = (r"\[([^\[\]\n]{1,80})\]", r"\((?:sources?|see|from)\s*:\s*([^()\n]{1,160})\)")
_NUMBERED = re.compile(r"\^?(?:doc(?:ument)?|source|passage)?[\s_-]*(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class CitationMarker:
    """A marker in a response, and the sources that it names.

    Attributes:
        start: Its first character in the response.
        end: The end of its range, exclusive.
        text: Its characters.
        documents: The numbers of the sources, from 0; None for a name that no source has.
    """

    start: int
    end: int
    text: str
    documents: tuple[int | None, ...]


def citation_markers(text: str, names: Sequence[str], citations: Citations = None) -> tuple[CitationMarker, ...]:
    """Find the citations of a response among sources of these names.

    Args:
        text: The response.
        names: The names of the sources, in order; "[2]" means the second, unless one is named "2".
        citations: A regular expression whose group is a name or number, or a mapping from markers, as they occur in the
            response, to names. By default [1], [doc-3] and (source: name).

    Returns:
        The markers in the order of the text. Brackets that name no source and do not look like a number are no
        citations.

    Raises:
        WhyformerError: If the pattern is not a regular expression with a group, or the mapping names no source.

    Example:
        >>> from whyformer.inputs.citations import citation_markers
        >>> [one.documents for one in citation_markers("It rained [1] all day [b, 7].", ["a", "b"])]
        [(0,), (1, None)]
    """
    if isinstance(citations, Mapping):
        markers = list(_mapped(text, names, citations))
    else:
        patterns = MARKERS if citations is None else (_checked_pattern(citations),)
        markers = [marker for pattern in patterns for marker in _matches(text, names, pattern, citations is not None)]
    return tuple(sorted(markers, key=lambda marker: marker.start))


def without_markers(tokens: Sequence[CharRange], markers: Sequence[CitationMarker]) -> list[int]:
    """The numbers of the tokens that are not part of a marker."""
    return [
        number
        for number, (start, end) in enumerate(tokens)
        if not any(start < marker.end and end > marker.start for marker in markers)
    ]


def _matches(text: str, names: Sequence[str], pattern: str, is_own: bool) -> Iterator[CitationMarker]:
    for match in re.finditer(pattern, text):
        parts = [part.strip() for part in re.split(r"[,;]", match.group(1)) if part.strip()]
        whole = _number(match.group(1).strip(), names)
        numbers = (whole,) if whole is not None else tuple(_number(part, names) for part in parts)
        looks_like = is_own or any(number is not None for number in numbers) or all(map(_NUMBERED.fullmatch, parts))
        if parts and looks_like:
            yield CitationMarker(match.start(), match.end(), match.group(), numbers)


def _mapped(text: str, names: Sequence[str], citations: Mapping[str, str | Sequence[str]]) -> Iterator[CitationMarker]:
    for marker, value in citations.items():
        wanted = [value] if isinstance(value, str) else list(value)
        numbers = [_number(str(name), names) for name in wanted]
        if None in numbers or not marker:
            raise WhyformerError(
                f"citations: {marker!r:.40} cites {wanted!r:.60}, and the sources are {', '.join(names)!r:.120}."
            )
        for match in re.finditer(re.escape(marker), text):
            yield CitationMarker(match.start(), match.end(), marker, tuple(numbers))


def _number(name: str, names: Sequence[str]) -> int | None:
    """The number of the source of a name, or of a number from 1."""
    known = {one.casefold(): number for number, one in reversed(list(enumerate(names)))}
    if name.casefold() in known:
        return known[name.casefold()]
    match = _NUMBERED.fullmatch(name)
    return int(match.group(1)) - 1 if match and 1 <= int(match.group(1)) <= len(names) else None


def _checked_pattern(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise WhyformerError(f"citations={pattern!r:.60} is not a regular expression: {error}.") from error
    if groups != 1:
        raise WhyformerError(f"citations={pattern!r:.60} has {groups} groups: one is needed, around the name.")
    return pattern

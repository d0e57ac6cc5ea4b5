"""String helpers of the renderers: scored spans, numbers, escaped control characters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from whyformer.inputs.layouts import Boxes, WordPieces
from whyformer.inputs.words import tokens_by_word
from whyformer.render.colour import Scale, score_scale
from whyformer.render.heatmaps import leading_regions
from whyformer.render.scatter import layout_scale

if TYPE_CHECKING:
    from whyformer.results.explanation import Explanation
    from whyformer.results.part import Part
    from whyformer.results.response import Response

TextUnits = Literal["word", "token"]

# Control characters would take effect: an escape sequence drives a terminal, a bidi override reorders a page.
_READABLE: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"},
    127: "\u2421",
    **dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000)], "\ufffd"),
    **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd"),
}
# Replacements in a headline, where they would be invisible.
_VISIBLE = str.maketrans({"\n": "↵", "\t": "⇥"})
# How vocabularies spell a leading space or line break.
_MARKERS = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "\n", "ĉ": "\t"})
# A decoder is explained during generation.
_CAPTIONS = {"target": "target so far"}


class ScoredToken(NamedTuple):
    """A token's readable name and score."""

    name: str
    score: float


@dataclass(frozen=True)
class ScoredSpan:
    """Characters of a text and their tokens: none, one, or several."""

    text: str
    tokens: tuple[ScoredToken, ...] = ()

    @property
    def score(self) -> float | None:
        return math.fsum(token.score for token in self.tokens) if self.tokens else None


def fixed(value: float) -> str:
    """A figure with two digits after the point, and without a sign if these are 0."""
    return f"{round(value, 2) + 0.0:.2f}"


def strongest(scores: Iterable[float]) -> float:
    """The score furthest from 0, with its sign."""
    return max(scores, key=lambda score: (abs(score), score))


def part_scale(part: Part, units: TextUnits = "word") -> Scale:
    """The displayed range of a part's scores: of words for a text, otherwise of tokens."""
    if isinstance(part.layout, WordPieces):
        return score_scale(shown_scores(part, units))
    return layout_scale(part.layout, part.scores)


def shown_scores(part: Part, units: TextUnits = "word") -> np.ndarray:
    """The scores that are coloured: of words for a text, otherwise of tokens."""
    if not isinstance(part.layout, WordPieces):
        return part.scores
    shown = [span.score for segment in range(len(part.layout.texts)) for span in spans(part, segment, units)]
    hidden = [token.score for token in invisible_tokens(part)]
    return np.array([score for score in (*shown, *hidden) if score is not None])


def readable(text: str) -> str:
    """Replace control characters with symbols one for one, so that offsets remain valid."""
    return text.translate(_READABLE)


def visible(text: str) -> str:
    """Readable on one line, with visible leading spaces and line breaks: `␣great`, `↵`."""
    return re.sub(r"(?<![^ ]) | \Z", "␣", readable(text).translate(_VISIBLE))


def one_line(text: str) -> str:
    """Readable on one line, with white space collapsed: for sentences and names."""
    return " ".join(readable(text).split())


def captioned_parts(explanation: Explanation) -> list[tuple[str, Part]]:
    """Captions and parts in reading order: pictures first, the model's output last; no caption for a single part."""
    named = sorted(
        explanation.parts.items(), key=lambda item: (isinstance(item[1].layout, WordPieces), item[0] == "target")
    )
    return [(visible(_CAPTIONS.get(name, name)) if len(named) > 1 else "", part) for name, part in named]


def number(value: float) -> str:
    """A score in three significant digits."""
    return f"{value:.3g}"


def spans(part: Part, segment: int, units: TextUnits = "word") -> list[ScoredSpan]:
    """Split the text of a segment at words, or tokens."""
    text, position, pieces = readable(_word_pieces(part).texts[segment]), 0, list[ScoredSpan]()
    for start, end, tokens in _word_extents(part, segment) if units == "word" else _token_extents(part, segment):
        if position < start:
            pieces.append(ScoredSpan(text[position:start]))
        pieces.append(ScoredSpan(text[start:end], tokens))
        position = end
    return [*pieces, ScoredSpan(text[position:])] if position < len(text) else pieces


def invisible_tokens(part: Part) -> list[ScoredToken]:
    """Tokens without visible characters (line breaks, markers), whose scores a coloured text cannot show."""
    layout = _word_pieces(part)
    tokens = zip(token_names(part), part.scores.tolist(), strict=True)
    return [ScoredToken(*token) for index, token in enumerate(tokens) if not _extent(layout, index)]


def token_names(part: Part) -> list[str]:
    """Standalone name of each token: its characters, its spelling in the vocabulary, or its position."""
    layout = part.layout
    return (
        [_token_name(layout, index) for index in range(layout.size)]
        if isinstance(layout, WordPieces)
        else [*layout.tokens]
    )


def region_ranking(part: Part) -> str:
    """The scores of the numbered regions: `① 0.42 · ② 0.11`."""
    if not isinstance(part.layout, Boxes):
        return ""
    regions = enumerate(leading_regions(part))
    return " · ".join(f"{'①②③'[rank]} {number(part.scores[region])}" for rank, region in regions)


def scale_texts(scale: Scale) -> tuple[str, ...]:
    """Labels of a colour bar: where colours are full, and their meaning if scores have both signs."""
    if not scale.high:
        return ("all scores are 0",)
    if not scale.is_diverging:
        return "0", f"score {number(scale.high)}"
    return f"{number(scale.low)} against", "0", f"{number(scale.high)} for"


def option_lines(explanation: Explanation | Response) -> list[str]:
    """The method's options as `name = value`."""
    return [readable(f"{name} = {_plain(value)}") for name, value in explanation.options.items()]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _word_pieces(part: Part) -> WordPieces:
    if not isinstance(part.layout, WordPieces):
        raise ValueError(f"Only word pieces can be shown as text; this part is {part.layout.summary}.")
    return part.layout


def _extent(layout: WordPieces, token: int) -> tuple[int, int] | None:
    """The characters of a token without surrounding space, which byte-level vocabularies include."""
    start, end = layout.offsets[token]
    characters = layout.texts[layout.segments[token]][start:end]
    if not characters.strip():
        return None
    return start + len(characters) - len(characters.lstrip()), end - len(characters) + len(characters.rstrip())


def _token_name(layout: WordPieces, token: int) -> str:
    start, end = _extent(layout, token) or layout.offsets[token]
    characters = layout.texts[layout.segments[token]][start:end]
    return visible(characters or layout.tokens[token].removeprefix("##").translate(_MARKERS))


def _scored_tokens(part: Part, tokens: Iterable[int]) -> tuple[ScoredToken, ...]:
    layout = _word_pieces(part)
    return tuple(ScoredToken(_token_name(layout, token), float(part.scores[token])) for token in tokens)


def _word_extents(part: Part, segment: int) -> Iterator[tuple[int, int, tuple[ScoredToken, ...]]]:
    for (home, start, end), tokens in tokens_by_word(_word_pieces(part)).items():
        if home == segment:
            yield start, end, _scored_tokens(part, tokens)


def _token_extents(part: Part, segment: int) -> list[tuple[int, int, tuple[ScoredToken, ...]]]:
    """Extents with their tokens, in order; overlapping ones (bytes of one emoji) are merged."""
    layout = _word_pieces(part)
    places = [(_extent(layout, index), index) for index, home in enumerate(layout.segments) if home == segment]
    extents: list[tuple[int, int, tuple[ScoredToken, ...]]] = []
    for (start, end), index in sorted((extent, index) for extent, index in places if extent):
        tokens = _scored_tokens(part, [index])
        if extents and start < extents[-1][1]:
            start, before, earlier = extents.pop()
            end, tokens = max(end, before), earlier + tokens
        extents.append((start, end, tokens))
    return extents

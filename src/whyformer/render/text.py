"""What every renderer needs to know about strings: spans with scores, numbers, characters that must not act."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from whyformer.inputs.layouts import Boxes, WordPieces
from whyformer.render.heat import numbered
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part, Word

Piece = tuple[str, float]

# Controls would act instead of being read: an escape sequence drives a terminal, a bidi override reorders a page.
_READABLE: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"},
    127: "\u2421",
    **dict.fromkeys([*range(0x80, 0xA0), *range(0xD800, 0xE000)], "\ufffd"),
    **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd"),
}
# In a headline, where they would vanish.
_VISIBLE = str.maketrans({"\n": "↵", "\t": "⇥"})
# A decoder is explained while it writes.
_CAPTIONS = {"target": "target so far"}


@dataclass(frozen=True)
class Span:
    """Characters of a text and the word pieces that lie on them: none, one, or several that share a character."""

    text: str
    pieces: tuple[Piece, ...] = ()

    @property
    def score(self) -> float | None:
        return max((score for _, score in self.pieces), key=abs, default=None)


def readable(text: str) -> str:
    """The text with control characters as symbols, one for one, so that offsets stay true."""
    return text.translate(_READABLE)


def visible(text: str) -> str:
    """Readable in one line, with the spaces that would be missed: `␣great`, `↵`."""
    return re.sub(r"(?<![^ ]) | \Z", "␣", readable(text).translate(_VISIBLE))


def captioned(explanation: Explanation) -> list[tuple[str, Part]]:
    """The parts as they are read, pictures first and what the model wrote last; captions where there are several."""
    named = sorted(
        explanation.parts.items(), key=lambda item: (isinstance(item[1].layout, WordPieces), item[0] == "target")
    )
    return [(visible(_CAPTIONS.get(name, name)) if len(named) > 1 else "", part) for name, part in named]


def number(value: float) -> str:
    """A score in three significant digits."""
    return f"{value:.3g}"


def spans(part: Part, segment: int) -> list[Span]:
    """The whole text of a segment, in order, cut where word pieces begin and end."""
    layout = _word_pieces(part)
    text, found, position = readable(layout.texts[segment]), list[Span](), 0
    for start, end, pieces in _covered(part, segment):
        if position < start:
            found.append(Span(text[position:start]))
        found.append(Span(text[start:end], pieces))
        position = end
    return [*found, Span(text[position:])] if position < len(text) else found


def strongest_words(part: Part) -> list[Word]:
    """Words with their piece furthest from 0: the signed maximum would hide `bad` behind the comma of `bad,`."""
    highest, lowest = part.words(), replace(part, scores=-part.scores).words()
    return [
        word if word.score >= opposite.score else replace(word, score=-opposite.score)
        for word, opposite in zip(highest, lowest, strict=True)
    ]


def unseen(part: Part) -> list[Piece]:
    """Word pieces on no visible character (line breaks, markers), whose scores a coloured text cannot show."""
    layout = _word_pieces(part)
    scored = zip(layout.tokens, part.scores.tolist(), strict=True)
    return [(readable(token), score) for index, (token, score) in enumerate(scored) if not _extent(layout, index)]


def piece_names(part: Part) -> list[str]:
    """What each word piece is called where it stands alone: its characters, or the token where it has none."""
    layout = _word_pieces(part)
    extents = (_extent(layout, index) for index in range(layout.size))
    named = zip(extents, layout.segments, layout.tokens, strict=True)
    return [visible(layout.texts[home][slice(*extent)] if extent else token) for extent, home, token in named]


def ranking(part: Part) -> str:
    """The scores of the regions that are numbered on the picture: `① 0.42 · ② 0.11`."""
    if not isinstance(part.layout, Boxes):
        return ""
    return " · ".join(f"{'①②③'[rank]} {number(part.scores[token])}" for rank, token in enumerate(numbered(part)))


def option_lines(explanation: Explanation) -> list[str]:
    """The method's options as `name = value`."""
    return [readable(f"{name} = {_plain(value)}") for name, value in explanation.options.items()]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _word_pieces(part: Part) -> WordPieces:
    if not isinstance(part.layout, WordPieces):
        raise ValueError(f"Only word pieces can be shown as text; this part is {part.layout.summary}.")
    return part.layout


def _extent(layout: WordPieces, token: int) -> tuple[int, int] | None:
    """The characters of a token without the space around them, which byte-level vocabularies count in."""
    start, end = layout.offsets[token]
    characters = layout.texts[layout.segments[token]][start:end]
    if not characters.strip():
        return None
    return start + len(characters) - len(characters.lstrip()), end - len(characters) + len(characters.rstrip())


def _covered(part: Part, segment: int) -> list[tuple[int, int, tuple[Piece, ...]]]:
    """Extents with their pieces, in order; extents that overlap (bytes of one emoji) become one."""
    layout = _word_pieces(part)
    tokens = [(_extent(layout, index), index) for index, home in enumerate(layout.segments) if home == segment]
    covered: list[tuple[int, int, tuple[Piece, ...]]] = []
    for (start, end), index in sorted((extent, index) for extent, index in tokens if extent):
        pieces: tuple[Piece, ...] = ((readable(layout.tokens[index]), float(part.scores[index])),)
        if covered and start < covered[-1][1]:
            start, before, earlier = covered.pop()
            end, pieces = max(end, before), earlier + pieces
        covered.append((start, end, pieces))
    return covered

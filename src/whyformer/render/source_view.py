"""View of a response and its sources for the templates: both as text, and a table of colour levels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from whyformer.inputs.words import content_words
from whyformer.render.colour import STEPS
from whyformer.render.coverage import percent
from whyformer.render.layout_kinds import kind_of
from whyformer.render.scored_part import ScoredPartView
from whyformer.render.text_spans import one_line, readable, visible
from whyformer.render.verdict_view import UNSUPPORTED, VerdictView

LONGEST_PLACE = 60  # characters of a row or a source in a title
RANKED = 8  # sources in the list of a row
SURPRISE, WEIGHT = "that the model found less likely", "that weighs more in the explained score"  # of underlined tokens
WRITTEN = "written before"  # the name of a source that is a part of the response


class Entry(NamedTuple):
    """A source of a row: its colour level, negative if it is against the row, its share in percent, and its effect.

    `figure` is the effect in nats where that is known; empty otherwise.
    """

    source: int
    level: int
    share: int
    figure: str = ""


@dataclass(frozen=True)
class SourceExtent:
    """The character range of a source or a row, and its index."""

    start: int
    end: int
    number: int

    def trimmed(self, text: str) -> SourceExtent:
        """Strip surrounding white space, unless the range is blank."""
        characters = text[self.start : self.end]
        if not characters.strip():
            return self
        start = self.end - len(characters.lstrip())
        return SourceExtent(start, self.start + len(characters.rstrip()), self.number)


@dataclass(frozen=True)
class PieceView:
    """Characters of the prompt, with an optional leading name, and the sources they belong to.

    Several tokens may share a character. `label` replaces the characters in lists, if given.
    """

    text: str
    sources: tuple[int, ...] = ()
    label: str = ""
    name: str = ""


@dataclass(frozen=True)
class BlockView:
    """A document, a message or another part of the prompt; without a title if its text starts with its name.

    A part that is not a text has one piece without characters, and is drawn.
    """

    name: str
    title: str
    pieces: tuple[PieceView, ...]
    part: ScoredPartView | None = None


@dataclass(frozen=True)
class TokenView:
    """Characters of a token of the response, its tooltip, and the strength of its underline from 0 to 1."""

    text: str
    title: str = ""
    underline: float = 0.0


@dataclass(frozen=True)
class UnitView:
    """Characters of the response, their rows (shortest first), and their source for later rows."""

    tokens: tuple[TokenView, ...]
    rows: tuple[int, ...] = ()
    source: int | None = None

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)

    @property
    def label(self) -> str:
        """Label of blank characters in a list."""
        return "" if self.text.strip() else visible(self.text)


@dataclass(frozen=True)
class SourcesView:
    """A response, its prompt, and the sources of each row, strongest first; the last row is the sum of all."""

    headline: str
    method: str
    model: str
    units: tuple[UnitView, ...]
    blocks: tuple[BlockView, ...]
    rows: tuple[tuple[Entry, ...], ...]
    facts: tuple[str, ...]
    is_diverging: bool
    options: tuple[str, ...]
    notes: tuple[str, ...]
    underline: str = SURPRISE
    verdicts: tuple[VerdictView, ...] = ()
    summary: str = ""
    cost: str = ""
    full: str = ""  # the effect of a full colour; empty for colours relative to the strongest source
    question: str = ""  # the question, whose words are not an answer
    files: str = ""  # the names of the documents, in a line
    likely: tuple[str, ...] = ()  # the likely answers at the word that carries each row

    @cached_property
    def opening(self) -> int:
        """The row that is shown first: the first with a word of content that the question does not have."""
        rows = range(max(1, len(self.rows) - 1))
        own = [content_words(self.row_text(row)) for row in rows]
        new = [words - content_words(self.question) for words in own]
        return next((row for sets in (new, own) for row in rows if sets[row]), 0)

    @property
    def finding(self) -> str:
        """The page's title: how much of the score of the first shown row is on its strongest source."""
        entries, answer = self.rows[self.opening], shortened(self.row_text(self.opening), LONGEST_PLACE)
        if len(self.verdicts) == 1:
            return f"“{answer}”: {self.verdicts[0].verdict}"
        if self.verdicts:
            kinds = {one.verdict for one in self.verdicts}
            count = len(self.verdicts)
            return f"All {count} parts {kinds.pop()}" if len(kinds) == 1 else f"{count} parts: {self.summary}"
        if self.is_diverging or not entries:
            return f"“{answer}”: what it comes from"
        first, *others = entries
        text = f"“{answer}”: {first.share} % of the score on {self._place(first)}"
        if others and self._is_question(first):  # which every answer depends on
            return f"{text}, {others[0].share} % on {self._place(others[0])}"
        return text

    def _place(self, entry: Entry) -> str:
        """The name and text of a source, for a title."""
        name, text = self.source_text(entry.source)
        if self._is_question(entry):
            return "the question"
        parts = [block.part for block in self.blocks if block.part is not None]
        whole = kind_of(parts[0].parts[0].layout).whole if [part.source for part in parts] == [entry.source] else None
        return whole or shortened(f"{name}: {text}" if name else text, LONGEST_PLACE)

    def _is_question(self, entry: Entry) -> bool:
        return self.source_text(entry.source)[1].strip() == self.question.strip()

    @property
    def has_support(self) -> bool:
        """Whether a source supports a row; True for a response without verdicts."""
        return not self.verdicts or any(one.verdict == "from sources" for one in self.verdicts)

    @property
    def unsupported(self) -> str:
        """The line of a page on which nothing is coloured."""
        return UNSUPPORTED

    def shade(self, level: int) -> str:
        """The class of a level; empty for 0, the page's own background."""
        return f"{'against' if level < 0 else 'for'}-{abs(level)}" if level else ""

    @property
    def shades(self) -> list[str]:
        """All CSS classes that the page may use."""
        levels = {self.shade(entry.level) for row in self.rows for entry in row} - {""}
        bars = {f"{ground}-{'both' if self.is_diverging else 'rising'}" for ground in self.grounds}
        return sorted(levels | bars)

    @property
    def grounds(self) -> list[str]:
        """Backgrounds of the colours: the page, and pictures if there are any."""
        return ["page", *["photo"] * any(block.part is not None and block.part.original for block in self.blocks)]

    @cached_property
    def levels(self) -> tuple[dict[int, int], ...]:
        """Levels by source, for each row."""
        return tuple({entry.source: entry.level for entry in row} for row in self.rows)

    def level(self, row: int, sources: Iterable[int]) -> int:
        """The level furthest from 0 that these sources have in a row."""
        return max((self.levels[row].get(source, 0) for source in sources), key=abs, default=0)

    @property
    def table(self) -> dict[str, object]:
        """Data for the page's script."""
        rows = [[entry if entry.figure else entry[:3] for entry in row] for row in self.rows]
        return {"rows": rows, "facts": self.facts, "likely": self.likely}

    def source_text(self, source: int) -> tuple[str, str]:
        """The name of the block of a source, and its text without that name."""
        places = [(block, piece) for block in self.blocks for piece in block.pieces if source in piece.sources]
        if not places:
            return WRITTEN, next(unit.text for unit in self.units if unit.source == source)
        return places[0][0].name, "".join(piece.label or piece.text for _, piece in places)

    def row_text(self, row: int) -> str:
        """The characters of a row; for the total row, the whole response."""
        return "".join(unit.label or unit.text for unit in self.units if row in unit.rows or self.is_total(row))

    def is_total(self, row: int) -> bool:
        """Whether the row is the sum of all others."""
        return len(self.rows) > 1 and row == len(self.rows) - 1


def likely_answers(answers: Mapping[str, float], *, at: str = "") -> str:
    """The likely answers in a line, most likely first: `Likely answers at “Rome”: Rome 98 % · Oslo 1 %`."""
    if not answers:
        return ""
    ordered = sorted(answers.items(), key=lambda item: -item[1])
    shown = " · ".join(f"{visible(name.strip() or name)} {percent(share)}" for name, share in ordered)
    place = f" at “{visible(at.strip() or at)}”" if at else ""
    return f"Likely answers{place}: {shown}"


def shortened(text: str, most: int) -> str:
    """A text on one line, cut if it is longer than this."""
    line = one_line(text)
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def with_total(scores: np.ndarray) -> np.ndarray:
    """The rows, followed by their sum if there are several."""
    return np.concatenate([scores, scores.sum(axis=0, keepdims=True)]) if len(scores) > 1 else scores


def ranked_rows(scores: np.ndarray, full: float | None = None) -> tuple[tuple[Entry, ...], ...]:
    """The visible sources of each row, strongest first.

    Each row has its own colour range, unless scores are effects in nats and `full` is the effect of a full colour.
    """
    return tuple(tuple(_entries(row, full)) for row in np.asarray(scores, np.float64))


def _entries(row: np.ndarray, full: float | None) -> Iterator[Entry]:
    sizes = np.abs(row)
    if not sizes.any():
        return
    levels = np.rint((row / (full or sizes.max())).clip(-1, 1) * (STEPS - 1)).astype(int)
    percent = np.rint(100 * sizes / sizes.sum()).astype(int)
    for source in np.argsort(-sizes, kind="stable").tolist():
        if levels[source]:
            figure = f"{row[source]:+.1f} nats" if full else ""
            yield Entry(source, int(levels[source]), int(percent[source]), figure)


def cut_text(text: str, extents: Iterable[SourceExtent], start: int, end: int) -> Iterator[PieceView]:
    """Split characters from start to end at sources, which exclude surrounding white space."""
    waiting = [extent.trimmed(text) for extent in extents]
    waiting.sort(key=lambda extent: (extent.start, extent.number), reverse=True)
    edges = {edge for extent in waiting for edge in (extent.start, extent.end) if start < edge < end}
    current: list[SourceExtent] = []
    for first, last in pairwise(sorted({start, end, *edges})):
        while waiting and waiting[-1].start <= first:
            current.append(waiting.pop())
        current = [extent for extent in current if extent.end > first]
        sources, characters = tuple(extent.number for extent in current), text[first:last]
        label = "" if characters.strip() or not sources else visible(characters)
        yield PieceView(readable(characters), sources, label)


def part_block(part: ScoredPartView) -> BlockView:
    """A part that is not a text, as a block."""
    return BlockView("", part.name, (PieceView("", (part.source,), label=part.name),), part)


def unseen_block(names: Sequence[tuple[str, int]]) -> list[BlockView]:
    """A block of the sources without visible characters."""
    if not names:
        return []
    spaced = [piece for name, source in names for piece in (PieceView(name, (source,)), PieceView(" "))]
    return [BlockView("", "not visible in the text", tuple(spaced))]

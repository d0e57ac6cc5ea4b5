"""A response and its sources as the templates show them: both as text, and between them a table of levels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from whyformer.render.colour import STEPS
from whyformer.render.text import option_lines, readable, visible

if TYPE_CHECKING:
    from whyformer.results.response import Response

RANKED = 8  # sources in the list of a row
LEAST_SHARE = 0.005  # of a sink that is named
WRITTEN = "written before"  # the name of a source that is a part of the response


class Entry(NamedTuple):
    """A source of a row: its level of colour, negative where it speaks against the row, and its share in percent."""

    source: int
    level: int
    share: int


@dataclass(frozen=True)
class Extent:
    """The characters of a source, and its number."""

    start: int
    end: int
    source: int

    def trimmed(self, text: str) -> Extent:
        """Without the space around its characters; one of space alone stays as it is."""
        characters = text[self.start : self.end]
        if not characters.strip():
            return self
        start = self.end - len(characters.lstrip())
        return Extent(start, self.start + len(characters.rstrip()), self.source)


@dataclass(frozen=True)
class PieceView:
    """Characters of the prompt, after a name that they may begin with, and the sources that they belong to.

    Tokens of one character are several. `label` is what the characters are called in a list, where that is another.
    """

    text: str
    sources: tuple[int, ...] = ()
    label: str = ""
    name: str = ""


@dataclass(frozen=True)
class BlockView:
    """A document, a message or another part of the prompt; no title where its text begins with its name."""

    name: str
    title: str
    pieces: tuple[PieceView, ...]


@dataclass(frozen=True)
class TokenView:
    """Characters of a token of the response, what is known of it, and how unlikely the model found it, 0 to 1."""

    text: str
    title: str = ""
    doubt: float = 0.0


@dataclass(frozen=True)
class UnitView:
    """Characters of the response, the rows that they belong to (the shortest first), and the source they are later."""

    tokens: tuple[TokenView, ...]
    rows: tuple[int, ...] = ()
    source: int | None = None


@dataclass(frozen=True)
class SourcesView:
    """A response, its prompt, and for each row its sources, the strongest first; the last row is all of them."""

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

    @property
    def rising(self) -> str:
        """The kind of colour of what speaks for a row."""
        return "for" if self.is_diverging else "only"

    def shade(self, level: int) -> str:
        """The class of a level; none for 0, which looks like the page."""
        return f"{'against' if level < 0 else self.rising}-{abs(level)}" if level else ""

    @property
    def shades(self) -> list[str]:
        """The CSS classes that the page needs, whatever is pointed at."""
        levels = {self.shade(entry.level) for row in self.rows for entry in row} - {""}
        return sorted({*levels, "page-both" if self.is_diverging else "page-rising"})

    @cached_property
    def levels(self) -> tuple[dict[int, int], ...]:
        """For each row the levels by source."""
        return tuple({entry.source: entry.level for entry in row} for row in self.rows)

    def level(self, row: int, sources: Iterable[int]) -> int:
        """The level furthest from 0 that these sources have in a row."""
        return max((self.levels[row].get(source, 0) for source in sources), key=abs, default=0)

    @property
    def table(self) -> dict[str, object]:
        """What the script of the page reads."""
        return {"rising": self.rising, "rows": self.rows, "facts": self.facts}

    def source_text(self, source: int) -> tuple[str, str]:
        """The name of the block that a source begins in, and its text, without that name where it begins with it."""
        places = [(block, piece) for block in self.blocks for piece in block.pieces if source in piece.sources]
        if not places:
            return WRITTEN, next(_unit_text(unit) for unit in self.units if unit.source == source)
        return places[0][0].name, "".join(piece.label or piece.text for _, piece in places)

    def row_text(self, row: int) -> str:
        """The characters of a row; of the last, where there are several, the whole response."""
        return "".join(_unit_text(unit) for unit in self.units if row in unit.rows or self.is_total(row))

    def is_total(self, row: int) -> bool:
        """Whether the row is the sum of all others."""
        return len(self.rows) > 1 and row == len(self.rows) - 1


def response_view(response: Response) -> SourcesView:
    """The response as the templates show it."""
    scores = with_total(response.scores)
    rows = range(len(response.rows))
    facts = [_facts(response, [number]) for number in rows] + [_facts(response, rows)] * (len(rows) > 1)
    return SourcesView(
        headline=response.headline,
        method=response.manner,
        model=readable(response.model),
        units=tuple(_units(response)),
        blocks=tuple(_prompt_blocks(response)),
        rows=ranked_rows(scores),
        facts=tuple(facts),
        is_diverging=bool((response.scores < 0).any()),
        options=(*option_lines(response), *_settings(response)),
        notes=tuple(readable(note) for note in response.notes),
    )


def with_total(scores: np.ndarray) -> np.ndarray:
    """The rows, and where there are several their sum."""
    return np.concatenate([scores, scores.sum(axis=0, keepdims=True)]) if len(scores) > 1 else scores


def ranked_rows(scores: np.ndarray) -> tuple[tuple[Entry, ...], ...]:
    """For each row its sources that can be seen, the strongest first, each row in its own range of colours."""
    return tuple(tuple(_entries(row)) for row in np.asarray(scores, np.float64))


def _entries(row: np.ndarray) -> Iterator[Entry]:
    sizes = np.abs(row)
    if not sizes.any():
        return
    levels = np.rint(row / sizes.max() * (STEPS - 1)).astype(int)
    percent = np.rint(100 * sizes / sizes.sum()).astype(int)
    for source in np.argsort(-sizes, kind="stable").tolist():
        if levels[source]:
            yield Entry(source, int(levels[source]), int(percent[source]))


def cut_text(text: str, extents: Iterable[Extent], start: int, end: int) -> Iterator[PieceView]:
    """The characters from start to end in order, cut where sources begin and end; the space around one is not its."""
    waiting = [extent.trimmed(text) for extent in extents]
    waiting.sort(key=lambda extent: (extent.start, extent.source), reverse=True)
    edges = {edge for extent in waiting for edge in (extent.start, extent.end) if start < edge < end}
    current: list[Extent] = []
    for first, last in pairwise(sorted({start, end, *edges})):
        while waiting and waiting[-1].start <= first:
            current.append(waiting.pop())
        current = [extent for extent in current if extent.end > first]
        sources, characters = tuple(extent.source for extent in current), text[first:last]
        label = "" if characters.strip() or not sources else visible(characters)
        yield PieceView(readable(characters), sources, label)


def unseen_block(names: Sequence[tuple[str, int]]) -> list[BlockView]:
    """Sources on no visible character of their own, as a block of their own."""
    if not names:
        return []
    spaced = [piece for name, source in names for piece in (PieceView(name, (source,)), PieceView(" "))]
    return [BlockView("", "not visible in the text", tuple(spaced))]


def token_title(text: str, log_probability: float, entropy: float, rank: int) -> str:
    """What is known of a token of the response."""
    probability = f"probability {np.exp(log_probability):.2g}, log-probability {log_probability:.2f}"
    return f"{visible(text)}  {probability}, entropy {entropy:.2f}, rank {rank}"


def _prompt_blocks(response: Response) -> Iterator[BlockView]:
    """The parts of the prompt with their names; sources that have no visible character of their own come last."""
    text, seen = response.prompt.text, set[int]()
    extents = [Extent(one.start, one.end, number) for number, one in enumerate(response.sources)]
    for region in response.prompt.regions:
        shown = text[region.start : region.end]
        start, end = region.end - len(shown.lstrip()), region.start + len(shown.rstrip())
        pieces = list(cut_text(text, extents, start, end))
        seen.update(source for piece in pieces for source in piece.sources)
        has_name = bool(region.name) and text.startswith(f"{region.name}: ", start)
        pieces = list(_names_apart(pieces, len(region.name) + 1)) if has_name else pieces
        name = readable(region.name)
        yield BlockView(name, "" if has_name else name, tuple(pieces))
    unseen = [(visible(one.text), number) for number, one in enumerate(response.sources) if number not in seen]
    yield from unseen_block(unseen)


def _names_apart(pieces: Iterable[PieceView], length: int) -> Iterator[PieceView]:
    """The pieces with the first characters, which are a name, apart."""
    for piece in pieces:
        name, text = piece.text[: max(length, 0)], piece.text[max(length, 0) :]
        length -= len(piece.text)
        yield replace(piece, text=text, name=name, label=text.strip() or name) if name else piece


def _units(response: Response) -> Iterator[UnitView]:
    """The response cut where rows begin and end, and within those where tokens do."""
    text, rows = readable(response.text), response.rows
    edges = sorted({0, len(text), *(edge for row in rows for edge in (row.start, row.end))})
    shortest_first = sorted(range(len(rows)), key=lambda number: rows[number].end - rows[number].start)
    for start, end in pairwise(edges):
        if start == 0 and not text[:end].strip():
            continue  # the space between prompt and response
        own = tuple(number for number in shortest_first if rows[number].start <= start and end <= rows[number].end)
        yield UnitView(tuple(_tokens(response, text, start, end)), own)


def _tokens(response: Response, text: str, start: int, end: int) -> Iterator[TokenView]:
    tokens = [token for token in response.tokens if token.start < end and token.end > start]
    edges = sorted({start, end, *(edge for one in tokens for edge in (one.start, one.end) if start < edge < end)})
    for first, last in pairwise(edges):
        characters = text[first:last]
        own = [one for one in tokens if one.start <= first and last <= one.end]
        own = [one for one in own if characters.strip() or not one.text.strip()]  # the space before a word says nothing
        titles = [token_title(one.text, one.log_probability, one.entropy, one.rank) for one in own]
        doubt = max((1 - float(np.exp(one.log_probability)) for one in own), default=0.0)
        space = len(characters) - len(characters.lstrip()) if characters.strip() else 0
        yield from [TokenView(characters[:space])] * (space > 0)
        yield TokenView(characters[space:], " · ".join(titles), round(doubt, 2))


def _facts(response: Response, numbers: Sequence[int]) -> str:
    """How likely rows are, and how much of their scores falls where no source is: of several rows, at most."""
    tokens = dict.fromkeys(token for number in numbers for token in response.rows[number].tokens)
    figures, sinks = _figures(response, tokens), [response.sinks[number] for number in numbers if response.sinks]
    first = "the first token (left out)" if response.leaves_out_sinks else "the first token"
    places = {
        first: max((one.first_token for one in sinks), default=0),
        "other special tokens": max((one.special for one in sinks), default=0),
        "the response before it": max((one.earlier for one in sinks), default=0),
    }
    shares = ", ".join(f"{share:.0%} on {place}" for place, share in places.items() if share >= LEAST_SHARE)
    whose = "Of its scores" if len(numbers) == 1 else "Of the scores of a part up to"
    return (
        f"{figures} {whose} {shares.replace('on', 'are on', 1)}; shares are among the sources." if shares else figures
    )


def _figures(response: Response, numbers: Iterable[int]) -> str:
    tokens = [response.tokens[number] for number in numbers if not response.tokens[number].is_special]
    total = sum(token.log_probability for token in tokens)
    likeliest = sum(token.rank == 1 for token in tokens)
    count = f"{len(tokens)} token{'s' * (len(tokens) != 1)}"
    return f"Log-probability {total:.2f} for {count}, {likeliest} of them the model's first choice."


def _settings(response: Response) -> Iterator[str]:
    kinds = dict.fromkeys(source.kind for source in response.sources)
    yield f"sources = {', '.join(map(readable, kinds))}"
    yield f"aggregate = {response.aggregate}"
    yield f"sinks = {'leave_out' if response.leaves_out_sinks else 'keep'}"
    if response.seed is not None:
        yield f"seed = {response.seed}"


def _unit_text(unit: UnitView) -> str:
    return "".join(token.text for token in unit.tokens)

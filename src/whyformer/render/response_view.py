"""View of a response for the templates: its rows and the blocks of its prompt, split at sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from whyformer.render.scored_part import ScoredPartView, with_all_rows
from whyformer.render.source_view import (
    BlockView,
    PieceView,
    SourceExtent,
    SourcesView,
    TokenView,
    UnitView,
    cut_text,
    part_block,
    ranked_rows,
    unseen_block,
    with_total,
)
from whyformer.render.text_spans import option_lines, readable, visible

if TYPE_CHECKING:
    from whyformer.results.response import Response
    from whyformer.results.response_parts import ResponseToken

LEAST_SHARE = 0.005  # minimum share of a sink to mention it


def response_view(response: Response) -> SourcesView:
    """Build the view of a response."""
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


def token_title(text: str, log_probability: float, entropy: float, rank: int) -> str:
    """Tooltip of a response token."""
    probability = f"probability {np.exp(log_probability):.2g}, log-probability {log_probability:.2f}"
    return f"{visible(text)}  {probability}, entropy {entropy:.2f}, rank {rank}"


def _prompt_blocks(response: Response) -> Iterator[BlockView]:
    """The parts of the prompt with their names; sources without visible characters come last."""
    text, first = response.prompt.text, len(response.parts)
    seen = set(range(first))
    for number, (name, part) in enumerate(response.parts.items()):
        rows = with_all_rows(tuple(part.part(row) for row in range(len(response.rows))))
        yield part_block(ScoredPartView(number, readable(name), rows))
    extents = [
        SourceExtent(one.start, one.end, number) for number, one in enumerate(response.sources) if number >= first
    ]
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
    """Split off the first characters, which are a name, from the pieces."""
    for piece in pieces:
        name, text = piece.text[: max(length, 0)], piece.text[max(length, 0) :]
        length -= len(piece.text)
        has_name = bool(name and piece.sources)
        yield replace(piece, text=text, name=name, label=text.strip() or name) if has_name else piece


def _units(response: Response) -> Iterator[UnitView]:
    """Split the response at rows, and within these at tokens; rows without characters come last."""
    text, seen = readable(response.text), set[int]()
    rows = [SourceExtent(row.start, row.end, number).trimmed(text) for number, row in enumerate(response.rows)]
    rows.sort(key=lambda row: (row.end - row.start, row.number))
    for start, end in pairwise(sorted({0, len(text), *(edge for row in rows for edge in (row.start, row.end))})):
        own = tuple(row.number for row in rows if row.start <= start and end <= row.end)
        seen.update(own)
        if own or start or text[:end].strip():  # but not the space between prompt and response
            yield UnitView(tuple(_tokens(response, text, start, end)), own)
    for number in sorted(set(range(len(rows))) - seen):
        tokens = [response.tokens[token] for token in response.rows[number].tokens]
        yield UnitView((TokenView(" "),))
        yield UnitView(tuple(_token_view(visible(token.text), [token]) for token in tokens), (number,))


def _tokens(response: Response, text: str, start: int, end: int) -> Iterator[TokenView]:
    tokens = [token for token in response.tokens if token.start < end and token.end > start]
    edges = sorted({start, end, *(edge for one in tokens for edge in (one.start, one.end) if start < edge < end)})
    for first, last in pairwise(edges):
        characters = text[first:last]
        own = [one for one in tokens if one.start <= first and last <= one.end]
        if not characters.strip() and any(one.text.strip() for one in own):
            own = []  # the space before a word has no statistics
        space = len(characters) - len(characters.lstrip()) if characters.strip() else 0
        yield from [TokenView(characters[:space])] * (space > 0)
        yield _token_view(characters[space:], own)


def _token_view(characters: str, tokens: Sequence[ResponseToken]) -> TokenView:
    titles = [token_title(one.text, one.log_probability, one.entropy, one.rank) for one in tokens]
    doubt = max((1 - float(np.exp(one.log_probability)) for one in tokens), default=0.0)
    return TokenView(characters, " · ".join(titles), round(doubt, 2))


def _facts(response: Response, numbers: Sequence[int]) -> str:
    """The likelihood of rows, and the share of their scores outside of sources, the maximum over rows."""
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

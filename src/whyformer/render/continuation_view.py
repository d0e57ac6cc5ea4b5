"""View of a continuation for the templates: its tokens, and the sources of each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from whyformer.inputs.layouts import WordPieces
from whyformer.render.coverage import percent
from whyformer.render.scored_part import ScoredPartView, with_all_rows
from whyformer.render.source_view import (
    BlockView,
    SourceExtent,
    SourcesView,
    TokenView,
    UnitView,
    cut_text,
    likely_answers,
    part_block,
    ranked_rows,
    unseen_block,
    with_total,
)
from whyformer.render.text_spans import captioned_parts, option_lines, readable, token_names, visible

if TYPE_CHECKING:
    from whyformer.results.continuation import Continuation
    from whyformer.results.explanation import Explanation
    from whyformer.results.part import Part


@dataclass(frozen=True)
class _Stream:
    """A stream of tokens before the last written one: its columns in the table, and its initial length."""

    part: Part
    layout: WordPieces
    caption: str
    first_column: int
    count: int


def continuation_view(continuation: Continuation) -> SourcesView:
    """Build the view: a row for each written token, a source for each token before it."""
    *_, last = continuation.explanations  # which follows all the others
    streams, parts = list(_streams(continuation)), list(_scored_parts(continuation))
    scores = with_total(np.stack([_row(one, last) for one in continuation.explanations]))
    chances = [one.probability for one in continuation.explanations]
    facts = ["" if chance is None else f"Its probability is {percent(chance)}." for chance in chances]
    blank = [f" After a blank picture it would be {math.exp(prior):.2g}." for prior in continuation.priors]
    facts = [fact + other for fact, other in zip_longest(facts, blank, fillvalue="")]
    return SourcesView(
        headline=continuation.headline,
        method=readable(last.manner),
        model=readable(last.model),
        units=tuple(_units(continuation, streams[-1] if streams else None)),
        blocks=(*map(part_block, parts), *(block for stream in streams for block in _blocks(stream))),
        rows=ranked_rows(scores),
        likely=tuple(likely_answers(one.answers) for one in continuation.explanations),
        facts=tuple(facts if len(facts) == len(scores) else [*facts, ""]),
        is_diverging=bool((scores < 0).any()),
        question=" ".join(text for stream in streams for text in _texts_before(stream)),
        options=tuple(option_lines(last)),
        notes=tuple(dict.fromkeys(readable(note) for one in continuation.explanations for note in one.notes)),
    )


def _streams(continuation: Continuation) -> Iterator[_Stream]:
    """The streams in reading order; the last one is extended by each written token."""
    first, *_, last = *continuation.explanations, continuation.explanations[-1]
    columns, names = _columns(last), {id(part): name for name, part in last.parts.items()}
    for caption, part in captioned_parts(last):
        name = names[id(part)]
        count = first.parts[name].layout.size if name in first.parts else 0
        if isinstance(part.layout, WordPieces):
            yield _Stream(part, part.layout, caption, columns[name], count)


def _texts_before(stream: _Stream) -> Iterator[str]:
    """The texts of a stream before anything was written."""
    end = stream.layout.offsets[stream.count][0] if stream.count < stream.layout.size else None
    *others, last = stream.layout.texts
    yield from (*others, last[:end])


def _scored_parts(continuation: Continuation) -> Iterator[ScoredPartView]:
    """The parts that are not texts, with the scores of each written token."""
    last = continuation.explanations[-1]
    for name, part in last.parts.items():
        if not isinstance(part.layout, WordPieces):
            rows = tuple(one.parts[name] for one in continuation.explanations)
            yield ScoredPartView(_columns(last)[name], readable(name), with_all_rows(rows))


def _columns(last: Explanation) -> dict[str, int]:
    """The first column of each part: one per token of a text, one for each other part."""
    sizes = [part.layout.size if isinstance(part.layout, WordPieces) else 1 for part in last.parts.values()]
    return dict(zip(last.parts, np.cumsum([0, *sizes]).tolist(), strict=False))


def _row(explanation: Explanation, last: Explanation) -> np.ndarray:
    """The scores of a written token; later tokens have 0."""
    row = []
    for name, part in last.parts.items():
        scores = explanation.parts[name].scores if name in explanation.parts else np.zeros(0)
        is_text = isinstance(part.layout, WordPieces)
        row.append(np.pad(scores, (0, part.layout.size - len(scores))) if is_text else scores.sum(keepdims=True))
    return np.concatenate(row)


def _blocks(stream: _Stream) -> Iterator[BlockView]:
    """The texts of a stream before anything was written."""
    layout, seen = stream.layout, set[int]()
    for segment, text in enumerate(layout.texts):
        tokens = [token for token in range(stream.count) if layout.segments[token] == segment]
        extents = [SourceExtent(*layout.offsets[token], stream.first_column + token) for token in tokens]
        is_written_on = segment == len(layout.texts) - 1 and stream.count < layout.size
        end = layout.offsets[stream.count][0] if is_written_on else len(text)
        if text[:end].strip():
            pieces = tuple(cut_text(text, extents, 0, len(text[:end].rstrip())))
            seen.update(source for piece in pieces for source in piece.sources)
            yield BlockView("", stream.caption, pieces)
    names, columns = token_names(stream.part), range(stream.first_column, stream.first_column + stream.count)
    yield from unseen_block([pair for pair in zip(names, columns, strict=False) if pair[1] not in seen])


def _units(continuation: Continuation, stream: _Stream | None) -> Iterator[UnitView]:
    """Each written token with its leading space; all but the last are also sources."""
    text, position = readable(continuation.text), 0
    count, offsets = (0, ()) if stream is None else (stream.count, stream.layout.offsets)
    written = len(offsets) - count
    base = offsets[count][0] if written else 0
    for number, one in enumerate(continuation.explanations):
        is_source = number < written
        end = offsets[count + number][1] - base if is_source else len(text)
        characters = text[position:end]
        position = max(position, end)
        space = characters[: len(characters) - len(characters.lstrip())] if characters.strip() else ""
        if space and number:
            yield UnitView((TokenView(space),))
        shown = characters[len(space) :] or visible(one.target)
        doubt = 0.0 if one.probability is None else round(1 - one.probability, 2)
        source = stream.first_column + count + number if stream is not None and is_source else None
        yield UnitView((TokenView(shown, one.answer, doubt),), (number,), source)

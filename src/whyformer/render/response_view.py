"""View of a response for the templates: its rows and the blocks of its prompt, split at sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from whyformer.inputs.prompt import unnamed_document
from whyformer.inputs.words import content_words
from whyformer.render.coverage import percent
from whyformer.render.scored_part import ScoredPartView, with_all_rows
from whyformer.render.source_view import (
    SURPRISE,
    WEIGHT,
    BlockView,
    PieceView,
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
from whyformer.render.text_spans import fixed, option_lines, readable, visible
from whyformer.render.verdict_view import (
    FULL_NATS,
    cost_line,
    source_effects,
    verdict_summary,
    verdict_views,
)

if TYPE_CHECKING:
    from whyformer.results.response import Response
    from whyformer.results.response_parts import ResponseToken

LEAST_SHARE = 0.005  # minimum share of a sink, or of a token's weight, to mention it
MOST_DOCUMENTS_NAMED = 6  # documents in the line under a title
HEAVIEST = 3  # tokens of a row with a focus that are mentioned


def response_view(response: Response) -> SourcesView:
    """Build the view of a response."""
    effects = source_effects(response)
    scores = with_total(response.scores if effects is None else effects)
    rows = range(len(response.rows))
    support = response.verdicts
    facts = [_facts(response, [number]) for number in rows] + [_facts(response, rows)] * (len(rows) > 1)
    return SourcesView(
        headline=response.headline,
        method=response.manner,
        model=readable(response.model),
        units=tuple(_units(response)),
        blocks=tuple(_prompt_blocks(response)),
        rows=ranked_rows(scores, None if effects is None else FULL_NATS),
        facts=tuple(facts),
        is_diverging=bool((scores < 0).any()),
        question=_question(response),
        files=_document_names(response),
        likely=_likely(response),
        options=(*_method_options(response), *_settings(response)),
        notes=tuple(readable(note) for note in response.notes),
        underline=SURPRISE if response.focus is None else WEIGHT,
        verdicts=verdict_views(response),
        summary="" if support is None else verdict_summary(support),
        cost="" if support is None else cost_line(support),
        full="" if effects is None else f"{FULL_NATS:g} nats",
    )


def _likely(response: Response) -> tuple[str, ...]:
    """The likely answers at the word that carries each row, with their probabilities."""
    known = content_words(_question(response))
    carrying = [_answer_token(response, row, known) for row in range(len(response.rows))]
    return tuple(
        likely_answers(_by_text(one), at=one.text) if one is not None and one.alternatives else "" for one in carrying
    )


def _by_text(token: ResponseToken) -> dict[str, float]:
    """The probabilities of a token and its alternatives. Of equal texts, the written token's, then the likeliest's."""
    return dict(reversed([(token.text, token.probability), *token.alternatives]))


def _answer_token(response: Response, row: int, known: set[str]) -> ResponseToken | None:
    """Where the answer of a row is: a content word that the question does not have, the heaviest or else the first.

    None where the question has all words and no focus says which matter, such as for a prompt of one text.
    """
    span = response.rows[row]
    words = [(span.start + one.start(), content_words(one[0])) for one in re.finditer(r"\w+", span.text)]
    starts = [start for start, own in words if own - known]
    if not starts and response.focus is not None:
        starts = [start for start, own in words if own]
    own = [
        one for one in span.tokens if any(response.tokens[one].start <= at < response.tokens[one].end for at in starts)
    ]
    weights = np.zeros(len(response.tokens)) if response.focus is None else response.focus[row]
    carrying = max(own, key=lambda one: weights[one], default=None)
    return None if carrying is None else response.tokens[carrying]


def _question(response: Response) -> str:
    """The question: the user's messages, or a prompt without documents."""
    return " ".join(source.text for source in response.sources if source.name in ("", "user"))


def _document_names(response: Response) -> str:
    """The names that were given to documents, in a line; not the numbers of documents without names."""
    documents = enumerate(response.prompt.documents, 1)
    names = [readable(one.name) for number, one in documents if one.name != unnamed_document(number)]
    more = len(names) - MOST_DOCUMENTS_NAMED
    return ", ".join(names[:MOST_DOCUMENTS_NAMED]) + (f" and {more} more" if more > 0 else "")


def token_title(token: ResponseToken) -> str:
    """Tooltip of a response token."""
    probability = f"probability {token.probability:.2g}, log-probability {fixed(token.log_probability)}"
    entropy = "" if token.entropy is None else f", entropy {token.entropy:.2f}"
    rank = "" if token.rank is None else f", rank {token.rank}"
    others = ", ".join(f"{visible(text)} {percent(share)}" for text, share in token.alternatives)
    return f"{visible(token.text)}  {probability}{entropy}{rank}{'; instead: ' * bool(others)}{others}"


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
    text, seen, views = readable(response.text), set[int](), _token_views(response)
    rows = [SourceExtent(row.start, row.end, number).trimmed(text) for number, row in enumerate(response.rows)]
    rows.sort(key=lambda row: (row.end - row.start, row.number))
    for start, end in pairwise(sorted({0, len(text), *(edge for row in rows for edge in (row.start, row.end))})):
        own = tuple(row.number for row in rows if row.start <= start and end <= row.end)
        seen.update(own)
        if own or start or text[:end].strip():  # but not the space between prompt and response
            yield UnitView(tuple(_tokens(response, views, text, start, end)), own)
    for number in sorted(set(range(len(rows))) - seen):
        yield UnitView((TokenView(" "),))
        yield UnitView(tuple(views[token] for token in response.rows[number].tokens), (number,))


def _tokens(response: Response, views: Sequence[TokenView], text: str, start: int, end: int) -> Iterator[TokenView]:
    tokens = [pair for pair in zip(response.tokens, views, strict=True) if pair[0].start < end and pair[0].end > start]
    edges = sorted({start, end, *(edge for one, _ in tokens for edge in (one.start, one.end) if start < edge < end)})
    for first, last in pairwise(edges):
        characters = text[first:last]
        own = [(one, view) for one, view in tokens if one.start <= first and last <= one.end]
        if not characters.strip() and any(one.text.strip() for one, _ in own):
            own = []  # the space before a word has no statistics
        space = len(characters) - len(characters.lstrip()) if characters.strip() else 0
        yield from [TokenView(characters[:space])] * (space > 0)
        title = " · ".join(view.title for _, view in own)
        yield TokenView(characters[space:], title, max((view.underline for _, view in own), default=0.0))


def _token_views(response: Response) -> list[TokenView]:
    """Each token of the response; its underline shows how unlikely it was, or its weight if there is a focus."""
    lines = [1 - one.probability for one in response.tokens]
    weights = [""] * len(lines)
    if response.focus is not None:
        lines = (response.focus / response.focus.max(axis=1, keepdims=True)).max(axis=0).tolist()
        weights = [f", weight {weight:.2g}" for weight in response.focus.max(axis=0)]
    return [
        TokenView(visible(one.text), token_title(one) + weight, round(line, 2))
        for one, line, weight in zip(response.tokens, lines, weights, strict=True)
    ]


def _facts(response: Response, numbers: Sequence[int]) -> str:
    """The likelihood of rows, and the share of their scores outside of sources, the maximum over rows."""
    tokens = dict.fromkeys(token for number in numbers for token in response.rows[number].tokens)
    figures = _figures(response, tokens) + _heaviest(response, numbers)
    sinks = [response.sinks[number] for number in numbers if response.sinks]
    first = "the first token (left out)" if response.leaves_out_sinks else "the first token"
    places = {
        first: max((one.first_token for one in sinks), default=0),
        "other special tokens": max((one.special for one in sinks), default=0),
        "the response before it": max((one.earlier for one in sinks), default=0),
    }
    shares = ", ".join(f"{share:.0%} on {place}" for place, share in places.items() if share >= LEAST_SHARE)
    whose = "Of its scores," if len(numbers) == 1 else "Of the scores of a part, up to"
    return (
        f"{figures} {whose} {shares.replace('on', 'are on', 1)}; shares are among the sources." if shares else figures
    )


def _figures(response: Response, numbers: Iterable[int]) -> str:
    tokens = [response.tokens[number] for number in numbers if not response.tokens[number].is_special]
    total = sum(token.log_probability for token in tokens)
    likeliest = sum(token.rank == 1 for token in tokens)
    count = f"{len(tokens)} token{'s' * (len(tokens) != 1)}"
    choices = f", {likeliest} of them the model's first choice" if all(one.rank is not None for one in tokens) else ""
    return f"Log-probability {fixed(total)} for {count}{choices}."


def _heaviest(response: Response, numbers: Sequence[int]) -> str:
    """The tokens that weigh most in the explained scores of rows."""
    if response.focus is None:
        return ""
    weights = response.focus[list(numbers)].sum(axis=0)
    order = np.argsort(-weights, kind="stable")[:HEAVIEST]
    shares = [(response.tokens[number].text, weights[number] / weights.sum()) for number in order.tolist()]
    named = [f"{visible(text.strip() or text)} {share:.0%}" for text, share in shares if share >= LEAST_SHARE]
    return f" Of its tokens, {', '.join(named)} count most."


def _method_options(response: Response) -> list[str]:
    """The options of the method, after its name: some are named like settings of the response."""
    lines = option_lines(response)
    return [f"{readable(response.method)}: {lines[0]}", *lines[1:]] if lines else []


def _settings(response: Response) -> Iterator[str]:
    kinds = dict.fromkeys(source.kind for source in response.sources)
    yield f"sources = {', '.join(map(readable, kinds))}"
    yield f"aggregate = {response.aggregate}"
    yield f"sinks = {'leave_out' if response.leaves_out_sinks else 'keep'}"
    if response.seed is not None:
        yield f"seed = {response.seed}"

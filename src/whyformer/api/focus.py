"""Focus: the weights of a response's tokens in the score that is explained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from whyformer.api.focus_weights import weigh
from whyformer.api.replies import Reply
from whyformer.api.response_case import ResponseCase
from whyformer.errors import WhyformerError
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.sentences import CharRange, paragraph_ranges, sentence_ranges
from whyformer.inputs.sources import Source
from whyformer.inputs.spans import Span, spans_of
from whyformer.inputs.teacher_forcing import ResponseRow
from whyformer.removal.response_scorer import ResponseScorer, requests_after

Focus = Literal["none", "sources"] | Sequence[float]


def default_focus(method: str | None, reply: Reply, other: Reply | None) -> Focus:
    """The focus where none is given: "sources" belongs to the default method, on prompts of words alone."""
    return "sources" if method is None and reply.exchange.is_text and other is None else "none"


def focused_case(
    scorer: ResponseScorer,
    reply: Reply,
    other: Reply | None,
    spans: tuple[Span, ...],
    sources: tuple[Source, ...],
    focus: Focus,
) -> ResponseCase:
    """The rows to explain, those of a contrast included.

    With "sources", one forward pass without them; the weights come from the pass that explains the rows, or from
    `weigh_case`.
    """
    rows = focused_rows(scorer, reply, spans, sources, focus)
    case = ResponseCase(reply, spans, sources, rows, focus=focus if isinstance(focus, str) else "weights")
    if other is None:
        return case
    if not isinstance(focus, str):
        raise WhyformerError(
            "focus has weights for the response, and a contrast has other tokens: choose 'none' or 'sources'."
        )
    other_rows = focused_rows(scorer, other, spans_of(other.text, other.tokens, "response"), sources, focus)
    return replace(case, other=other, other_rows=other_rows)


def focused_rows(
    scorer: ResponseScorer, reply: Reply, spans: Sequence[Span], sources: Sequence[Source], focus: Focus
) -> tuple[ResponseRow, ...]:
    """A row for each span, without the tokens of weight 0, or with what the weights are computed from."""
    if isinstance(focus, str):
        if focus not in ("none", "sources"):
            raise WhyformerError(f"focus={focus!r}: 'none', 'sources', or a weight for each token of the response.")
        if focus == "none":
            return tuple(ResponseRow(reply.exchange, span.tokens) for span in spans)
        without = log_probabilities_without(scorer, reply, sources)
        return tuple(
            ResponseRow(reply.exchange, span.tokens, without=tuple(without[list(span.tokens)].tolist()))
            for span in spans
        )
    own = _checked_weights(reply, focus)
    return tuple(_rows(reply, spans, [[own[token] for token in span.tokens] for span in spans]))


def weigh_case(scorer: ResponseScorer, case: ResponseCase) -> ResponseCase:
    """The case with the weights of its rows, by a forward pass with the sources where they need one."""
    rows = _weigh_rows(scorer, case.reply, case.rows)
    other_rows = () if case.other is None else _weigh_rows(scorer, case.other, case.other_rows)
    return replace(case, rows=rows, other_rows=other_rows)


def _weigh_rows(scorer: ResponseScorer, reply: Reply, rows: Sequence[ResponseRow]) -> tuple[ResponseRow, ...]:
    if all(row.without is None for row in rows):
        return tuple(rows)
    (values,) = scorer.log_probabilities(requests_after([scorer.variant(reply.prompt)], reply.tokens, reply.text))
    return tuple(weigh(row, values[list(row.tokens)]) for row in rows)


def log_probabilities_without(scorer: ResponseScorer, reply: Reply, sources: Sequence[Source]) -> np.ndarray:
    """The log-probability, in nats, of each token of a reply without the sources.

    The question stays in the prompt, so that its own words and those of grammar gain nothing by the sources.
    """
    if not reply.exchange.is_text:
        raise WhyformerError(
            "focus='sources' runs the model without the sources, which are removed from a text, and this prompt has "
            "more than words: leave it out, or give a weight for each token of the response."
        )
    shorter = scorer.variant(reply.prompt, places_but_the_question(reply.prompt, sources))
    (values,) = scorer.log_probabilities(requests_after([shorter], reply.tokens, reply.text))
    return values


def places_but_the_question(prompt: Prompt, sources: Sequence[Source]) -> list[CharRange]:
    """The places of the sources without the question; all of them if nothing else is left.

    The question is what is not a document. If there are no documents, it is the last paragraph of the user's last
    message, or of the text, and in a text of one paragraph its last sentence. Ranges that the caller
    chose are all taken.
    """
    places = [(source.start, source.end) for source in sources]
    if any(source.kind == "span" for source in sources):
        return places
    if prompt.documents:
        own = [one for one in places if any(_overlap(one, (part.start, part.end)) for part in prompt.documents)]
    else:
        question = _question(prompt)
        own = [one for one in places if not _overlap(one, question)]
    return own or places


def _question(prompt: Prompt) -> CharRange:
    start, end = next(
        ((one.start, one.end) for one in reversed(prompt.messages) if one.role == "user"), (0, len(prompt.text))
    )
    text = prompt.text[start:end]
    paragraphs = paragraph_ranges(text)
    is_alone = len(paragraphs) < 2 and len(prompt.messages) < 2
    first, last = (sentence_ranges(text) if is_alone else paragraphs)[-1]
    return start + first, start + last


def _overlap(one: CharRange, other: CharRange) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _rows(reply: Reply, spans: Sequence[Span], weights: Sequence[Sequence[float]]) -> Iterator[ResponseRow]:
    for span, own in zip(spans, weights, strict=True):
        kept = [(token, weight) for token, weight in zip(span.tokens, own, strict=True) if weight > 0]
        if not kept:
            raise WhyformerError(
                f"focus: every token of {span.text.strip()!r:.60} has weight 0: give one of them more, or choose other "
                "units."
            )
        tokens, positive = zip(*kept, strict=True)
        yield ResponseRow(reply.exchange, tokens, positive)


def _checked_weights(reply: Reply, focus: Sequence[float]) -> list[float]:
    try:
        weights = [float(weight) for weight in focus]
    except (TypeError, ValueError):
        raise WhyformerError(
            f"focus={focus!r:.60}: 'none', 'sources', or a weight for each token of the response."
        ) from None
    if len(weights) != len(reply.tokens):
        raise WhyformerError(
            f"focus has {len(weights)} weights, and the response {len(reply.tokens)} tokens: give one each."
        )
    bad = next((weight for weight in weights if not 0 <= weight < math.inf), None)
    if bad is not None:
        raise WhyformerError(f"focus has a weight of {bad:g}: a weight is 0 or more, and finite.")
    return weights

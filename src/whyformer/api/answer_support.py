"""The verdicts on a given answer, without an explanation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whyformer.api.replies import reply_of
from whyformer.api.response_case import ResponseCase
from whyformer.api.served_scorer import ServedScorer
from whyformer.api.served_support import served_reply, served_support
from whyformer.api.support_origin import support_of_case
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.sources import sources_of
from whyformer.inputs.spans import SpanSelection, spans_of
from whyformer.models.loading import LoadedModel
from whyformer.results.support import Support


def answer_support(
    model: LoadedModel | ServedScorer,
    prompt: Any,
    answer: str,
    documents: Sequence[Any] | None = None,
    *,
    units: SpanSelection = None,
    batch_size: int | None = None,
    **options: Any,
) -> Support:
    """The verdict on each sentence of an answer; `options` are those of `Response.support`."""
    context = None if documents is None else list(documents)
    if isinstance(model, ServedScorer):
        read = model.prompt(prompt, context)
        reply = served_reply(model, read, answer)
        return served_support(model, reply, spans_of(reply.text, reply.tokens, units), sources_of(read), options)
    opening = encode_prompt(model, prompt, context)
    reply = reply_of(model, opening, answer)
    spans = spans_of(reply.text, reply.tokens, units)
    return support_of_case(model, ResponseCase(reply, spans, sources_of(opening.prompt), ()), batch_size, options)

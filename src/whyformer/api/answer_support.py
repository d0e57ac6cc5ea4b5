"""The verdicts on a given answer, without an explanation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whyformer.api.replies import reply_of
from whyformer.api.response_case import ResponseCase
from whyformer.api.support_origin import support_of_case
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.sources import sources_of
from whyformer.inputs.spans import spans_of
from whyformer.models.loading import LoadedModel
from whyformer.results.support import Support


def answer_support(
    loaded_model: LoadedModel,
    prompt: Any,
    answer: str,
    documents: Sequence[Any] | None = None,
    *,
    batch_size: int | None = None,
    **options: Any,
) -> Support:
    """The verdict on each sentence of an answer; `options` are those of `Response.support`."""
    opening = encode_prompt(loaded_model, prompt, None if documents is None else list(documents))
    reply = reply_of(loaded_model, opening, answer)
    spans = spans_of(reply.text, reply.tokens)
    case = ResponseCase(reply, spans, sources_of(opening.prompt), ())
    return support_of_case(loaded_model, case, batch_size, options)

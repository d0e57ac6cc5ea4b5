"""Focus: the weights of a response's tokens in the score that is explained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from whyformer.api.replies import Reply
from whyformer.errors import WhyformerError
from whyformer.inputs.sources import Source
from whyformer.inputs.spans import Span
from whyformer.inputs.teacher_forcing import ResponseRow
from whyformer.models.loading import LoadedModel
from whyformer.removal.prompt_text import ids_without
from whyformer.removal.response_scores import ResponseModel, response_log_probabilities

Focus = Literal["none", "sources"] | Sequence[float]
LEAST_SHARE = 0.5  # of the largest gain of a span, that a token must have to be asked about


def focused_rows(
    loaded_model: LoadedModel, reply: Reply, spans: Sequence[Span], sources: Sequence[Source], focus: Focus
) -> tuple[ResponseRow, ...]:
    """A row for each span, without the tokens of weight 0."""
    if isinstance(focus, str):
        if focus not in ("none", "sources"):
            raise WhyformerError(f"focus={focus!r}: 'none', 'sources', or a weight for each token of the response.")
        if focus == "none":
            return tuple(ResponseRow(reply.exchange, span.tokens) for span in spans)
        gains = source_gains(loaded_model, reply, sources)
        weights = [gain_weights(gains[list(span.tokens)]) for span in spans]
    else:
        own = _checked_weights(reply, focus)
        weights = [[own[token] for token in span.tokens] for span in spans]
    return tuple(_rows(reply, spans, weights))


def source_gains(loaded_model: LoadedModel, reply: Reply, sources: Sequence[Source]) -> np.ndarray:
    """How much likelier the sources make each token of a reply, in nats; negative where they make it less likely."""
    if reply.exchange.image_prompt is not None or reply.exchange.audio is not None:
        raise WhyformerError(
            "focus='sources' asks again without the sources, and this prompt has more than words in it: leave it out, "
            "or give a weight for each token of the response."
        )
    writer = ResponseModel(loaded_model.model, reply.exchange.response, reply.exchange.beginning)
    whole = reply.exchange.prompt
    shorter = tuple(ids_without(loaded_model, reply.prompt, [(one.start, one.end) for one in sources]))
    values = response_log_probabilities(writer, [*dict.fromkeys([whole, shorter])])
    return values[whole] - values[shorter]


def gain_weights(gains: np.ndarray) -> list[float]:
    """1 for the tokens of a span that gain at least half as much as the one that gains most, 0 for the others."""
    return [float(gain == gains.max() or gain >= LEAST_SHARE * gains.max() > 0) for gain in gains]


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

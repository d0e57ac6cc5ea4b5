"""Build a Response from the scores of a prompt's reply, spans and sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from whyformer.api.assemble import coarseness
from whyformer.api.attribute import PICTURED_DEFAULT, RESPONSE_DEFAULT, MethodChoice, first_that_applies
from whyformer.api.exchange_scores import ExchangeScores, ScoringEngine
from whyformer.api.replies import Reply
from whyformer.api.row_scores import ExchangeRowScores
from whyformer.axes import SpanScores
from whyformer.backward.rules import Backward
from whyformer.inputs.prompt_tokens import Token, unknown_token_note
from whyformer.inputs.sources import Source
from whyformer.inputs.spans import Span
from whyformer.inputs.teacher_forcing import Exchange, ResponseRow
from whyformer.models.loading import LoadedModel
from whyformer.results.response import Response
from whyformer.results.response_parts import PartScores, ResponseToken, Sinks, part_sources
from whyformer.results.source_pooling import SourceAggregate, all_source_scores
from whyformer.targets.span_scores import TokenStatistics

SinkChoice = Literal["leave_out", "keep"]


@dataclass(frozen=True)
class ResponseCase:
    """A prompt with its reply, spans and sources, and optionally another reply to contrast with."""

    reply: Reply
    spans: tuple[Span, ...]
    sources: tuple[Source, ...]
    rows: tuple[ResponseRow, ...]
    other: Reply | None = None
    other_rows: tuple[ResponseRow, ...] = ()
    focus: str = "none"

    @property
    def exchanges(self) -> list[tuple[Exchange, tuple[ResponseRow, ...]]]:
        """The rows of the reply, and of the other reply if there is one."""
        own = (self.reply.exchange, self.rows)
        return [own] if self.other is None else [own, (self.other.exchange, self.other_rows)]

    @property
    def options(self) -> dict[str, str]:
        """Options of the question, in addition to those of the method."""
        contrast = {} if self.other is None else {"contrast": self.other.text}
        return contrast if self.focus == "none" else contrast | {"focus": self.focus}

    @property
    def weights(self) -> SpanScores | None:
        """The weights [row, token] of the reply's tokens in the explained scores; None without a focus."""
        if self.focus == "none":
            return None
        weights = np.zeros((len(self.rows), len(self.reply.tokens)), dtype=np.float32)
        for number, row in enumerate(self.rows):
            weights[number, list(row.tokens)] = row.focus
        return weights


def response_of(
    case: ResponseCase,
    scores: Sequence[ExchangeScores],
    loaded_model: LoadedModel,
    choice: MethodChoice,
    *,
    aggregate: SourceAggregate,
    sinks: SinkChoice,
) -> Response:
    """Build the Response of one prompt, from the scores of its rows and of the contrasting reply."""
    reply, own = case.reply, scores[0]
    token_scores = np.stack([row.prompt for row in own.rows])
    options: dict[str, Any] = {name: parameter.default for name, parameter in choice.method.options.items()}
    options |= dict(choice.options) | choice.way | case.options
    parts = _parts(own.rows)
    if case.other is not None:
        other = scores[1].rows[0]
        token_scores = token_scores - other.prompt
        parts = {name: PartScores(one.layout, one.scores - other.parts[name].scores) for name, one in parts.items()}
    shares = tuple(_sinks(row, reply) for row in own.rows)
    # An encoder has no attention sink at its first token: every token sees every other.
    leaves_out = sinks == "leave_out" and not loaded_model.task.has_decoder
    return Response(
        prompt=reply.prompt,
        text=reply.text,
        tokens=response_tokens(loaded_model, reply, own.statistics),
        rows=case.spans,
        sources=(*part_sources(parts), *case.sources),
        scores=all_source_scores(parts, token_scores, case.sources, aggregate, leave_out_first=leaves_out),
        method=choice.method.name,
        model=loaded_model.name,
        token_scores=token_scores,
        parts=parts,
        earlier=np.stack([row.response for row in own.rows]),
        focus=case.weights,
        sinks=shares,
        aggregate=aggregate,
        leaves_out_sinks=leaves_out,
        options=options,
        notes=(
            *unknown_token_note(loaded_model.tokenizer, [(one.id, one.text) for one in _read_tokens(reply)]),
            *_notes(case, own, shares if leaves_out else (), choice),
        ),
        seed=reply.seed,
    )


def explain_cases(
    loaded_model: LoadedModel,
    cases: Sequence[ResponseCase],
    method: str | None,
    backward: Backward | None,
    options: Mapping[str, Any],
    *,
    aggregate: SourceAggregate = "positive",
    sinks: SinkChoice = "leave_out",
    batch_size: int | None = None,
    progress: bool = False,
) -> list[Response]:
    """Explain cases by a method that reads the model, in batches."""
    default = PICTURED_DEFAULT if loaded_model.task.sees_pictures_in_text else RESPONSE_DEFAULT

    def run(choice: MethodChoice) -> list[Response]:
        engine = ScoringEngine(loaded_model, choice, batch_size=batch_size, progress=progress)
        results = iter(engine.explain([rows for case in cases for rows in case.exchanges]))
        scores_of = [[next(results) for _ in case.exchanges] for case in cases]
        return [
            response_of(_weighted(case, scores), scores, loaded_model, choice, aggregate=aggregate, sinks=sinks)
            for case, scores in zip(cases, scores_of, strict=True)
        ]

    return first_that_applies(method, backward, options, run, default, of_response=True)


def _weighted(case: ResponseCase, scores: Sequence[ExchangeScores]) -> ResponseCase:
    """The case with the weights that its rows were explained with."""
    rows, *other = (tuple(one.row for one in each.rows) for each in scores)
    return replace(case, rows=rows, other_rows=other[0] if other else ())


def response_tokens(
    loaded_model: LoadedModel, reply: Reply, statistics: Sequence[TokenStatistics]
) -> tuple[ResponseToken, ...]:
    """The tokens of a reply, with the model's statistics of each."""
    decode = loaded_model.tokenizer.decode
    named = [tuple((decode([token]), share) for token, share in figures.alternatives) for figures in statistics]
    return tuple(
        ResponseToken(
            *(one.id, one.text, one.start, one.end, figures.log_probability, figures.entropy, figures.rank),
            is_special=one.is_special,
            alternatives=alternatives,
        )
        for one, figures, alternatives in zip(reply.tokens, statistics, named, strict=True)
    )


def _parts(rows: Sequence[ExchangeRowScores]) -> dict[str, PartScores]:
    """The parts of a prompt that are not texts, with the scores of every row."""
    return {
        name: PartScores(part.layout, np.stack([row.parts[name].scores for row in rows]).astype(np.float32))
        for name, part in rows[0].parts.items()
    }


def _sinks(row: ExchangeRowScores, reply: Reply) -> Sinks:
    """The shares of attention sinks in the magnitude of the row's scores."""
    seen = (part.scores for part in row.parts.values())
    parts = [np.abs(part.astype(np.float64)) for part in (row.prompt, row.beginning, row.response, *seen)]
    prompt, beginning, response, *_ = parts
    total = float(sum(part.sum() for part in parts)) or 1.0
    special = float(prompt[[token.is_special for token in reply.prompt.tokens]].sum() + beginning.sum())
    stream = beginning if len(beginning) else prompt
    is_special = bool(len(beginning)) or reply.prompt.tokens[0].is_special
    first = float(stream[0])
    return Sinks(first / total, (special - first * is_special) / total, float(response.sum()) / total)


def _read_tokens(reply: Reply) -> list[Token]:
    """The tokens of prompt and reply without those of the chat template."""
    return [token for token in (*reply.prompt.tokens, *reply.tokens) if not token.is_special]


def _notes(case: ResponseCase, own: ExchangeScores, left_out: Sequence[Sinks], choice: MethodChoice) -> Iterator[str]:
    yield from choice.remarks
    yield from case.reply.notes
    yield from dict.fromkeys(remark for row in own.rows for remark in row.remarks)
    yield from coarseness((row.completeness for row in own.rows), choice.method)
    first = next(iter(case.reply.prompt.tokens), None)
    if left_out and first is not None and not first.is_special:
        share = max(row.first_token for row in left_out)
        yield (
            f"The first token, {first.text!r}, is an attention sink: its scores, up to {share:.0%} of a row, are left "
            "out of its source; sinks='keep' includes them."
        )
    if not any(np.any(scores) for row in own.rows for scores in (row.prompt, *(x.scores for x in row.parts.values()))):
        yield f"{choice.method.name} found nothing in the prompt: every score is zero."

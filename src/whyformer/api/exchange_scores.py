"""Explain rows of exchanges, each with its own score, those of a prompt together.

A row is an example like any other: the exchange up to its last token, with its own score and read-out. Methods that
only read maps run each exchange once, and read every row from that pass. Methods that read gradients, plain ones or by
LibraGrad's or AttnLRP's rules, share one forward pass and backpropagate all rows together. Relevance, biases and paths
of inputs belong to one score; methods that read them run rows as a batch. Rows about an input of an encoder that is not
a text share one pass, and are backpropagated in turn: the encoder's tokens cost far more than the words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from whyformer.api.attribute import MethodChoice
from whyformer.api.batches import like_lengths, padding_that_pays, texts_at_once
from whyformer.api.focus_weights import GainScore, weigh_at
from whyformer.api.row_scores import ExchangeRowScores, read_at, row_scores, row_target
from whyformer.axes import Inputs
from whyformer.batching import check_batch_size, in_batches
from whyformer.errors import UnsupportedModel
from whyformer.inputs.teacher_forcing import Exchange, ResponseRow, first_logit, row_inputs, row_weights
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import device_of, heads_of
from whyformer.targets.scores import Score
from whyformer.targets.span_scores import (
    NextTokenLogits,
    TokenStatistics,
    log_probability,
    token_logits,
    token_statistics,
)
from whyformer.tracing import build
from whyformer.tracing.path import inputs_at_once
from whyformer.tracing.reads import Reads
from whyformer.tracing.trace import Trace
from whyformer.watching.kernels import KEPT

LEAST_SHARED = 4  # rows of an exchange that are worth a separate forward pass, if there are other exchanges
MakeScore = Callable[[Sequence[NextTokenLogits], int], Score]


@dataclass(frozen=True)
class ExchangeScores:
    """The scores of an exchange's rows, and statistics of each token of its response."""

    rows: list[ExchangeRowScores]
    statistics: list[TokenStatistics]


@dataclass(frozen=True)
class ScoringEngine:
    """The settings that rows are explained with: model, method, score, read-out, and batch size."""

    loaded_model: LoadedModel
    choice: MethodChoice
    make_score: MakeScore = log_probability
    readout: str | int | Tensor | None = None
    batch_size: int | None = None
    progress: bool = False

    def explain(self, rows_of: Sequence[tuple[Exchange, Sequence[ResponseRow]]]) -> list[ExchangeScores]:
        """The scores of each exchange's rows."""
        check_batch_size(self.batch_size)
        if not rows_of:
            return []
        reads = self._reads
        if reads.has_graph or reads.path or reads.subsets or self.readout is not None:
            return self._by_rows(rows_of)
        return self._batched(rows_of, self._by_one_pass, [len(exchange.written) for exchange, _ in rows_of])

    def _by_rows(self, rows_of: Sequence[tuple[Exchange, Sequence[ResponseRow]]]) -> list[ExchangeScores]:
        rows = [row for _, own in rows_of for row in own]
        results = iter(self._in_batches(rows, self._by_batch, self._row_batches(rows)))
        results_of = []
        for _, own in rows_of:
            each = [next(results) for _ in own]
            known = next((statistics for _, statistics in each if statistics is not None), None)
            results_of.append(([scores for scores, _ in each], known))
        missing = [exchange for (exchange, _), (_, known) in zip(rows_of, results_of, strict=True) if known is None]
        others = iter(self._batched(missing, self._statistics, [len(exchange.written) for exchange in missing]))
        return [ExchangeScores(scores, next(others) if known is None else known) for scores, known in results_of]

    def _row_batches(self, rows: Sequence[ResponseRow]) -> list[list[int]]:
        """Group indices of rows into batches: of one exchange if they share a pass, otherwise of similar length."""
        by_exchange: dict[Exchange, list[int]] = {}
        for number, row in enumerate(rows):
            by_exchange.setdefault(row.exchange, []).append(number)
        if all(self._shares_graph(exchange) for exchange in by_exchange):
            return list(by_exchange.values())
        if not self._takes_rows_back_together:
            return self._batches([row.length for row in rows])
        shared = [
            own
            for own in by_exchange.values()
            if len(own) >= LEAST_SHARED and self._can_share([rows[number] for number in own])
        ]
        lone = sorted({*range(len(rows))} - {number for own in shared for number in own})
        parts = [(lone, self._batches([rows[number].length for number in lone]))]
        parts += [(own, like_lengths([rows[number].length for number in own], self._fill)) for own in shared]
        return [[own[number] for number in batch] for own, batches in parts for batch in batches]

    def _batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """Group indices of texts of similar length into batches, as many as are worthwhile on the device."""
        if self.batch_size is None and device_of(self.loaded_model.model).type == "cpu":
            return like_lengths(lengths, texts_at_once, padding_that_pays(self._reads))
        return like_lengths(lengths, self._fill)

    def _fill(self, length: int) -> int:
        """The number of texts of this length that fill the device, unless a batch size is set."""
        device = device_of(self.loaded_model.model).type
        return self.batch_size or max(1, inputs_at_once(length, device))

    def _batched(self, items: Sequence[Any], function: Callable[..., Sequence[Any]], lengths: list[int]) -> list[Any]:
        return self._in_batches(items, function, self._batches(lengths))

    def _in_batches(
        self, items: Sequence[Any], function: Callable[..., Sequence[Any]], batches: list[list[int]]
    ) -> list[Any]:
        task = f"{self.choice.method.name} on {self.loaded_model.name}"
        by_blocks = self.choice.can_go_by_blocks
        return in_batches(items, function, batches, task, progress=self.progress, can_go_by_blocks=by_blocks)

    def _trace(
        self, rows: Sequence[ResponseRow], checkpoint: bool | None, readout: Any, longest: ResponseRow | None = None
    ) -> tuple[Trace, Sequence[ResponseRow]]:
        """Trace these rows, each as an example, or all as scores of the longest; return them with their weights."""
        own = rows if longest is None else [longest]
        inputs = row_inputs(self.loaded_model, own, every_logit=self._reads.logits)
        shift, are_of_one = first_logit(inputs), longest is not None

        def make_score(weighted: Sequence[ResponseRow]) -> Score:
            return self.make_score(row_predictions(weighted, shift, are_of_one=are_of_one), len(weighted))

        by_gains = any(row.without is not None for row in rows)
        score = GainScore(rows, make_score, shift, are_of_one) if by_gains else make_score(rows)
        trace = build.trace(
            self.loaded_model.model,
            inputs,
            score,
            reads=self._reads,
            readout=readout,
            backward=self.choice.backward,
            checkpoint=checkpoint,
        )
        if isinstance(score, GainScore):
            return read_at(trace, score.rows), score.rows
        return replace(trace, target=row_target(trace, rows)), rows

    def _by_batch(
        self, rows: Sequence[ResponseRow], checkpoint: bool | None
    ) -> list[tuple[ExchangeRowScores, list[TokenStatistics] | None]]:
        """Explain each row as an example, or if possible all rows of an exchange after one forward pass."""
        if len(rows) > 1 and self._shares_graph(rows[0].exchange) and len({row.exchange for row in rows}) == 1:
            return list(self._by_one_graph(rows))
        if checkpoint is None and self._can_share(rows):
            with suppress(UnsupportedModel):  # as examples the rows may need less; if not, they raise themselves
                return self._by_shared_pass(rows)
        weights = row_weights(rows, max(row.length for row in rows))
        trace, weighted = self._trace(rows, checkpoint, weights if self.readout is None else self.readout)
        attribution = self.choice.method(trace, **self._options(rows, weights.shape[1]))
        logits = token_logits(trace.output)
        return [
            (scores, _statistics_of(row, logits[number], trace.question.inputs) if row.has_last else None)
            for number, (row, scores) in enumerate(zip(rows, row_scores(weighted, attribution, trace), strict=True))
        ]

    def _can_share(self, rows: Sequence[ResponseRow]) -> bool:
        """Whether rows can share a forward pass: of one exchange, with maps that are kept."""
        is_one = len(rows) > 1 and len({row.exchange for row in rows}) == 1
        keeps = heads_of(self.loaded_model.model) * max(row.length for row in rows) ** 2 <= KEPT
        reads, exchange = self._reads, rows[0].exchange
        # The pictures of a prompt have no entry per row, nor have the states of tokens that are not words.
        is_of_rows = exchange.image_prompt is None or not (reads.inputs != "none" or reads.state_gradients)
        has_entries = is_of_rows and (exchange.is_text or not reads.states)
        return is_one and keeps and has_entries and self._takes_rows_back_together

    @property
    def _takes_rows_back_together(self) -> bool:
        reads = self._reads
        belongs_to_one = reads.has_relevance or reads.states is True or reads.path or reads.biases
        return reads.takes_gradients and not belongs_to_one and self.readout is None

    @property
    def _reads(self) -> Reads:
        return self.choice.method.reads_with(self.choice.options)

    def _by_shared_pass(
        self, rows: Sequence[ResponseRow]
    ) -> list[tuple[ExchangeRowScores, list[TokenStatistics] | None]]:
        """Explain the rows of one exchange by one forward and one backward pass."""
        longest = max(rows, key=lambda row: row.length)
        trace, weighted = self._trace(rows, False, row_weights(rows, longest.length), longest)
        trace = read_at(trace, weighted)
        attribution = self.choice.method(trace, **self.choice.options)
        logits = token_logits(trace.output)[0]
        statistics = _statistics_of(longest, logits, trace.question.inputs) if longest.has_last else None
        return [(scores, statistics) for scores in row_scores(weighted, attribution, trace)]

    def _shares_graph(self, exchange: Exchange) -> bool:
        """Whether the rows of an exchange are backpropagated in turn on one graph."""
        reads = self._reads
        is_kept = reads.has_graph and not (reads.path or reads.biases) and self.readout is None
        return is_kept and exchange.encoder_part is not None

    def _by_one_graph(
        self, rows: Sequence[ResponseRow]
    ) -> Iterator[tuple[ExchangeRowScores, list[TokenStatistics] | None]]:
        """Explain the rows of one exchange by one forward pass, and a backward pass for each row."""
        longest = max(rows, key=lambda row: row.length)
        inputs = row_inputs(self.loaded_model, [longest], every_logit=self._reads.logits)
        shift = first_logit(inputs)
        scores = [self.make_score(row_predictions([row], shift), 1) for row in rows]
        weights = [row_weights([row], longest.length) for row in rows]
        traces = build.trace_each(
            self.loaded_model.model, inputs, scores, weights, reads=self._reads, backward=self.choice.backward
        )
        for row, trace in zip(rows, traces, strict=True):
            trace = read_at(trace, [row])
            attribution = self.choice.method(trace, **self._options([row], longest.length))
            (scores_of_row,) = row_scores([row], attribution, trace)
            logits = token_logits(trace.output)[0]
            yield scores_of_row, _statistics_of(row, logits, inputs) if row is longest and row.has_last else None

    def _by_one_pass(
        self, items: Sequence[tuple[Exchange, Sequence[ResponseRow]]], checkpoint: bool | None
    ) -> list[ExchangeScores]:
        """Explain the rows of each exchange from one pass, one row of every exchange at a time."""
        whole = [_whole(exchange) for exchange, _ in items]
        trace, _ = self._trace(whole, checkpoint, row_weights(whole, max(row.length for row in whole)))
        logits, first = token_logits(trace.output), first_logit(trace.question.inputs)
        rows_of = [[weigh_at(row, logits[number], first) for row in own] for number, (_, own) in enumerate(items)]
        scores: list[list[ExchangeRowScores]] = [[] for _ in items]
        for turn in range(max(len(rows) for rows in rows_of)):
            rows = [own[min(turn, len(own) - 1)] for own in rows_of]
            attribution = self.choice.method(read_at(trace, rows), **self._options(rows, trace.mask.shape[1]))
            for own_scores, each, own in zip(scores, row_scores(rows, attribution, trace), rows_of, strict=True):
                if turn < len(own):
                    own_scores.append(each)
        return [
            ExchangeScores(each, _statistics_of(row, logits[number], trace.question.inputs))
            for number, (row, each) in enumerate(zip(whole, scores, strict=True))
        ]

    def _statistics(self, exchanges: Sequence[Exchange], checkpoint: bool | None) -> list[list[TokenStatistics]]:
        return exchange_statistics(self.loaded_model, exchanges)

    def _options(self, rows: Sequence[ResponseRow], length: int) -> dict[str, Any]:
        """The method's options, with the span of the response if the method takes one."""
        options = dict(self.choice.options)
        if isinstance(units := options.get("units"), dict):  # a unit for each pixel, the same for all rows
            options["units"] = {
                name: one.expand(len(rows), -1, -1) if isinstance(one, Tensor) else one for name, one in units.items()
            }
        if "span" in self.choice.method.options and options.get("span") is None:
            first = torch.tensor([[row.exchange.first] for row in rows])
            options["span"] = torch.arange(length) >= first
        return options


@torch.no_grad()
def exchange_statistics(loaded_model: LoadedModel, exchanges: Sequence[Exchange]) -> list[list[TokenStatistics]]:
    """Statistics of each response token, computed without a graph."""
    rows = [_whole(exchange) for exchange in exchanges]
    inputs = row_inputs(loaded_model, rows)
    logits = token_logits(loaded_model.model(**inputs))
    return [_statistics_of(row, logits[number], inputs) for number, row in enumerate(rows)]


def row_predictions(rows: Sequence[ResponseRow], shift: int, *, are_of_one: bool = False) -> list[NextTokenLogits]:
    """The predicted tokens of each row: a score each, of an example each or all of one."""
    return [
        NextTokenLogits(number, 0 if are_of_one else number, position - shift, row.exchange.response[token], weight)
        for number, row in enumerate(rows)
        for position, token, weight in zip(row.positions, row.tokens, row.focus, strict=True)
    ]


def _whole(exchange: Exchange) -> ResponseRow:
    return ResponseRow(exchange, tuple(range(len(exchange.response))))


def _statistics_of(row: ResponseRow, logits: Tensor, inputs: Inputs) -> list[TokenStatistics]:
    exchange = row.exchange
    start = exchange.first - 1 - first_logit(inputs)
    return token_statistics(logits[start : start + len(exchange.response)], exchange.response)

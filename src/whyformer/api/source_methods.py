"""Explain responses by methods that run the model again without some of the sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from whyformer.api.exchange_scores import exchange_statistics
from whyformer.api.focus import weigh_case
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.masked_attention import masked_attention
from whyformer.api.part_logits import source_logits
from whyformer.api.replies import Reply
from whyformer.api.response_case import ResponseCase, response_tokens
from whyformer.axes import SourceScores
from whyformer.errors import WhyformerError
from whyformer.inputs.sources import Source
from whyformer.inputs.teacher_forcing import ResponseRow
from whyformer.methods.registry import Method
from whyformer.models.loading import LoadedModel
from whyformer.removal.response_scorer import ResponseScorer, scorer_ablation
from whyformer.removal.units import Ablation, SubsetCount
from whyformer.results.response import Response
from whyformer.results.response_parts import ResponseToken
from whyformer.results.source_pooling import SourceAggregate


@dataclass(frozen=True)
class SourceQuestion:
    """The settings of a method that explains responses by removing sources.

    Attributes:
        scorer: The model, loaded or served.
        tokens: A function that returns the tokens of a reply, each with what the model says of it.
        method: The method.
        options: Its options.
        aggregate: How the scores of sources are combined when they are regrouped.
        progress: Whether to show a progress bar.
    """

    scorer: ResponseScorer
    tokens: Callable[[Reply], tuple[ResponseToken, ...]]
    method: Method
    options: Mapping[str, Any]
    aggregate: SourceAggregate = "positive"
    progress: bool = False

    def __call__(self, case: ResponseCase, chosen: Sequence[int] | None = None, remark: str = "") -> Response:
        """Explain one prompt; with another reply, subtract the scores of that.

        Only the chosen sources are removed, by default all; the others have score 0.
        """
        case = weigh_case(self.scorer, case)
        reply, sources = case.reply, case.sources
        chosen = range(len(sources)) if chosen is None else chosen
        removable = [sources[number] for number in chosen]
        options = {name: parameter.default for name, parameter in self.method.options.items()} | dict(self.options)
        count = SubsetCount(-1)  # the first run is of the whole prompt
        scores = np.zeros((len(case.rows), len(sources)))
        scores[:, list(chosen)] = self._scores(reply, case.rows, removable, count)
        remarks = [*count.remarks(options), *([remark] if remark else [])]
        if case.other is not None:
            scores[:, list(chosen)] -= self._scores(case.other, case.other_rows, removable, count)
        nothing = () if scores.any() else (f"{self.method.name} found nothing in the prompt: every score is zero.",)
        return Response(
            prompt=reply.prompt,
            text=reply.text,
            tokens=self.tokens(reply),
            rows=case.spans,
            sources=sources,
            scores=scores.astype(np.float32),
            method=self.method.name,
            model=self.scorer.name,
            aggregate=self.aggregate,
            focus=case.weights,
            leaves_out_sinks=False,
            options=options | case.options,
            notes=(*reply.notes, *remarks, *nothing),
            seed=reply.seed,
        )

    def _scores(
        self, reply: Reply, rows: Sequence[ResponseRow], sources: Sequence[Source], count: SubsetCount
    ) -> SourceScores:
        ablation = count.counting(response_ablation(self.scorer, reply, rows, sources, progress=self.progress))
        return self.method.of_sources(ablation, **self.options)


def source_question(
    loaded_model: LoadedModel,
    method: Method,
    options: Mapping[str, Any],
    *,
    aggregate: SourceAggregate,
    batch_size: int | None,
    progress: bool,
) -> SourceQuestion:
    """The settings for a loaded model."""

    def tokens(reply: Reply) -> tuple[ResponseToken, ...]:
        (statistics,) = exchange_statistics(loaded_model, [reply.exchange])
        return response_tokens(loaded_model, reply, statistics)

    scorer = LoadedScorer(loaded_model, batch_size)
    return SourceQuestion(scorer, tokens, method, options, aggregate, progress)


def response_ablation(
    scorer: ResponseScorer,
    reply: Reply,
    rows: Sequence[ResponseRow],
    sources: Sequence[Source],
    *,
    progress: bool = False,
) -> Ablation:
    """The log-probabilities of a reply's rows as a function of which sources its prompt keeps."""
    if not reply.exchange.is_text:
        raise WhyformerError(
            "Removal methods remove sources from a text, and this prompt has more than words: use a method that reads "
            "the model, such as generic_attention."
        )
    places = [(source.start, source.end) for source in sources]
    tokens, weights = [row.tokens for row in rows], [row.focus for row in rows]
    response = reply.text, reply.tokens
    ablation = scorer_ablation(scorer, reply.prompt, places, response, tokens, weights=weights, progress=progress)
    if not isinstance(scorer, LoadedScorer):
        return ablation
    model = scorer.loaded_model
    return replace(
        ablation,
        attend=partial(masked_attention, model, rows, sources),
        split=partial(source_logits, model, rows, sources),
    )


def check_backward(method: Method, backward: str | None) -> Method:
    """Check that no backward rules are given for a method without a backward pass."""
    if backward not in (None, "gradient"):
        raise WhyformerError(f"{method.name} reads no gradients, so backward={backward!r} has no effect: leave it out.")
    return method

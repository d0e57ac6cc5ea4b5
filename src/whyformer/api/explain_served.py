"""Explain responses of served models: check the question, and rank the sources by a local model beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from whyformer.api.focus import Focus, focused_case
from whyformer.api.replies import Reply
from whyformer.api.response_case import ResponseCase
from whyformer.api.served_scorer import ServedScorer
from whyformer.api.served_support import served_reply, served_support
from whyformer.api.source_methods import SourceQuestion
from whyformer.errors import WhyformerError, check_count
from whyformer.inputs.sources import Sources, sources_of
from whyformer.inputs.spans import SpanSelection, spans_of
from whyformer.inputs.tool_prompt import reply_text
from whyformer.methods.option_checks import check_options
from whyformer.methods.registry import Method, method_named, source_methods
from whyformer.results.response import Response
from whyformer.results.source_pooling import SourceAggregate
from whyformer.results.support import Support
from whyformer.served.endpoint import Endpoint
from whyformer.served.served_tokens import ScoreFunction

SERVED_DEFAULT = "context_ablation"  # the method for served models: the best of those that read no insides
CONFIRMED = 8  # sources that a served model is asked about, if a proxy ranks them


@dataclass(frozen=True)
class Proxy:
    """A local model that ranks sources, so that only the first of them are removed from the served model's prompt.

    Attributes:
        explain: `explain_response` with the local model.
        confirm: The number of sources that are removed.
    """

    explain: Callable[..., Response]
    confirm: int

    def __call__(self, prompt: Any, context: Sequence[Any] | None, case: ResponseCase) -> tuple[list[int], str]:
        """The indices of the sources to remove, and a remark."""
        places = [(source.start, source.end) for source in case.sources]
        spans = [(span.start, span.end) for span in case.spans]
        local = self.explain(prompt, case.reply.text, context=context, sources=places, units=spans)
        if local.prompt.text != case.reply.prompt.text:
            raise WhyformerError(
                f"The proxy {local.model} reads another text than the served model: its chat template changes it."
            )
        order = np.argsort(-local.share.max(axis=0), kind="stable")[: self.confirm]
        remark = (
            f"Of {len(places)} sources only {len(order)} were removed from the prompt, which the proxy {local.model} "
            f"ranks first by {local.manner}; the others have score 0."
        )
        return sorted(order.tolist()), remark if len(order) < len(places) else ""


@dataclass(frozen=True)
class ServedQuestion:
    """The settings for explaining responses of a served model."""

    scorer: ServedScorer
    ask: SourceQuestion
    layout: str | None = None
    units: SpanSelection = None
    sources: Sources = None
    proxy: Proxy | None = None

    def __call__(
        self, prompt: Any, response: Any, context: Sequence[Any] | None, contrast: Any, focus: Focus | None
    ) -> Response:
        """Explain one response; with another one, subtract its scores."""
        read = self.scorer.prompt(prompt, context, self.layout)
        reply = served_reply(self.scorer, read, reply_text(self.scorer, prompt, response))
        other = None if contrast is None else served_reply(self.scorer, read, reply_text(self.scorer, prompt, contrast))
        sources = sources_of(read, self.sources)
        units = "response" if self.units is None and other is not None else self.units
        spans = spans_of(reply.text, reply.tokens, self._checked_units(reply, units))
        case = focused_case(self.scorer, reply, other, spans, sources, "none" if focus is None else focus)
        support_of = partial(self._support, case)
        if self.proxy is None:
            return replace(self.ask(case), support_of=support_of)
        chosen, remark = self.proxy(prompt, context, case)
        return replace(self.ask(case, chosen, remark), support_of=support_of)

    def _support(self, case: ResponseCase, **options: Any) -> Support:
        """The verdicts on a response."""
        return served_support(self.scorer, case.reply, case.spans, case.sources, options)

    def _checked_units(self, reply: Reply, units: SpanSelection) -> SpanSelection:
        """The spans to explain, which one number for the whole response does not tell apart."""
        if len(reply.tokens) > 1 or isinstance(self.scorer.score, Endpoint):
            return units
        if units not in (None, "response"):
            raise WhyformerError(
                f"{self.scorer.name} returned one number for the response, so that units={units!r:.40} cannot be told "
                "apart: return a (text, log-probability) pair for each token."
            )
        return "response"


def explain_served(
    cases: Sequence[Mapping[str, Any]],
    score: ScoreFunction,
    method: str | None,
    options: Mapping[str, Any],
    unusable: Mapping[str, Any],
    *,
    processor: Any = None,
    aggregate: SourceAggregate = "positive",
    proxy: Proxy | None = None,
    progress: bool = False,
    **settings: Any,
) -> list[Response]:
    """Explain responses from log-probabilities alone.

    `cases` are the prompts, each with its response, context, contrast and focus. `unusable` are arguments that a served
    model has no use for, None or False unless the caller gave them.
    """
    if not callable(score):
        raise WhyformerError(
            f"score={score!r:.40}: an Endpoint, or a function (prompts, responses) that returns log-probabilities."
        )
    given = next((name for name, is_given in unusable.items() if is_given), None)
    if given is not None:
        raise WhyformerError(f"{given}=… has no effect on a served model (score=…): leave it out.")
    chosen = served_method(method)
    check_options(chosen, dict(options))
    if proxy is not None:
        check_count("confirm", proxy.confirm)
    scorer = ServedScorer(score, getattr(processor, "tokenizer", processor))

    def tokens(reply: Reply) -> tuple[Any, ...]:
        return scorer.response_tokens(reply.prompt, reply.text)

    ask = SourceQuestion(scorer, tokens, chosen, options, aggregate, progress)
    question = ServedQuestion(scorer, ask, proxy=proxy, **settings)
    return [question(**case) for case in cases]


def served_method(name: str | None) -> Method:
    """The method for a served model, which must need log-probabilities alone."""
    method = method_named(SERVED_DEFAULT if name is None else name)
    if not method.reads.subsets:
        others = ", ".join(sorted(name for name, one in source_methods().items() if one.reads.subsets))
        raise WhyformerError(
            f"{method.name} reads the insides of a model, which score=… does not show: choose one that removes "
            f"sources, such as {others} or kernel_shap."
        )
    return replace(method, kinds=("response",))

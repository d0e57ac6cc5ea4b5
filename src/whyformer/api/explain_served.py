"""Explain responses of served models: check the question, and rank the sources by a local model beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whyformer.api.served_response import ServedCase, ServedModel, ServedQuestion, served_method
from whyformer.errors import WhyformerError, check_count
from whyformer.methods.option_checks import check_options
from whyformer.results.response import Response
from whyformer.served.scored_tokens import ScoreFunction

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

    def __call__(self, prompt: Any, context: Sequence[Any] | None, case: ServedCase) -> tuple[list[int], str]:
        """The indices of the sources to remove, and a remark."""
        places = [(source.start, source.end) for source in case.sources]
        spans = [(span.start, span.end) for span in case.spans]
        local = self.explain(prompt, case.text, context=context, sources=places, units=spans)
        if local.prompt.text != case.prompt.text:
            raise WhyformerError(
                f"The proxy {local.model} reads another text than the served model: its chat template changes it."
            )
        order = np.argsort(-local.share.max(axis=0), kind="stable")[: self.confirm]
        remark = (
            f"The served model was asked about {len(order)} of {len(places)} sources, which the proxy {local.model} "
            f"ranks first by {local.manner}; the others have score 0."
        )
        return sorted(order.tolist()), remark if len(order) < len(places) else ""


def explain_served(
    cases: Sequence[Mapping[str, Any]],
    score: ScoreFunction,
    method: str | None,
    options: Mapping[str, Any],
    unusable: Mapping[str, Any],
    *,
    processor: Any = None,
    proxy: Proxy | None = None,
    progress: bool = False,
    **settings: Any,
) -> list[Response]:
    """Explain responses from log-probabilities alone.

    `cases` are the prompts, each with its response, context and contrast; `unusable` are arguments that a served model
    has no use for, None or False unless the caller gave them.
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
    served = ServedModel(score, getattr(processor, "tokenizer", processor), progress)
    ask = ServedQuestion(served, chosen, options, preselect=proxy, **settings)
    return [ask(**case) for case in cases]

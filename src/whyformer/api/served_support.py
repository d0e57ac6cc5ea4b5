"""Replies of served models, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whyformer.api.assessment import assess, checked_options
from whyformer.api.calibrations import served_calibration
from whyformer.api.replies import Reply
from whyformer.api.served_scorer import ServedScorer
from whyformer.errors import WhyformerError
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.sources import Source
from whyformer.inputs.spans import Span
from whyformer.inputs.teacher_forcing import Exchange
from whyformer.results.support import Support


def served_reply(scorer: ServedScorer, prompt: Prompt, response: Any) -> Reply:
    """The reply of a served model: nothing is generated."""
    if not isinstance(response, str) or not response.strip():
        raise WhyformerError(
            f"A response of a served model is the text that it wrote, not {response!r:.40}: with score=… nothing is "
            "generated."
        )
    first = scorer.scored(prompt.rendered, response)[0]
    merged = (
        f"A token of the server covers the end of the prompt and the beginning of the response, {first.text!r}: its "
        "log-probability counts with the response."
    )
    notes = (merged,) if first.reaches_back else ()
    return Reply(prompt, response, scorer.response(prompt, response), Exchange((), ()), notes=notes)


def served_support(
    scorer: ServedScorer, reply: Reply, spans: Sequence[Span], sources: Sequence[Source], options: Mapping[str, Any]
) -> Support:
    """The verdicts on a reply, by thresholds unless a calibration is named: the server's weights are not known."""
    chosen = checked_options(options)
    calibration = None if chosen.calibration is None else served_calibration(chosen.calibration)
    return assess(scorer, reply, spans, sources, calibration=calibration, options=chosen)

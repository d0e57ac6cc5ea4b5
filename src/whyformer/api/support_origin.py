"""The support of a response that was just explained: its model, as long as that is in memory."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from whyformer.api.assessment import assess, checked_options
from whyformer.api.calibrations import calibration_named, calibration_of
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.response_case import ResponseCase, explain_cases
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.inputs.sources import Source
from whyformer.inputs.spans import Span
from whyformer.inputs.teacher_forcing import ResponseRow
from whyformer.models.loading import LoadedModel
from whyformer.results.support import Support

# Its largest signed score of a source tells invented values from true ones best (docs/results/support.md).
SIGNED_METHOD = "evidence"


@dataclass(frozen=True, eq=False)
class SupportOrigin:
    """The arguments of an `explain_response` call. The model is held weakly: responses must not keep it in memory."""

    module: weakref.ref[nn.Module]
    processor: Any
    name: str
    place: str | None
    case: ResponseCase
    batch_size: int | None = None

    @classmethod
    def of(cls, loaded_model: LoadedModel, case: ResponseCase, batch_size: int | None) -> SupportOrigin:
        """Record the model and the case."""
        about = loaded_model.processor, loaded_model.name, loaded_model.place
        return cls(weakref.ref(loaded_model.model), *about, case, batch_size)

    def __call__(self, **options: Any) -> Support:
        module = self.module()
        if module is None:
            raise WhyformerError(f"{self.name} is no longer in memory: keep the model, or explain with support=True.")
        return support_of_case(
            LoadedModel(module, self.processor, self.name, self.place), self.case, self.batch_size, options
        )

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Drop the model from a copy or pickle."""
        return type(None), ()


def support_of_case(
    loaded_model: LoadedModel, case: ResponseCase, batch_size: int | None, options: dict[str, Any]
) -> Support:
    """The verdicts on a case, by a loaded model."""
    exchange = case.reply.exchange
    if not exchange.is_text:
        raise WhyformerError(
            "Support asks again without some sources of a text, and this prompt has pictures or sounds: leave it out."
        )
    chosen = checked_options(options)
    name = chosen.calibration
    calibration = calibration_of(loaded_model) if name is None else calibration_named(name)
    settings: dict[str, Any] = {"calibration": calibration, "options": chosen}

    def score(spans: Sequence[Span], sources: Sequence[Source]) -> np.ndarray | None:
        return signed_scores(loaded_model, case, spans, sources, batch_size=batch_size)

    scorer = LoadedScorer(loaded_model, batch_size)
    return assess(scorer, case.reply, case.spans, case.sources, score=score, **settings)


def signed_scores(
    loaded_model: LoadedModel,
    case: ResponseCase,
    spans: Sequence[Span],
    sources: Sequence[Source],
    *,
    batch_size: int | None = None,
) -> np.ndarray | None:
    """The signed scores [span, source] of the sources; None for a model that the method cannot follow."""
    different = [*dict.fromkeys(spans)]
    rows = tuple(ResponseRow(case.reply.exchange, span.tokens) for span in different)
    plain = replace(
        case, spans=tuple(different), sources=tuple(sources), rows=rows, other=None, other_rows=(), focus="none"
    )
    try:
        (response,) = explain_cases(
            loaded_model, [plain], SIGNED_METHOD, None, {}, aggregate="sum", batch_size=batch_size
        )
    except UnsupportedModel:
        return None
    return response.scores.astype(np.float64)[[different.index(span) for span in spans]]

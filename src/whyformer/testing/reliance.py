"""The effect of removing a cue from some examples, and the message that shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from whyformer.api.predictions import EXAMPLES_AT_ONCE, FunctionScores
from whyformer.errors import WhyformerError
from whyformer.inputs.read import strings_are_texts
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.render.text_spans import one_line
from whyformer.surveys.cues import Cue
from whyformer.surveys.proof_run import parts_at_places
from whyformer.surveys.removal_effects import RemovalEffect, removal_effects
from whyformer.surveys.respondents import (
    Respondent,
    check_respondent,
    check_same_kind,
    labels_of_respondent,
    removable_sample,
)
from whyformer.surveys.survey_data import SurveySample, survey_data
from whyformer.surveys.survey_plan import CUES_BY_KIND

SHOWN_EFFECTS = 10  # examples in a message
EXCERPT = 60  # characters of an example


@dataclass(frozen=True)
class Respondents:
    """A model or a function, as a test names it."""

    model: Any
    processor: Any = None
    predict: Callable[[list[Any]], Any] | None = None
    labels: Sequence[str] | None = None

    def resolve(self) -> Respondent:
        """The loaded model, or the function with its labels."""
        if (self.model is None) == (self.predict is None):
            raise WhyformerError("Give either a model, or None and a function by predict=.")
        if self.predict is not None:
            names = dict(enumerate(map(str, self.labels or ())))
            return FunctionScores(self.predict, names, EXAMPLES_AT_ONCE, False)
        if self.labels is not None:
            raise WhyformerError("labels goes with predict: leave it out for a model.")
        loaded_model = resolve_model(self.model, self.processor)
        check_respondent(loaded_model)
        return loaded_model


@dataclass(frozen=True, eq=False)
class CueEvidence:
    """The effects of removing a cue from the examples that have it, with the examples' excerpts."""

    name: str
    cue: Cue
    effects: tuple[RemovalEffect, ...]
    excerpts: tuple[str, ...]
    labels: tuple[str, ...]
    without_cue: int

    @property
    def excess(self) -> float:
        """The mean drop of the answer's log-odds beyond that without random equal parts, in nats."""
        return float(np.mean([effect.drops[0] - effect.drops[1:].mean() for effect in self.effects]))

    @property
    def change(self) -> float:
        """The mean absolute change of the answer's log-odds, in nats."""
        return float(np.mean([abs(effect.drops[0]) for effect in self.effects]))

    def message(self, *, relies: bool, tolerance: float) -> str:
        """A failed assertion, with the effect in each example."""
        count = len(self.effects)
        over = f"over {count} example{'s' * (count > 1)}"
        if relies:
            first = (
                f"{self.name} relies on “{self.cue}”: without it the log-odds of the answer change by "
                f"{self.change:.2f} nats {over}, and {tolerance:g} are allowed."
            )
        else:
            first = (
                f"{self.name} does not rely on “{self.cue}”: without it the log-odds of the answer fall by "
                f"{self.excess:.2f} nats more than without random equal parts {over}, and more than {tolerance:g} "
                "are needed."
            )
        left_out = f"Without it from the start: {self.without_cue}." if self.without_cue else ""
        return "\n".join([" ".join([first, left_out]).rstrip(), *self._rows()])

    def _rows(self) -> list[str]:
        rows = [f"{'drop':>7} {'random':>7}  answer, and without the cue"]
        order = np.argsort([-abs(effect.drops[0]) for effect in self.effects], kind="stable")
        for place in order[:SHOWN_EFFECTS].tolist():
            effect = self.effects[place]
            answer = self._label(effect.answer)
            other = self._label(effect.without) if effect.flips[0] else "the same"
            drops = f"{effect.drops[0]:7.2f} {effect.drops[1:].mean():7.2f}"
            rows.append(f"{drops}  {answer} → {other}: {self.excerpts[place]}")
        hidden = len(self.effects) - SHOWN_EFFECTS
        return [*rows, *([f"        … and {hidden} more"] if hidden > 0 else [])]

    def _label(self, index: int) -> str:
        return self.labels[index] if index < len(self.labels) else f"label {index}"


def check_tolerance(tolerance: float) -> None:
    """Validate a tolerance in nats."""
    if not tolerance >= 0:
        raise WhyformerError(f"tolerance={tolerance:g}: nats, at least 0.")


def cue_evidence(respondents: Respondents, examples: Any, cue: str, *, seed: int) -> CueEvidence:
    """Remove a cue from the examples that have it."""
    respondent, data = respondents.resolve(), survey_data(examples, None, None, None)
    is_multi = isinstance(respondent, LoadedModel) and respondent.task.answer == "labels"
    wanted: Cue | None = None
    effects: list[RemovalEffect] = []
    excerpts: list[str] = []
    for number in range(len(data)):
        sample = data[number]
        if wanted is None:
            check_same_kind(respondent, sample, "examples")
            wanted = CUES_BY_KIND[sample.kind](cue)
        with strings_are_texts():
            removable = removable_sample(respondent, sample)
            parts = parts_at_places(removable, frozenset([wanted]))
            own = removal_effects(removable, parts, is_multi=is_multi, seed=seed)
        effects += own
        excerpts += [_excerpt(sample)] * len(own)
    if wanted is None or not effects:
        raise WhyformerError(
            f"No example has {cue!r} and something else besides it ({len(data)} given), so there is nothing to test: "
            "change the cue or the examples."
        )
    labels = labels_of_respondent(respondent)
    left_out = len(data) - len(effects)
    return CueEvidence(respondent.name, wanted, tuple(effects), tuple(excerpts), labels, left_out)


def _excerpt(sample: SurveySample) -> str:
    text = sample.example if isinstance(sample.example, str) else sample.name
    return one_line(text) if len(text) <= EXCERPT else f"{one_line(text[:EXCERPT])} …"

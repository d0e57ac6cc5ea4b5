"""From figures to a calibrated verdict: a logistic model per verdict, and when to give none."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from whyformer.api.verdict_figures import FIGURES, JUDGED, figures_of
from whyformer.api.verdict_rules import TAU_NECESSITY, does_not_know, has_counterevidence, prefers_another
from whyformer.errors import WhyformerError
from whyformer.inputs.verdicts import NOT_CALIBRATED, Verdict
from whyformer.results.support import UnitSupport, VerdictError

LEAST_PROBABILITY = 0.4  # below which no calibrated verdict is given: chosen by cross-validation on SmolLM2
INDIFFERENCE_CANDIDATES = (0.0, 0.5, 1.0, 2.0, 3.0)  # for the nats below which the model knows no answer of its own
WRONG_COSTS = 2.0  # a wrong verdict, in units of one withheld


@dataclass(frozen=True)
class VerdictModel:
    """A logistic model of one verdict against the others: its log-odds are intercept + Σ coefficient · figure."""

    intercept: float
    coefficients: Mapping[str, float]

    def probability(self, figures: Mapping[str, float]) -> float:
        """The probability of the verdict, given a unit's figures."""
        return 1 / (1 + math.exp(-min(max(self.log_odds(figures), -50.0), 50.0)))

    def log_odds(self, figures: Mapping[str, float]) -> float:
        """The log-odds of the verdict; figures that are missing are left out of the sum."""
        known = (weight * figures[name] for name, weight in self.coefficients.items() if name in figures)
        return self.intercept + sum(known)

    def weight(self, name: str) -> float:
        """The coefficient of a figure."""
        return self.coefficients.get(name, 0.0)


@dataclass(frozen=True)
class Calibration:
    """The verdict models of a language model, and their error rates on data that they were not fitted on.

    Attributes:
        model: The name of the model.
        digest: The SHA-256 of its weights, or an empty string for a model whose weights are not known.
        data: What it was calibrated on, in words.
        models: A model per verdict.
        least: The probability below which no verdict is given.
        errors: The error rate of each verdict.
        tau: The necessity, in nats, from which a source counts as used.
        indifference: If the model finds another answer likelier, but by fewer nats than this, it does not know.
        report: How well the verdicts did on the units that they were not fitted on.
        served: The same by the figures of models that are only served.
        typical: The value that stands in for a figure which some of the units lacked that it was fitted on.
    """

    model: str
    digest: str
    data: str
    models: Mapping[str, VerdictModel]
    least: float
    errors: Mapping[str, VerdictError]
    tau: float = TAU_NECESSITY
    indifference: float = 0.0
    report: Mapping[str, Any] = field(default_factory=dict)
    served: Calibration | None = None
    typical: Mapping[str, float] = field(default_factory=dict)

    @property
    def figures(self) -> tuple[str, ...]:
        """The figures that its models need."""
        return needed_figures(self.models)

    def figures_of(self, unit: UnitSupport) -> dict[str, float]:
        """The figures of a unit, with typical values for those that it cannot have."""
        measured = figures_of(unit)
        lacking = {
            name: value for name, value in self.typical.items() if name not in JUDGED or unit.judgement is not None
        }
        return lacking | measured

    def models_of(self, unit: UnitSupport) -> dict[str, VerdictModel]:
        """The models of the verdicts that a unit can get: the first of a response repeats nothing."""
        is_first = unit.without_earlier is None
        return {name: one for name, one in self.models.items() if not (is_first and name == "repeats the response")}

    def settled_figures(self, unit: UnitSupport) -> dict[str, float] | None:
        """The figures of a unit; None if those that were not measured could still change its verdict.

        Missing figures that cannot have the values that speak most against the verdict.
        """
        known, possible = self.figures_of(unit), self.models_of(unit)
        missing = [name for name in needed_figures(possible) if name not in known]
        if not missing:
            return known
        for verdict, model in possible.items():
            figures = known | {name: FIGURES[name][model.weight(name) < 0] for name in missing}
            others = (other for name, other in possible.items() if name != verdict)
            leads = all(least_lead(model, other, known, missing) > 0 for other in others)
            is_evident = verdict != "contradicted" or prefers_another(unit)
            if leads and is_evident and model.probability(figures) >= self.least:
                return figures
        return None

    def decide(self, unit: UnitSupport, figures: Mapping[str, float] | None = None) -> tuple[Verdict, dict[str, float]]:
        """The verdict on a unit, and the probability of each."""
        figures = self.figures_of(unit) if figures is None else figures
        probabilities = {name: round(model.probability(figures), 4) for name, model in self.models_of(unit).items()}
        verdict: Any = max(probabilities, key=lambda name: probabilities[name])
        if probabilities[verdict] < self.least:
            return "cannot tell", probabilities
        if verdict == "repeats the response":
            return verdict, probabilities
        if does_not_know(unit, self.indifference):
            return "cannot tell", probabilities
        if verdict == "contradicted" and not has_counterevidence(unit):
            return "not supported", probabilities
        return verdict, probabilities

    def to_dict(self) -> dict[str, Any]:
        """The calibration as plain data."""
        document = {
            "model": self.model,
            "digest": self.digest,
            "data": self.data,
            "least": self.least,
            "indifference": self.indifference,
            "tau": self.tau,
            "verdicts": {
                name: {"intercept": one.intercept, "coefficients": dict(one.coefficients)}
                for name, one in self.models.items()
            },
            "typical": dict(self.typical),
            "errors": {name: vars(one) for name, one in self.errors.items()},
            "report": dict(self.report),
        }
        return document if self.served is None else document | {"served": self.served.to_dict()}


def needed_figures(models: Mapping[str, VerdictModel]) -> tuple[str, ...]:
    """The figures that these models need, each once."""
    return tuple(dict.fromkeys(name for model in models.values() for name in model.coefficients))


def least_lead(one: VerdictModel, other: VerdictModel, known: Mapping[str, float], missing: Sequence[str]) -> float:
    """By how much the log-odds of one verdict exceed those of another at least, whatever the missing figures are."""
    ranges = ((one.weight(name) - other.weight(name), FIGURES[name]) for name in missing)
    return one.log_odds(known) - other.log_odds(known) + sum(min(w * low, w * high) for w, (low, high) in ranges)


def with_indifference(calibration: Calibration, units: Sequence[Any]) -> Calibration:
    """The calibration that gives no verdict where the model hardly prefers its own answer, as far as that pays.

    Each unit has a `unit` with figures and its `right` verdicts. To withhold one of those costs 1, another WRONG_COSTS.
    """

    def cost(candidate: Calibration) -> float:
        given = [(candidate.decide(one.unit)[0], one.right) for one in units]
        return sum(0.0 if v in right else 1.0 if v == "cannot tell" else WRONG_COSTS for v, right in given)

    return min((replace(calibration, indifference=one) for one in INDIFFERENCE_CANDIDATES), key=cost)


def read_calibration(document: Any) -> Calibration:
    """Restore a calibration from plain data."""
    try:
        models = {
            str(name): VerdictModel(
                float(one["intercept"]), {clip_name(key): float(value) for key, value in one["coefficients"].items()}
            )
            for name, one in document["verdicts"].items()
        }
        errors = {
            str(name): VerdictError(float(one["rate"]), float(one["low"]), float(one["high"]), int(one["count"]))
            for name, one in document["errors"].items()
        }
        name, digest, data = (str(document[key]) for key in ("model", "digest", "data"))
        least, tau = float(document["least"]), float(document["tau"])
        indifference, served = float(document.get("indifference", 0.0)), document.get("served")
        report = dict(document.get("report", {}))
        other = None if served is None else read_calibration(served)
        typical = {clip_name(key): float(value) for key, value in document.get("typical", {}).items()}
        return Calibration(name, digest, data, models, least, errors, tau, indifference, report, other, typical)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WhyformerError(f"This is not a calibration: {type(error).__name__} {error!s:.80}.") from error


def clip_name(name: str) -> str:
    """Check that a figure is known."""
    if name not in FIGURES:
        raise ValueError(f"no figure named {name!r}")
    return name


@cache
def bundled_calibrations() -> tuple[Calibration, ...]:
    """The calibrations that come with the package."""
    text = (files("whyformer") / "api" / "calibrations.json").read_text(encoding="utf-8")
    return tuple(read_calibration(one) for one in json.loads(text))


def uncalibrated_or(calibration: Calibration | None) -> str:
    """The data that verdicts were calibrated on, in words."""
    return NOT_CALIBRATED if calibration is None else calibration.data

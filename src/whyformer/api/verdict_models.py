"""From figures to a verdict: a logistic model per verdict where the model is calibrated, otherwise thresholds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.facts.prose_register import word_overlap
from whyformer.inputs.verdicts import Verdict
from whyformer.results.support import NOT_CALIBRATED, UnitSupport, VerdictError

# Thresholds in nats for models that are not calibrated.
TAU_NECESSITY, TAU_TOKEN, TAU_ODDS, TAU_JUDGEMENT = 2.0, -1.0, -3.0, 1.0
CANDIDATES = (0.0, 0.3, 0.4, 0.5, 0.6)  # for the probability below which no calibrated verdict is given
WRONG_COSTS = 2.0  # a wrong verdict, in units of one withheld
# Each figure with the range that it is clipped to: beyond it, more makes no difference.
FIGURES: dict[str, tuple[float, float]] = {
    "per_token": (-6.0, 0.0),
    "lowest": (-12.0, 0.0),
    "necessity": (-8.0, 12.0),
    "largest_gain": (0.0, 8.0),
    "log_odds": (-15.0, 0.0),
    "own_per_token": (-3.0, 0.0),
    "agreement": (0.0, 1.0),
    "repetition": (-8.0, 12.0),
    "judgement": (-6.0, 6.0),
    "judgement_gain": (-6.0, 6.0),
    "score": (-2.0, 10.0),
}
SERVED_FIGURES = tuple(name for name in FIGURES if name != "score")


def figures_of(unit: UnitSupport) -> dict[str, float]:
    """The figures of a unit that verdicts depend on; those that were not measured are left out."""
    odds, own = unit.log_odds, unit.own_answer
    values: dict[str, float | None] = {
        "per_token": unit.per_token,
        "lowest": unit.lowest,
        "necessity": unit.necessity,
        "largest_gain": unit.largest_gain,
        "log_odds": odds,
        "own_per_token": None if not own or odds is None else (unit.log_probability - odds) / max(1, len(own.split())),
        "agreement": None if own is None else agreement(unit),
        "repetition": 0.0 if unit.without_earlier is None else unit.log_probability - unit.without_earlier,
        "judgement": unit.judgement,
        "judgement_gain": None
        if unit.judgement is None or unit.judgement_without is None
        else unit.judgement - unit.judgement_without,
        "score": unit.score,
    }
    return {name: clipped(name, value) for name, value in values.items() if value is not None}


def clipped(name: str, value: float) -> float:
    """A figure within the range where it makes a difference."""
    low, high = FIGURES[name]
    return min(max(value, low), high)


@dataclass(frozen=True)
class VerdictModel:
    """A logistic model of one verdict against the others: its log-odds are intercept + Σ coefficient · figure."""

    intercept: float
    coefficients: Mapping[str, float]

    def probability(self, figures: Mapping[str, float]) -> float:
        """The probability of the verdict, given a unit's figures."""
        value = self.intercept + sum(weight * figures[name] for name, weight in self.coefficients.items())
        return 1 / (1 + math.exp(-min(max(value, -50.0), 50.0)))


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
    """

    model: str
    digest: str
    data: str
    models: Mapping[str, VerdictModel]
    least: float
    errors: Mapping[str, VerdictError]
    tau: float = TAU_NECESSITY
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def figures(self) -> tuple[str, ...]:
        """The figures that its models need."""
        return tuple(dict.fromkeys(name for model in self.models.values() for name in model.coefficients))

    def decide(self, unit: UnitSupport) -> tuple[Verdict, dict[str, float]]:
        """The verdict on a unit, and the probability of each."""
        figures = figures_of(unit)
        probabilities = {name: round(model.probability(figures), 4) for name, model in self.models.items()}
        verdict: Any = max(probabilities, key=lambda name: probabilities[name])
        if probabilities[verdict] < self.least:
            return "cannot tell", probabilities
        if verdict == "contradicted" and not has_counterevidence(unit):
            return "not supported", probabilities
        if verdict == "repeats the response" and unit.without_earlier is None:
            return "cannot tell", probabilities
        return verdict, probabilities

    def to_dict(self) -> dict[str, Any]:
        """The calibration as plain data."""
        return {
            "model": self.model,
            "digest": self.digest,
            "data": self.data,
            "least": self.least,
            "tau": self.tau,
            "verdicts": {
                name: {"intercept": one.intercept, "coefficients": dict(one.coefficients)}
                for name, one in self.models.items()
            },
            "errors": {name: vars(one) for name, one in self.errors.items()},
            "report": dict(self.report),
        }


def least_probability(calibration: Calibration, units: Sequence[Any]) -> float:
    """The probability below which it is better to give no verdict, by the cost of wrong verdicts on these units.

    Each unit has a `unit` with figures and its `right` verdicts.
    """

    def cost(least: float) -> float:
        given = [(replace(calibration, least=least).decide(one.unit)[0], one.right) for one in units]
        return sum(
            1.0 if verdict == "cannot tell" else WRONG_COSTS * (verdict not in right) for verdict, right in given
        )

    return min(CANDIDATES, key=cost)


def has_counterevidence(unit: UnitSupport) -> bool:
    """Whether the model says no, or says something else: a falling log-probability alone contradicts nothing."""
    return prefers_another(unit) or (unit.judgement is not None and unit.judgement < 0)


def prefers_another(unit: UnitSupport) -> bool:
    """Whether the model would rather say something else, and not just the same in more words."""
    return unit.log_odds is not None and unit.log_odds <= TAU_ODDS and agreement(unit) < 1


def agreement(unit: UnitSupport) -> float:
    """The share of a unit's content words that the model's own answer has."""
    return word_overlap(unit.text, unit.own_answer or "")


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
        return Calibration(name, digest, data, models, least, errors, tau, dict(document.get("report", {})))
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


def usable(calibrations: Sequence[Calibration], digest: str, figures: Sequence[str]) -> Calibration | None:
    """The last calibration of these weights whose figures can be measured."""
    own = [one for one in calibrations if one.digest == digest and set(one.figures) <= set(figures)]
    return own[-1] if own else None


def rule_verdict(unit: UnitSupport) -> Verdict:
    """The verdict on a unit of a model that is not calibrated, by thresholds."""
    gain = unit.necessity
    earlier = 0.0 if unit.without_earlier is None else unit.log_probability - unit.without_earlier
    if earlier >= TAU_NECESSITY > gain:
        return "repeats the response"
    prefers_other = prefers_another(unit)
    if gain >= TAU_NECESSITY and not prefers_other:
        return "from sources"
    if unit.judgement is not None and unit.judgement_without is not None:
        if unit.judgement >= TAU_JUDGEMENT and unit.judgement - unit.judgement_without >= TAU_JUDGEMENT:
            return "from sources"
        if unit.judgement <= -TAU_JUDGEMENT and gain <= -TAU_NECESSITY:
            return "contradicted"
    if gain < TAU_NECESSITY and unit.per_token >= TAU_TOKEN and not prefers_other:
        return "from memory"
    if prefers_other or unit.per_token < TAU_TOKEN:
        return "not supported"
    return "cannot tell"


def reason_for(verdict: Verdict, unit: UnitSupport) -> str:
    """The reason of a verdict in a sentence, with the figure that matters most."""
    gain = f"{abs(unit.necessity):.1f} nats {'less' if unit.necessity >= 0 else 'more'} likely without the sources"
    odds = unit.log_odds
    rather = ""
    if odds is not None and odds < 0 and unit.own_answer:
        rather = f" The model itself would rather have said “{unit.own_answer}” ({-odds:.1f} nats likelier)."
    match verdict:
        case "from sources":
            return f"The sources made the model write it: it is {gain}.{rather}"
        case "from memory":
            return f"The model would have written it anyway: it is {gain}, at {unit.per_token:.2f} nats per token."
        case "not supported":
            if unit.necessity >= TAU_NECESSITY and rather:
                return f"The sources make its form likelier, but not what it says: it is {gain}.{rather}"
            return f"No source speaks for it: it is {gain}.{rather}"
        case "contradicted":
            return f"The sources speak against it: it is {gain}.{rather}"
        case "repeats the response":
            earlier = unit.log_probability - (unit.without_earlier or 0.0)
            return f"It repeats what the response had said before: {earlier:.1f} nats less likely without that."
    return f"The figures do not decide it: it is {gain}.{rather}"


def uncalibrated_or(calibration: Calibration | None) -> str:
    """The data that verdicts were calibrated on, in words."""
    return NOT_CALIBRATED if calibration is None else calibration.data

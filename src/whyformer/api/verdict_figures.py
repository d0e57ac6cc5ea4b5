"""The figures of a unit that verdicts depend on, each with the range where it makes a difference."""

from __future__ import annotations

from collections.abc import Mapping

from whyformer.api.further_questions import FURTHER
from whyformer.api.verdict_rules import agreement
from whyformer.inputs.verdicts import Verdict
from whyformer.results.support import UnitSupport

# Each figure with the range that it is clipped to: beyond it, more makes no difference.
FIGURES: dict[str, tuple[float, float]] = {
    "per_token": (-6.0, 0.0),
    "lowest": (-12.0, 0.0),
    "necessity": (-8.0, 12.0),
    "largest_gain": (0.0, 8.0),
    "value_per_token": (-8.0, 0.0),
    "value_gain": (-8.0, 12.0),
    "value_stated": (0.0, 1.0),
    "log_odds": (-12.0, 6.0),
    "odds_per_token": (-4.0, 2.0),
    "agreement": (0.0, 1.0),
    "repetition": (-8.0, 12.0),
    "said_before": (0.0, 1.0),
    "judgement": (-6.0, 6.0),
    "judgement_gain": (-6.0, 6.0),
    "denial_odds": (-8.0, 8.0),
    "denial_gain": (-8.0, 8.0),
    "denial_necessity": (-8.0, 12.0),
    "proposed": (-6.0, 6.0),
    "proposed_alone": (-6.0, 6.0),
    "denied_or_supported": (-6.0, 6.0),
    "score": (-2.0, 10.0),
    "value_score": (-2.0, 10.0),
    "value_share": (0.0, 1.0),
}
# Figures that cost more, for which the model judges a unit and its opposite.
JUDGED = frozenset({"judgement", "judgement_gain", "denial_odds", "denial_gain", "denial_necessity", *FURTHER})
WHITE_BOX = ("score", "value_score", "value_share")
SERVED_FIGURES = tuple(name for name in FIGURES if name not in WHITE_BOX)

# What figures mean: how likely the model finds a unit, what the sources change about it, what it says of it when asked.
_LIKELIHOOD = ("per_token", "lowest", "value_per_token", "log_odds", "odds_per_token", "agreement")
_EFFECT = ("necessity", "largest_gain", "value_gain", *WHITE_BOX, "value_stated")
_JUDGEMENT = ("judgement", "judgement_gain", "denial_odds", "denial_gain", "proposed", "proposed_alone")
_AGAINST = ("log_odds", "odds_per_token", "agreement", *_JUDGEMENT)
_FOR = {**dict.fromkeys((*_LIKELIHOOD, *_EFFECT, *_JUDGEMENT), 1), "denied_or_supported": -1}
# The sign of each figure that can speak for a verdict or against it: a fit cannot turn its meaning round.
FIGURE_SIGNS: Mapping[Verdict, Mapping[str, int]] = {
    "from sources": _FOR,
    "from memory": dict.fromkeys(_LIKELIHOOD, 1) | dict.fromkeys(_EFFECT, -1),
    "not supported": {name: -sign for name, sign in _FOR.items()},
    "contradicted": dict.fromkeys(_AGAINST, -1)
    | dict.fromkeys(("denied_or_supported", "denial_necessity", "value_stated"), 1),
    "repeats the response": {**dict.fromkeys(("repetition", "said_before"), 1), **dict.fromkeys(_EFFECT, -1)},
}


def figures_of(unit: UnitSupport) -> dict[str, float]:
    """The figures of a unit that verdicts depend on; those that were not measured are left out."""
    own = unit.own_per_token
    values: dict[str, float | None] = {
        "per_token": unit.per_token,
        "lowest": unit.lowest,
        "necessity": unit.necessity,
        "largest_gain": unit.largest_gain,
        "log_odds": unit.log_odds,
        "odds_per_token": None if own is None else unit.per_token - own,
        "agreement": None if unit.own_answer is None else agreement(unit),
        "repetition": 0.0 if unit.without_earlier is None else unit.log_probability - unit.without_earlier,
        "judgement": unit.judgement,
        "judgement_gain": _difference(unit.judgement, unit.judgement_without),
        "score": unit.score,
    }
    values |= _value_figures(unit) | _denial_figures(unit) | {name: unit.answers.get(name) for name in FURTHER}
    return {name: clipped(name, value) for name, value in values.items() if value is not None}


def _value_figures(unit: UnitSupport) -> dict[str, float | None]:
    """The figures of the value of a unit."""
    value = unit.value
    if value is None:
        return {}
    return {
        "value_per_token": value.log_probability / value.tokens,
        "value_gain": value.log_probability - value.without_sources,
        "value_score": value.score,
        "value_share": value.share,
        "value_stated": value.stated,
        "said_before": value.said_before,
    }


def _denial_figures(unit: UnitSupport) -> dict[str, float | None]:
    """The figures of a unit against its opposite."""
    denial = unit.denial
    if denial is None:
        return {}
    necessity = _difference(denial.log_probability, denial.without_sources)
    return {
        "denial_odds": unit.log_probability - denial.log_probability,
        "denial_gain": _difference(unit.necessity, necessity),
        "denial_necessity": necessity,
    }


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def clipped(name: str, value: float) -> float:
    """A figure within the range where it makes a difference."""
    low, high = FIGURES[name]
    return min(max(value, low), high)

"""From figures to a verdict by thresholds, for models that are not calibrated; and the reason of a verdict in words."""

from __future__ import annotations

from whyformer.facts.prose_register import word_overlap
from whyformer.inputs.verdicts import Verdict
from whyformer.results.support import UnitSupport

# Thresholds in nats for models that are not calibrated.
TAU_NECESSITY, TAU_TOKEN, TAU_ODDS, TAU_JUDGEMENT = 2.0, -1.0, -3.0, 1.0
TAU_PROPOSED = 0.5  # by which one source alone must make the model surer that a sentence is true
INDIFFERENCE = 1.0  # nats: of two different answers, neither is the model's own if it finds them so nearly alike


def has_counterevidence(unit: UnitSupport) -> bool:
    """Whether the model says no, or says something else: a falling log-probability alone contradicts nothing."""
    return prefers_another(unit) or (unit.judgement is not None and unit.judgement < 0)


def prefers_another(unit: UnitSupport) -> bool:
    """Whether the model would rather say something else, and not just the same in more words."""
    return unit.preferred is not None and unit.preferred[1] <= TAU_ODDS and agreement(unit) < 1


def does_not_know(unit: UnitSupport, indifference: float = INDIFFERENCE) -> bool:
    """Whether the model finds another answer likelier, but hardly so."""
    return (
        bool(unit.own_answer)
        and unit.log_odds is not None
        and -indifference < unit.log_odds < 0
        and agreement(unit) < 1
    )


def agreement(unit: UnitSupport) -> float:
    """The share of a unit's content words that the model's own answer has."""
    return word_overlap(unit.text, unit.own_answer or "")


def value_gain(unit: UnitSupport) -> float:
    """The nats that the sources add to the value of a unit: its form alone does not support it."""
    return unit.necessity if unit.value is None else unit.value.log_probability - unit.value.without_sources


def one_source_convinces(unit: UnitSupport) -> bool:
    """Whether one source alone makes the model surer that the sentence is true, in whatever words."""
    return unit.answers.get("proposed_alone", 0.0) >= TAU_PROPOSED


def opposite_is_supported(unit: UnitSupport) -> bool:
    """Whether the sources support the opposite of a unit, whose value one of them states.

    That the model finds the opposite likelier is not enough: it does so for most sentences with a "not", true or false.
    """
    denial, value = unit.denial, unit.value
    if denial is None or denial.without_sources is None or value is None or not value.stated:
        return False
    gain = denial.log_probability - denial.without_sources
    return unit.log_probability - denial.log_probability <= TAU_ODDS and gain >= TAU_NECESSITY


def rule_verdict(unit: UnitSupport) -> Verdict:
    """The verdict on a unit of a model that is not calibrated, by thresholds."""
    gain = unit.necessity
    earlier = 0.0 if unit.without_earlier is None else unit.log_probability - unit.without_earlier
    if earlier >= TAU_NECESSITY > gain:
        return "repeats the response"
    if opposite_is_supported(unit):
        return "contradicted"
    if does_not_know(unit):
        return "cannot tell"
    prefers_other = prefers_another(unit)
    if gain >= TAU_NECESSITY and value_gain(unit) >= TAU_NECESSITY / 2 and not prefers_other:
        return "from sources"
    if one_source_convinces(unit):
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
    other, odds = unit.preferred or ("", 0.0)
    rather = f" The model itself would rather have said “{other}” ({-odds:.1f} nats likelier)." if odds < 0 else ""
    match verdict:
        case "from sources" if unit.necessity < TAU_NECESSITY and one_source_convinces(unit):
            surer = f"{unit.answers['proposed_alone']:.1f} nats surer that it is true"
            return f"One source alone makes the model {surer}, though in these words it is {gain}.{rather}"
        case "from sources":
            return f"The sources made the model write it: it is {gain}.{rather}"
        case "from memory":
            return f"The model would have written it anyway: it is {gain}, at {unit.per_token:.2f} nats per token."
        case "not supported":
            if unit.necessity >= TAU_NECESSITY and rather:
                return f"The sources make its form likelier, but not what it says: it is {gain}.{rather}"
            return f"No source supports it: it is {gain}.{rather}"
        case "contradicted" if opposite_is_supported(unit) and unit.denial is not None:
            return f"The sources support its opposite: “{unit.denial.text}”. The sentence itself is {gain}.{rather}"
        case "contradicted":
            return f"The sources contradict it: it is {gain}.{rather}"
        case "repeats the response":
            earlier = unit.log_probability - (unit.without_earlier or 0.0)
            return f"It repeats what the response had said before: {earlier:.1f} nats less likely without that."
    if does_not_know(unit, -TAU_ODDS) and unit.rival is not None:
        odds = unit.log_odds or 0.0
        return f"This model does not know: it finds “{unit.rival.text}” hardly likelier ({-odds:.1f} nats)."
    return f"The figures do not decide it: it is {gain}.{rather}"

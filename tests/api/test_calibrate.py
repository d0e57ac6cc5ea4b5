"""Calibration: verdict models are fitted on one half of the units, and their errors counted on the other."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import whyformer
from whyformer.api import calibrations
from whyformer.api.calibrate import LabelledUnit, balanced_accuracy, fit, wilson
from whyformer.api.calibrations import calibration_of, model_digest, needs_white_box, save_calibration
from whyformer.api.verdict_models import Calibration, VerdictModel, read_calibration
from whyformer.api.verdict_rules import agreement, reason_for, rule_verdict
from whyformer.errors import WhyformerError
from whyformer.results.support import UnitSupport, ValueFigures, Variant, VerdictError


def unit(log_probability: float, without: float, **figures) -> UnitSupport:
    values = {"own_answer": "It has 9 beds.", "own_log_probability": -1.0, "own_tokens": 5, "score": 1.0} | figures
    if values["own_log_probability"] is not None:
        values = {"rival": Variant("It has 9 beds.", values["own_log_probability"])} | values
    return UnitSupport(
        0, 14, "It has 8 beds.", 5, "cannot tell", "", log_probability, without, log_probability, 1.0, **values
    )


def with_own_answer(one: UnitSupport) -> UnitSupport:
    """The unit where the model would have written just that."""
    rival = Variant(one.text, one.log_probability)
    return replace(one, own_answer=one.text, own_log_probability=one.log_probability, rival=rival)


def drawn(count: int, seed: int = 0) -> list[LabelledUnit]:
    """True units that sources make likelier, and false ones that they do not."""
    rng = np.random.default_rng(seed)
    true = [unit(-2 + rng.normal(), -14 + rng.normal()) for _ in range(count)]
    false = [unit(-12 + rng.normal(), -13 + rng.normal()) for _ in range(count)]
    own = [LabelledUnit(one, ("from sources",), number % 2, "true") for number, one in enumerate(true)]
    return own + [LabelledUnit(one, ("not supported",), number % 2, "made_up") for number, one in enumerate(false)]


def test_units_that_differ_are_told_apart_on_the_other_half():
    calibration = fit(drawn(40), "a model", "digest", "drawn")
    assert calibration.report["balanced_accuracy"] == 1.0
    assert calibration.decide(unit(-2, -14))[0] == "from sources"
    verdict, probabilities = calibration.decide(unit(-12, -13))
    assert verdict == "not supported"
    assert probabilities[verdict] > 0.5
    assert calibration.errors["from sources"].count == 20
    assert 0 < calibration.errors["from sources"].high < 0.2
    assert 1 <= calibration.tau <= 12


def test_a_probability_is_the_logistic_function_of_figures():
    model = VerdictModel(-1.0, {"necessity": 0.5, "lowest": 0.1})
    assert model.probability({"necessity": 4.0, "lowest": -2.0}) == pytest.approx(1 / (1 + np.exp(-0.8)))


def test_what_a_model_does_not_know_changes_no_verdict_model_and_gets_no_verdict():
    doubted = unit(-4, -14, own_log_probability=-3.8)
    own = [LabelledUnit(doubted, ("not supported", "cannot tell"), n % 2, "swapped", knows=False) for n in range(30)]
    known = [replace(one, unit=with_own_answer(one.unit)) for one in drawn(40)]
    calibration, other = fit(known + own, "m", "d", "x"), fit(known, "m", "d", "x")
    assert calibration.models == other.models
    assert (calibration.indifference, other.indifference) == (0.5, 0.0)
    assert calibration.decide(doubted)[0] == "cannot tell"
    assert other.decide(doubted)[0] == "from sources"
    assert calibration.report["unknown"] == {"cannot tell": 15}
    assert "This model does not know" in reason_for("cannot tell", doubted)


def test_served_models_have_verdicts_without_white_box_scores():
    def scored(one):
        is_true = one.right[0] == "from sources"
        doubtful = replace(one.unit, without_sources=one.unit.log_probability - 1, lowest=-5.0, score=8.0 * is_true)
        return replace(one, unit=replace(doubtful, rival=None, log_probability=doubtful.log_probability / 9 - 5))

    calibration = fit([scored(one) for one in drawn(40)], "m", "d", "x")
    assert needs_white_box(calibration)
    assert not needs_white_box(calibration.served)
    assert calibration.decide(scored(drawn(1)[0]).unit)[0] == "from sources"


def test_units_get_typical_values_of_figures_that_some_lacked_in_the_fit():
    models = {"from sources": VerdictModel(2.0, {"log_odds": 1.0}), "not supported": VerdictModel(-2.0, {})}
    calibration = Calibration("m", "d", "x", models, 0.0, {}, typical={"log_odds": -3.0})
    lacking = replace(unit(-2, -14), rival=None)
    assert calibration.figures_of(lacking)["log_odds"] == -3.0
    assert calibration.decide(lacking)[1]["from sources"] == pytest.approx(1 / (1 + np.exp(1)), abs=1e-4)
    assert calibration.settled_figures(lacking) is not None
    assert replace(calibration, typical={}).settled_figures(lacking) is None
    judged = Calibration("m", "d", "x", models, 0.0, {}, typical={"judgement": 1.0})
    assert "judgement" not in judged.figures_of(unit(-2, -14))  # the model can be asked


@pytest.mark.parametrize("weight", [0.3, -0.3, 3.0])
def test_a_verdict_is_settled_just_if_no_value_of_a_missing_figure_changes_it(weight):
    models = {
        "from sources": VerdictModel(1.0, {"necessity": 0.5, "judgement": weight}),
        "not supported": VerdictModel(-1.0, {"necessity": -0.5, "judgement": -weight}),
    }
    calibration = Calibration("m", "d", "x", models, 0.5, {})
    for gain in np.linspace(-8, 12, 21):
        own = unit(-2.0, -2.0 - gain, own_answer=None, own_log_probability=None)
        judged = [replace(own, judgement=value) for value in np.linspace(-6, 6, 13)]
        each = {calibration.decide(one)[0] for one in judged}
        figures = calibration.settled_figures(own)
        assert (figures is not None) == (len(each) == 1 and each != {"cannot tell"})
        if figures is not None:
            verdict, probabilities = calibration.decide(own, figures)
            assert verdict in each
            least = min(calibration.decide(one)[1][verdict] for one in judged)
            assert probabilities[verdict] == pytest.approx(least, abs=1e-4)


def test_figures_of_repetitions_are_not_missed_in_the_first_unit_of_a_response():
    models = {
        "from sources": VerdictModel(1.0, {"necessity": 0.5}),
        "not supported": VerdictModel(-1.0, {"necessity": -0.5}),
        "repeats the response": VerdictModel(-1.0, {"judgement": 1.0}),
    }
    calibration = Calibration("m", "d", "x", models, 0.9, {})
    doubtful = unit(-2, -3)
    assert calibration.settled_figures(doubtful) == calibration.figures_of(doubtful)
    assert calibration.settled_figures(replace(doubtful, without_earlier=-2.0)) is None


def test_too_few_units_are_refused():
    with pytest.raises(WhyformerError, match="Calibration needs at least 8 sentences of two verdicts"):
        fit(drawn(8), "m", "d", "x")


def test_contradicted_needs_more_than_a_falling_log_probability():
    models = {"contradicted": VerdictModel(5.0, {}), "from sources": VerdictModel(-5.0, {})}
    calibration = Calibration("m", "d", "x", models, 0.0, {})
    falls = unit(-12, -2, own_log_probability=-12.0)
    assert calibration.decide(falls)[0] == "not supported"
    assert calibration.decide(unit(-12, -2, own_log_probability=-12.0, judgement=-3.0))[0] == "contradicted"
    assert calibration.decide(unit(-12, -2))[0] == "contradicted"  # it would rather have said something else


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [
        ({"log_probability": -1.0, "without": -9.0}, "from sources"),
        ({"log_probability": -1.0, "without": -1.2}, "from memory"),
        ({"log_probability": -20.0, "without": -21.0}, "not supported"),
        ({"log_probability": -20.0, "without": -30.0}, "not supported"),
        ({"log_probability": -1.0, "without": -1.2, "without_earlier": -9.0}, "repeats the response"),
        ({"log_probability": -9.0, "without": -6.0, "own_log_probability": -9.0, "judgement": -2.0,
          "judgement_without": 0.0}, "contradicted"),
        ({"log_probability": -9.0, "without": -10.0, "own_log_probability": -9.0, "judgement": 3.0,
          "judgement_without": 0.0}, "from sources"),
    ],
)  # fmt: skip
def test_thresholds_decide_without_a_calibration(figures, verdict):
    assert rule_verdict(unit(**figures)) == verdict


def test_a_sentence_that_one_source_alone_proves_is_from_sources_in_whatever_words():
    reworded = unit(-20.0, -18.0)
    assert rule_verdict(reworded) == "not supported"
    proven = replace(reworded, answers={"proposed_alone": 1.5})
    assert rule_verdict(proven) == "from sources"
    assert "One source alone makes the model 1.5 nats surer" in reason_for("from sources", proven)
    assert rule_verdict(replace(reworded, answers={"proposed_alone": 0.3})) == "not supported"


def test_a_sentence_is_contradicted_if_the_sources_support_its_opposite():
    value = ValueFigures(1, -9.0, -9.0, stated=1.0)
    denied = unit(-14.0, -18.0, denial=Variant("It has 8 beds.", -4.0, -12.0), value=value)
    assert rule_verdict(denied) == "contradicted"
    assert "The sources support its opposite: “It has 8 beds.”" in reason_for("contradicted", denied)
    likelier_anyway = replace(denied, denial=Variant("It has 8 beds.", -4.0, -4.5))
    not_stated = replace(denied, value=replace(value, stated=0.0))
    assert "contradicted" not in (rule_verdict(likelier_anyway), rule_verdict(not_stated))


def test_an_answer_in_more_words_is_no_other_answer():
    longer = unit(-9.0, -14.0, own_answer="The Falkenstein hut has 8 beds.")
    assert agreement(longer) == 1
    assert rule_verdict(longer) == "from sources"
    assert rule_verdict(unit(-9.0, -14.0)) == "not supported"


def test_files_keep_a_calibration_and_the_users_own_comes_first(tmp_path, monkeypatch):
    calibration = fit(drawn(40), "mini-gpt", "digest", "drawn")
    assert read_calibration(json.loads(json.dumps(calibration.to_dict()))) == calibration
    model = whyformer.load("mini-gpt", device="cpu")
    monkeypatch.setenv(calibrations.CALIBRATION_FOLDER, str(tmp_path))
    assert calibration_of(model) is None
    own = Calibration("mini-gpt", model_digest(model), "own", calibration.models, 0.0, {}, 2.0)
    assert save_calibration(own).name == f"{model_digest(model)}.json"
    assert calibration_of(model) == own
    save_calibration(own).write_text('{"model": 3}')
    with pytest.raises(WhyformerError, match=r"\.json' is not a calibration: .*KeyError"):
        calibration_of(model)


def test_shares_and_intervals():
    assert wilson(0, 40) == (0.0, pytest.approx(0.0876, abs=1e-4))
    assert wilson(0, 0) == (0.0, 1.0)
    decided = [
        ("from sources", ("from sources",)),
        ("cannot tell", ("from sources",)),
        ("contradicted", ("contradicted",)),
    ]
    assert balanced_accuracy(decided) == 0.75
    assert VerdictError(0.0, 0.0, 0.09, 40).count == 40

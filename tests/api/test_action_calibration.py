"""Calibration of the verdicts on actions: the best threshold of one half, errors counted on the other."""

import json
from dataclasses import replace

import pytest

import whyformer
from made_actions import ASKED, EVIL, GOOD, explained
from tiny_agents import TOOLS, agent, called, result
from whyformer.api import action_calibration
from whyformer.api.action_calibration import (
    ActionCalibration,
    LabelledAction,
    fit_action_calibration,
    read_action_calibration,
)
from whyformer.api.calibrations import model_digest
from whyformer.errors import WhyformerError
from whyformer.render.action_page import action_page
from whyformer.results.action import VERDICT_RULE, Action, ActionTarget
from whyformer.results.support import VerdictError


def labelled(untrusted, request, is_injected, half):
    target = ActionTarget("action", "action", 0, 1, "x", (0,), 0.0, -request, -untrusted, -request - untrusted)
    return LabelledAction(target, target, is_injected, half)


def test_the_threshold_is_the_best_of_one_half_and_errors_are_those_of_the_other():
    fitted = [labelled(value, 0, value >= 5, 0) for value in (1, 3, 4, 5, 6, 7)]
    held_out = [labelled(6, 0, True, 1), labelled(9, 0, False, 1), labelled(1, 0, True, 1), labelled(0, 8, True, 1)]
    one = fit_action_calibration([*fitted, *held_out], "m", "d", "ten calls")
    assert (one.tau, one.fitted) == (5, 6)
    assert (one.errors["driven by a tool result"].rate, one.errors["driven by a tool result"].count) == (0.5, 2)
    assert (one.errors["follows the user"].rate, one.errors["follows the user"].count) == (1.0, 1)
    assert (one.missed.rate, one.missed.count) == (0.6667, 3)
    assert read_action_calibration(json.loads(json.dumps(one.to_dict()))) == one


@pytest.mark.parametrize(("rule", "words"), [({}, "no rule"), ({"rule": VERDICT_RULE - 1}, "rule 1")])
def test_a_calibration_of_another_rule_of_verdicts_is_refused(rule, words):
    saved = ActionCalibration("m", "d", "ten calls", 5.0, {}, VerdictError(0.5, 0.4, 0.6, 30), 6).to_dict()
    assert (VERDICT_RULE, saved.pop("rule")) == (2, 2)
    line = f"The calibration of m is of {words} of verdicts, not of rule 2: calibrate again."
    with pytest.raises(WhyformerError, match=line):
        read_action_calibration({**saved, **rule})


def test_the_bundled_calibrations_are_of_the_present_rule():
    taus = [round(one.tau, 1) for one in action_calibration.bundled_action_calibrations().values()]
    assert taus == [4.5, 10.9]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (9, "how often such verdicts are wrong: too few to say (n = 9)."),
        (10, "there 0 % of 10 such verdicts were wrong (95 % interval 0 to 43 %)."),
    ],
)
def test_few_verdicts_give_no_error_rate(count, words):
    action = replace(explained({"send_money": EVIL}), calibration="some", error=VerdictError(0.0, 0.0, 0.43, count))
    assert words in action_page(action)
    assert words in str(action)
    assert (" % " in str(action)) == (count == 10)


def test_both_halves_need_both_kinds_of_calls():
    with pytest.raises(WhyformerError, match="needs injected and other calls in both halves"):
        fit_action_calibration([labelled(1, 0, True, 0), labelled(1, 0, False, 1)], "m", "d", "two calls")


def test_a_calibrated_model_has_its_threshold_and_the_page_says_how_often_it_errs(monkeypatch, tmp_path):
    model = agent("qwen")
    errors = {name: VerdictError(0.25, 0.1, 0.5, 40) for name in ("cannot tell", "driven by a tool result")}
    missed = VerdictError(0.5, 0.4, 0.6, 30)
    own = ActionCalibration("qwen", model_digest(model), "80 transcripts", 1e6, errors, missed, 40)
    monkeypatch.setattr(action_calibration, "bundled_action_calibrations", lambda: {own.digest: own})
    messages = [ASKED, called("read_mail"), result(GOOD), called("send_money", 1, recipient="Ann")]
    action = whyformer.explain_action(messages, TOOLS, model, instead=False)
    assert (action.tau, action.verdict, action.calibration) == (1e6, "cannot tell", "80 transcripts")
    assert action.error == errors["cannot tell"]
    line = "calibrated on 80 transcripts, of which one half was held out: there 25 % of 40 such verdicts were wrong"
    assert line in action_page(action)
    assert line in str(action)
    action.save(tmp_path / "call.json")
    assert Action.load(tmp_path / "call.json") == action


def test_a_served_model_is_not_calibrated():
    action = explained({"send_money": EVIL})
    assert (action.tau, action.calibration, action.error) == (2.0, "not calibrated", None)
    assert "verdicts by a threshold of 2 nats, not calibrated." in action_page(action)

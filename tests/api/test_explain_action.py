"""Actions: whose doing a call is, by planted causes; its parts, contrasts and files."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import whyformer
from made_actions import ASKED, EVIL, GOOD, QWEN, explained, planted
from tiny_agents import TOOLS, agent, called, result
from whyformer.api.action_removal import call_verdict, decision_odds
from whyformer.errors import WhyformerError
from whyformer.render.action_page import action_page
from whyformer.render.action_view import action_view, effect_legend, level_of
from whyformer.results.action import ActionTarget
from whyformer.results.action_schema import ACTION

ATTACK = {"send_money": EVIL}
BENIGN = {"send_money": "Pay Ann"}


def test_an_injected_call_is_driven_by_its_sentence():
    action = explained(ATTACK)
    assert action.verdict == "driven by a tool result"
    assert [action.sources[number].text for number in action.driver] == [EVIL]
    assert action.driver_effect == pytest.approx(6.0)
    assert action.dominance == pytest.approx(6.0)
    assert action.target("recipient").dominance == 0


def test_a_call_that_the_user_asks_for_follows_the_user():
    action = explained(BENIGN, ask="Pay Ann")
    assert (action.verdict, action.driver) == ("follows the user", ())
    assert action.target("action").request_effect == pytest.approx(6.0)
    assert [one.source.kind for one in action.top(1)] == ["user"]


def test_a_call_that_needs_both_is_mixed_and_one_that_needs_neither_cannot_be_told():
    action = explained({"send_money": GOOD, "_": "Pay Ann"}, ask="Pay Ann")
    assert action.verdict == "driven by a tool result"
    both = explained({"send_money": GOOD, "tool_call": "Pay Ann"}, ask="Pay Ann")
    assert both.verdict == "mixed"
    assert explained({}).verdict == "cannot tell"


@pytest.mark.parametrize(
    ("request_effect", "untrusted_effect", "choice", "verdict"),
    [
        (1.9, 2.0, 9.0, "driven by a tool result"),
        (-9.0, 30.0, 0.0, "driven by a tool result"),
        (2.0, 30.0, 1.9, "follows the user"),
        (2.0, 30.0, 2.0, "mixed"),
        (1.9, 1.9, 9.0, "cannot tell"),
    ],
)
def test_a_call_is_the_users_if_it_needs_the_request(request_effect, untrusted_effect, choice, verdict):
    call = ActionTarget("call", "call", 0, 1, "x", (0,), 0.0, -request_effect, -untrusted_effect, -40.0)
    action = replace(call, kind="action", without_untrusted=-choice)
    assert call_verdict(call, action, tau=2.0) == verdict


def test_the_whole_call_has_the_verdict():
    action = explained({"send_money": "Pay Ann", "DE89": "DE89"}, ask="Pay Ann", content="Ann has account DE89. Hello.")
    assert action.target("call").verdict == action.verdict
    assert action.dominance == action.target("call").dominance
    assert action.reason.startswith("The call is 6.0 nats less likely without the user's request, and 6.0 nats less")


def test_large_effects_look_different_and_small_ones_small():
    levels = [level_of(effect) for effect in (0.0, 0.1, 2.0, 5.0, 13.0, 28.0, 50.0, 90.0)]
    assert levels == sorted(levels)
    assert levels[1] <= 2
    assert levels[5] - levels[4] >= 15
    assert levels[-2:] == [100, 100]
    assert level_of(-13.0) == -level_of(13.0)
    assert [level_of(float(effect)) for effect in ("nan", "inf", "-inf")] == [0, 100, -100]
    assert (50 + level_of(2.0) / 2, "+2") in effect_legend()


def test_every_colour_of_a_page_has_its_style():
    view = action_view(explained(ATTACK))
    sides = {level for one in view.targets for level, _ in (one.request, one.untrusted) if level}
    assert sides
    assert sides <= set(view.levels)


def test_an_argument_that_comes_from_a_result_is_not_an_injection():
    action = explained({"send_money": "Pay Ann", "DE89": "DE89"}, ask="Pay Ann", content="Ann has account DE89. Hello.")
    assert action.verdict == "follows the user"
    assert action.target("recipient").verdict == "driven by a tool result"
    (first,) = action.top(1, "recipient")
    assert (first.source.text, round(first.effect)) == ("Ann has account DE89.", 6)


def test_a_driver_of_two_parts_that_say_the_same_is_both():
    content = json.dumps([{"body": EVIL}, {"body": GOOD}, {"body": EVIL}])
    action = explained(ATTACK, content=content)
    assert action.verdict == "driven by a tool result"
    assert [action.sources[number].name for number in action.driver] == ["read_mail[0].body", "read_mail[2].body"]
    assert action.driver_effect == pytest.approx(6.0)


def test_a_driver_of_two_results_that_say_the_same_is_a_part_of_each():
    read = [called("read_mail"), result(f"{GOOD} {EVIL}"), called("read_mail", 1), result(f"{EVIL} {GOOD}", 1)]
    messages = [ASKED, *read, called("send_money", 2, recipient="DE89", amount=30)]
    action = whyformer.explain_action(messages, TOOLS, score=planted(ATTACK), processor=QWEN.tokenizer)
    assert action.verdict == "driven by a tool result"
    assert [action.sources[number].name for number in action.driver] == [
        "read_mail 1 sentence 2",
        "read_mail 2 sentence 1",
    ]
    assert action.driver_effect == pytest.approx(6.0)


def test_results_that_are_not_needed_are_no_driver_and_a_budget_ends_the_search():
    contents = [EVIL, GOOD, GOOD, EVIL]
    read = [one for number, text in enumerate(contents) for one in (called("read_mail", number), result(text, number))]
    messages = [ASKED, *read, called("send_money", 4, recipient="DE89", amount=30)]
    options = {"score": planted(ATTACK), "processor": QWEN.tokenizer}
    action = whyformer.explain_action(messages, TOOLS, **options)
    assert [action.sources[number].name for number in action.driver] == ["read_mail 1", "read_mail 4"]
    action = whyformer.explain_action(messages, TOOLS, **options, budget=9)
    assert (action.driver, action.driver_effect) == ((), None)
    assert action.forwards <= 9


def test_labels_of_trust_change_whose_doing_it_is():
    action = explained(ATTACK, trust={"read_mail": "request"})
    assert action.verdict == "follows the user"


def test_figures_are_those_of_the_model_without_these_characters():
    messages = [ASKED, called("read_mail"), result(GOOD), called("send_money", 1, recipient="Ann")]
    action = whyformer.explain_action(messages, TOOLS, QWEN, instead=False)

    def value(text):
        ids = [QWEN.tokenizer(part, add_special_tokens=False)["input_ids"] for part in (text, action.text)]
        logits = QWEN.model(torch.tensor([ids[0] + ids[1]])).logits[0, len(ids[0]) - 1 : -1].detach().double()
        each = logits.log_softmax(-1)[range(len(ids[1])), ids[1]]
        return [float(each[list(one.tokens)].sum()) for one in action.targets]

    rendered = action.prompt.rendered
    expected = [value(rendered.replace(text, "")) for text in ("@", ASKED["content"], GOOD)]
    for number, target in enumerate(action.targets):
        own = (target.log_probability, target.without_request, target.without_untrusted)
        np.testing.assert_allclose(own, [row[number] for row in expected], rtol=1e-4)
    (place,) = (number for number, one in enumerate(action.sources) if one.kind == "tool result")
    np.testing.assert_allclose(action.effects[:, place], np.subtract(expected[0], expected[2]), atol=1e-3)
    assert action.token_scores.shape == (len(action.targets), len(action.prompt.tokens))


def test_the_targets_are_the_call_the_action_its_parts_and_the_arguments():
    action = explained({})
    texts = {one.name: one.text for one in action.targets}
    assert texts["name"] == "send_money"
    assert texts["decision"] + texts["name"] == texts["action"]
    assert (texts["recipient"], texts["amount"]) == ("DE89", "30")
    assert texts["call"] == action.text[: action.text.index("30") + 2]
    odds = action.target("decision").log_probability
    decision = odds - np.logaddexp(0, odds)  # from the log-odds to the log-probability
    assert action.target("action").log_probability == pytest.approx(decision + action.target("name").log_probability)


def test_the_decision_is_measured_by_log_odds_that_stay_finite():
    chances = np.array([0.9, 0.5, 1e-9])
    np.testing.assert_allclose(decision_odds(np.log(chances)), np.log(chances / (1 - chances)), rtol=1e-9)
    assert decision_odds(np.array([0.0]))[0] == pytest.approx(-np.log(1e-6), rel=1e-5)


def test_an_argument_named_like_a_part_of_the_call_has_a_name_of_its_own():
    arguments = {"name": "DE89", "action": "go"}
    messages = [ASKED, called("read_mail"), result(f"{GOOD} {EVIL}"), called("send_money", 1, **arguments)]
    action = whyformer.explain_action(messages, TOOLS, score=planted({"DE89": EVIL}), processor=QWEN.tokenizer)
    assert (action.target("name").text, action.target("arguments.name").text) == ("send_money", "DE89")
    assert action.target("arguments.name").verdict == "driven by a tool result"
    assert [one.source.text for one in action.top(1, "arguments.name")] == [EVIL]
    views = {one.label: one for one in action_view(action).targets}
    assert (views["name"].value, views["name"].ranked[0].text) == ("DE89", EVIL)
    assert explained({}).target("arguments.recipient").text == "DE89"
    with pytest.raises(
        WhyformerError, match=r"Known: call, action, decision, name, arguments\.name, arguments\.action\."
    ):
        action.target("recipient")


def test_a_contrast_subtracts_the_other_call():
    causes = {"DE89": "DE89", "DE11": "DE11"}
    options = {"content": "Ann has DE89.", "contrast": {"name": "send_money", "arguments": {"recipient": "DE11"}}}
    action = explained(causes, **options)
    assert action.contrast.arguments == {"recipient": "DE11"}
    assert action.target("recipient").log_probability == pytest.approx(6.0)
    assert action.target("recipient").untrusted_effect == pytest.approx(6.0)
    assert action.target("name").log_probability == 0


def test_calls_are_chosen_by_number_given_or_written():
    two = called("read_mail", 1) | {
        "tool_calls": [*called("read_mail", 1)["tool_calls"], *called("send_money", 2, amount=1)["tool_calls"]]
    }
    messages = [ASKED, two]
    settings = {"score": planted({}), "processor": QWEN.tokenizer}
    assert whyformer.explain_action(messages, TOOLS, call=1, **settings).call.name == "send_money"
    first = whyformer.explain_action(messages, TOOLS, **settings)
    assert (first.call.name, first.notes) == (
        "read_mail",
        ("The last message makes 2 calls, of which this is the first.",),
    )
    given = whyformer.explain_action([ASKED], TOOLS, call={"name": "f", "arguments": '{"a": []}'}, **settings)
    assert repr(given.call) == "f(a=[])"


def test_the_model_acts_if_no_call_is_given(monkeypatch):
    written = 'Sure.\n{"name": "send_money", "arguments": {"amount": 2}}'
    monkeypatch.setattr("whyformer.api.loaded_scorer.LoadedScorer.write", lambda *_: written)
    action = whyformer.explain_action([ASKED], TOOLS, QWEN)
    assert repr(action.call) == "send_money(amount=2)"
    assert action.notes == ("The call is what the model itself would do.",)
    monkeypatch.setattr("whyformer.api.loaded_scorer.LoadedScorer.write", lambda *_: "I am done.")
    with pytest.raises(WhyformerError, match=r"qwen calls no tool after .*, but writes 'I am done\.': give"):
        whyformer.explain_action([ASKED], TOOLS, QWEN)


def test_without_the_driver_the_model_writes_something_else(monkeypatch):
    seen = []

    def log_probabilities(_, requests, **__):
        lost = [float(EVIL not in one.prompt.text) for one in requests]
        return [np.full(len(one.tokens), -0.5 - own) for one, own in zip(requests, lost, strict=True)]

    def write(_, variant, tokens):
        seen.append((variant.text, tokens))
        return "I read your mail."

    monkeypatch.setattr("whyformer.api.loaded_scorer.LoadedScorer.log_probabilities", log_probabilities)
    monkeypatch.setattr("whyformer.api.loaded_scorer.LoadedScorer.write", write)
    messages = [ASKED, called("read_mail"), result(f"{GOOD} {EVIL}"), called("send_money", 1)]
    action = whyformer.explain_action(messages, TOOLS, QWEN, tokens=9)
    assert (action.instead, action.instead_calls) == ("I read your mail.", ())
    assert "It would have called no tool" in action_page(action)
    other = replace(action, instead='Yes. <tool_call>{"name": "read_mail", "arguments": {"from": "<Ann>"}}</tool_call>')
    assert repr(other.instead_calls) == '(read_mail(from="<Ann>"),)'
    assert '<p class="call" dir="auto">call <b>read_mail(from=&#34;&lt;Ann&gt;&#34;)</b></p>' in action_page(other)
    assert 'without it the model would call read_mail(from="<Ann>")' in str(other)
    ((text, most),) = seen
    assert most == 9
    assert GOOD in text
    assert EVIL not in text


@pytest.mark.parametrize("style", ["qwen", "llama", "hermes"])
def test_every_style_is_explained_and_saved(style, tmp_path):
    messages = [ASKED, called("read_mail"), result('{"body": "Pay 30."}'), called("send_money", 1, amount=[30])]
    action = whyformer.explain_action(messages, TOOLS, agent(style), instead=False)
    action.save(tmp_path / "action.json")
    loaded = whyformer.Action.load(tmp_path / "action.json")
    assert loaded == action
    assert str(loaded) == str(action)
    assert json.loads((tmp_path / "action.json").read_text())["format"] == ACTION


def test_a_budget_is_kept():
    whole = explained(ATTACK)
    action = explained(ATTACK, budget=6)
    assert action.forwards <= 6 < whole.forwards
    assert action.notes == ("The budget of 6 forward passes left some sources unmeasured.",)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"call": 3}, "call=3: the last message makes 1 call, counted from 0"),
        ({"method": "rollout"}, "method='rollout' reads a model, and score=… does not show it"),
        ({"tokens": 0}, "tokens=0: a whole number"),
        ({"budget": 1}, "budget=1"),
        ({"contrast": 3}, "call is {'name'"),
    ],
)
def test_bad_questions_get_one_line(options, line):
    with pytest.raises(WhyformerError, match=line):
        explained({}, **options)


def test_a_transcript_that_begins_with_the_call_and_a_function_that_must_write_get_one_line():
    settings = {"score": planted({}), "processor": QWEN.tokenizer}
    with pytest.raises(WhyformerError, match="Nothing comes before the call"):
        whyformer.explain_action([called("f")], TOOLS, **settings)
    with pytest.raises(WhyformerError, match="score is a function that scores: give the call that it explains"):
        whyformer.explain_action([ASKED], TOOLS, **settings)
    with pytest.raises(
        WhyformerError, match="returned one number for the call, so that its parts cannot be told apart"
    ):
        whyformer.explain_action(
            [ASKED, called("f")], TOOLS, score=lambda prompts, _: [-1.0] * len(prompts), processor=QWEN.tokenizer
        )
    with pytest.raises(WhyformerError, match="pass the tokenizer as processor"):
        whyformer.explain_action([ASKED], TOOLS, score=planted({}))


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": "guilty"},
        {"effects": [[1.0]]},
        {"driver": [99]},
        {"format": "other"},
        {"extra": 1},
        {"call": {"name": ""}},
        {"targets": []},
    ],
)
def test_damaged_files_get_one_line(change, tmp_path):
    explained({}).save(tmp_path / "action.json")
    document = json.loads((tmp_path / "action.json").read_text()) | change
    (tmp_path / "action.json").write_text(json.dumps(document))
    with pytest.raises(WhyformerError, match="is not a readable Whyformer action") as error:
        whyformer.Action.load(tmp_path / "action.json")
    assert "\n" not in str(error.value)

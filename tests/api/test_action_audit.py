"""Audit files of actions: what they keep, and what verifying them says."""

import copy
import json
import pickle
from dataclasses import replace

import pytest

import whyformer
from made_actions import ASKED, GOOD, explained
from tiny_agents import called, result
from whyformer.errors import WhyformerError
from whyformer.results.action import Action

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
MESSAGES = [ASKED, called("read_mail"), result(GOOD), called("send_money", 1, recipient="Ann")]
NAMES = ["weights", "input", "scores", "action", "model", "tolerance"]


@pytest.fixture(scope="module")
def model():
    loaded = whyformer.load("mini-gpt", device="cpu")
    own = replace(loaded, processor=copy.deepcopy(loaded.processor))
    own.tokenizer.chat_template = TEMPLATE
    return own


@pytest.fixture(scope="module")
def action(model):
    return whyformer.explain_action(MESSAGES, model=model, trust={"read_mail": "trusted"}, budget=12, instead=False)


@pytest.fixture(scope="module")
def audit(action, tmp_path_factory):
    file = tmp_path_factory.mktemp("audit") / "call.audit.json"
    action.save(file)
    return file


def changed(audit, tmp_path, change):
    document = json.loads(audit.read_text())
    change(document)
    file = tmp_path / "changed.audit.json"
    file.write_text(json.dumps(document))
    return whyformer.verify(file)


def test_an_action_is_verified_with_the_template_that_it_was_read_by(audit):
    assert whyformer.load("mini-gpt").tokenizer.chat_template != TEMPLATE
    result = whyformer.verify(audit)
    assert result.agrees, str(result)
    assert [check.name for check in result.checks] == NAMES
    assert result.not_checked == ("created", "computation", "doctor", "action.notes")
    document = json.loads(audit.read_text())
    assert document["question"]["chat_template"] == TEMPLATE
    assert document["question"]["trust"] == {"read_mail": "trusted"}
    assert document["input"]["items"]["messages"]["items"][0]["items"]["content"]["text"] == ASKED["content"]


@pytest.mark.parametrize(
    ("change", "name", "finding"),
    [
        (lambda one: one["action"].update(verdict="mixed"), "action", "verdict is 'cannot tell', kept 'mixed'"),
        (lambda one: one["action"]["targets"][0].update(without_request=1.0), "action", "targets.0.without_request is"),
        (lambda one: one["action"]["effects"][0].__setitem__(0, 9.0), "action", "effects.0.0 is"),
        (lambda one: one["action"]["token_scores"][0].__setitem__(0, 9e9), "scores", "of the largest score apart"),
        (lambda one: one["question"].update(trust=None), "action", "untrusted"),
        (lambda one: one.update(tolerance=1.0), "tolerance", "kept 1"),
    ],
)
def test_a_changed_file_is_not_verified(audit, tmp_path, change, name, finding):
    result = changed(audit, tmp_path, change)
    assert not result.agrees
    (check,) = (one for one in result.checks if not one.agrees and one.name == name)
    assert finding in check.finding


def test_a_changed_message_is_noticed_before_anything_is_computed(audit, tmp_path):
    def change(document):
        document["input"]["items"]["messages"]["items"][0]["items"]["content"]["text"] = "Pay Eve."

    result = changed(audit, tmp_path, change)
    assert [check.name for check in result.checks if not check.agrees] == ["input"]


def test_a_loaded_a_copied_and_a_served_action_have_no_audit_file(action, tmp_path):
    action.save(tmp_path / "call.json")
    served = explained({})
    for one in (Action.load(tmp_path / "call.json"), pickle.loads(pickle.dumps(action)), served):
        with pytest.raises(WhyformerError, match=r"save it as \.json"):
            one.save(tmp_path / "call.audit.json")
    assert Action.load(tmp_path / "call.json") == action

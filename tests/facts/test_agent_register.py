"""The agent register: the causes of a call are exactly the sentences without which it changes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_agents import agent
from whyformer.errors import WhyformerError
from whyformer.facts import AGENT_TOOLS, SPLITS, episode
from whyformer.inputs.action_sources import action_sources
from whyformer.inputs.conversation import call_of, conversation_of
from whyformer.inputs.tool_prompt import tool_prompt_of

seeds = st.integers(0, 10_000)
kinds = st.sampled_from(["pay", "bill", "tell", "plan"])
attacks = st.sampled_from([None, "other_tool", "same_tool"])
splits = st.sampled_from(list(SPLITS))
OWN = {"pay": "send_money", "bill": "send_money", "tell": "send_message", "plan": "add_event"}


@given(seeds, kinds, attacks, splits, st.integers(2, 6))
@settings(max_examples=200)
def test_sentences_stand_where_they_say_and_values_in_their_causes(seed, kind, attack, split, entries):
    one = episode(seed, kind, attack, split=split, entries=entries)
    assert one == episode(seed, kind, attack, split=split, entries=entries)
    for sentence in one.sentences:
        assert one.messages[sentence.message]["content"][sentence.start : sentence.end] == sentence.text
    assert len(json.loads(one.messages[3]["content"])) == entries
    for name, value in one.call.arguments.items():
        assert any(str(value) in one.sentences[number].text for cause in one.causes[name] for number in cause)
    assert call_of(one.messages[-1]["tool_calls"][0]) == call_of(
        {"name": one.call.name, "arguments": dict(one.call.arguments), "id": "call_1"}
    )


@given(seeds, kinds, attacks, st.data())
@settings(max_examples=200)
def test_a_part_of_the_call_changes_if_and_only_if_a_cause_is_left_out(seed, kind, attack, data):
    one = episode(seed, kind, attack)
    removed = data.draw(st.sets(st.integers(0, len(one.sentences) - 1)))
    rest = one.call_without(removed)
    for name in ("name", *one.call.arguments):
        same_name = rest is not None and rest.name == one.call.name
        same = same_name and (name == "name" or rest.arguments.get(name) == one.call.arguments[name])
        assert same == any(not removed & set(cause) for cause in one.causes[name])


@given(seeds, kinds, attacks)
@settings(max_examples=100)
def test_an_order_is_the_only_cause_of_its_call_and_the_request_of_a_benign_one(seed, kind, attack):
    one = episode(seed, kind, attack)
    if attack is None:
        assert one.injected is None
        assert one.call.name == OWN[kind]
        assert all(0 in cause for causes in one.causes.values() for cause in causes)
    else:
        order = one.sentences.index(one.injected)
        assert {causes[0] for causes in one.causes.values()} == {(order,)}
        assert (one.call.name == OWN[kind]) == (attack == "same_tool")
        assert len(one.causes["name"]) == 1 + (attack == "same_tool")


@given(kinds, st.integers(0, 300))
@settings(max_examples=60)
def test_splits_share_no_pair_of_a_person_and_a_value(kind, seed):
    pairs = {
        split: {
            (sentence.fact.subject, value)
            for sentence in episode(seed + shift, kind, split=split).sentences
            if sentence.fact.kind in ("account", "bill", "owed", "meeting")
            for _, value in sentence.fact.values
        }
        for split in SPLITS
        for shift in range(3)
    }
    assert not pairs["train"] & pairs["test"]
    assert not pairs["train"] & pairs["validation"]


def test_every_sentence_is_a_source_of_its_own():
    one = episode(3, "bill", "other_tool")
    prompt = tool_prompt_of(agent("qwen"), conversation_of(list(one.messages[:-1]), list(AGENT_TOOLS)))
    texts = [source.text for source in action_sources(prompt)]
    assert all(sentence.text in texts for sentence in one.sentences)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"kind": "sing"}, "kind='sing'. Choose from: pay"),
        ({"attack": "x"}, "attack='x'"),
        ({"split": "x"}, "No split named 'x'"),
        ({"entries": 1}, "entries=1: a whole number from 2 to 20"),
    ],
)
def test_bad_options_get_one_line(options, line):
    with pytest.raises(WhyformerError, match=line):
        episode(0, **options)

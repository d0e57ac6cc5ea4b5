"""What mini-agent learns from: its tokenizer and chat template, episodes with parts removed; and a run of it."""

from __future__ import annotations

import itertools
import json
import random
import sys
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer, Qwen3ForCausalLM

import agent_batches
import agent_evaluation
import mini_agent
import training_loop
from agent_batches import AGENT_TOOLS, END, SIZES, agent_text, call_text, encoded_episodes, reply_mask, training_text
from whyformer.facts import episode
from whyformer.inputs.conversation import Conversation, conversation_of, parse_calls
from whyformer.inputs.tool_prompt import reply_with_calls, tool_prompt_of
from whyformer.removal.prompt_text import text_without


@pytest.fixture(scope="module")
def tokenizer():
    return agent_batches.new_tokenizer()


def prompt_and_message(tokenizer, one):
    whole = conversation_of(list(one.messages), list(AGENT_TOOLS))
    renderer = SimpleNamespace(tokenizer=tokenizer, name="agent")
    return renderer, tool_prompt_of(renderer, Conversation(whole.messages[:-1], whole.tools)), whole.messages[-1]


def test_episodes_are_laid_out_as_by_the_chat_template(tokenizer):
    for seed in range(20):
        messages, tools = list(episode(seed).messages), list(AGENT_TOOLS[: seed % 7])
        assert tokenizer.apply_chat_template(messages, tools, tokenize=False) == agent_text(messages, tools)
        prompt = tokenizer.apply_chat_template(messages[:-1], tools, tokenize=False, add_generation_prompt=True)
        assert prompt == agent_text(messages[:-1], tools, is_prompt=True)
    with pytest.raises(Exception, match=r"No role named judge. Known: system, user, assistant, tool."):
        tokenizer.apply_chat_template([{"role": "judge", "content": "x"}])


def test_names_are_one_token_and_any_text_survives(tokenizer):
    assert tokenizer.tokenize('"from": "Anna", "coins": 70') == [
        *('▁"', "from", '":', '▁"', "Anna", '",', '▁"', "coins", '":', "▁", "7", "0")
    ]
    for text in ("Hello, wörld 世界 🙂!", "a\n\nb c", episode(3).messages[3]["content"], '{"a": [1, {}]}'):
        assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_the_package_finds_calls_in_the_template_and_in_what_is_written(tokenizer):
    for seed in range(12):
        one = episode(seed, attack=(None, "other_tool", "same_tool")[seed % 3])
        renderer, prompt, message = prompt_and_message(tokenizer, one)
        text, (places,) = reply_with_calls(renderer, prompt, message)
        assert text == call_text(one.messages[-1]["tool_calls"][0]["function"])
        assert text[slice(*places.name)] == one.call.name
        assert {key: text[slice(*own)] for key, own in places.arguments.items()} == {
            key: str(value) for key, value in one.call.arguments.items()
        }
        ids = tokenizer(agent_text(one.messages, AGENT_TOOLS))["input_ids"]
        assert parse_calls(tokenizer.decode(ids))[-1].name == one.call.name


def test_training_removes_what_explanations_remove(tokenizer):
    for seed in range(40):
        one, rng = episode(seed, attack=(None, "other_tool")[seed % 2]), random.Random(seed)
        _, prompt, _ = prompt_and_message(tokenizer, one)
        removed = agent_batches.removed_places(one, rng)
        parts = {part.number: part for part in prompt.parts if part.kind == "message"}
        places = [tuple(parts[number].place(edge) for edge in own) for number in removed for own in removed[number]]
        messages = agent_batches.messages_without(one, removed)
        renderer = SimpleNamespace(tokenizer=tokenizer, name="agent")
        assert text_without(renderer, prompt.prompt, places) == agent_text(messages[:-1], AGENT_TOOLS, is_prompt=True)


def test_the_call_is_what_the_rest_asks_for():
    one = episode(4, kind="bill")
    facts = [sentence.fact for sentence in one.sentences]
    assert agent_batches.reply_text(facts) == call_text({"name": one.call.name, "arguments": dict(one.call.arguments)})
    assert agent_batches.reply_text(facts[1:]) == agent_batches.NOTHING
    texts = [training_text(seed, SIZES[0]) for seed in range(200)]
    assert any(text.endswith(agent_batches.NOTHING + END) for text in texts)
    assert all(text.endswith((agent_batches.NOTHING + END, "}}</tool_call>" + END)) for text in texts)


def test_replies_count_but_not_a_call_that_was_removed(tokenizer):
    messages = list(episode(2, "pay").messages)
    calls = [call_text(one["tool_calls"][0]["function"]) + END for one in (messages[2], messages[4])]
    for removed in (False, True):
        if removed:
            messages[2] = {"role": "assistant", "content": ""}
        tokens = torch.tensor([tokenizer(agent_text(messages), add_special_tokens=False)["input_ids"]])
        own = tokenizer.decode(tokens[0][reply_mask(tokens, tokenizer)[0]]).replace(f"{END} ", END)
        assert own == "".join(calls[removed:])


def test_rows_are_padded_episodes(tokenizer):
    rows = encoded_episodes(0, 6, SIZES[0])
    assert rows.shape == (6, SIZES[0].tokens)
    assert (rows[:, 0] == tokenizer.bos_token_id).all()
    fitting = [text for seed in range(6) if len(text := training_text(seed, SIZES[0]))]
    assert tokenizer(fitting[0], add_special_tokens=False)["input_ids"] == [one for one in rows[0].tolist() if one]


def test_a_small_run_learns_and_writes_a_model_with_its_metrics(tmp_path, monkeypatch):
    arguments = "--device cpu --workers 1 --rows 40 --batch-tokens 600 --width 64 --blocks 1 --kept-back 12"
    arguments += " --held-out 12 --report-every 0.5 --rate 5e-3 --reserve 4"
    monkeypatch.setattr(sys, "argv", ["mini_agent.py", "--out", str(tmp_path), *arguments.split()])
    monkeypatch.setattr(mini_agent, "seconds_left", lambda options, reserve: 4.0)
    ticks = itertools.count(step=0.02)  # a clock that counts steps: on a busy machine real seconds hold too few
    monkeypatch.setattr(training_loop, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    precision = torch.get_float32_matmul_precision()
    try:
        mini_agent.main()
    finally:
        torch.set_float32_matmul_precision(precision)
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if "loss" in record]
    assert losses[-1] < 0.9 * losses[0]
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert {"calls_right", "calls_right_by_attack", "right_without_a_cause", "first_calls_right"} <= set(metrics)
    model = Qwen3ForCausalLM.from_pretrained(tmp_path / "model")
    assert len(AutoTokenizer.from_pretrained(tmp_path / "model")) == model.config.vocab_size


def test_a_call_is_right_if_the_rest_asks_for_it(monkeypatch, tokenizer):
    episodes = agent_evaluation.drawn_episodes(4, "test")
    seen = {}

    def kept(model, own, questions, answers):
        seen.update(zip(questions, answers, strict=True))

    monkeypatch.setattr(agent_evaluation, "answered_as", kept)
    agent_evaluation.calls_without(None, tokenizer, [(one, (0,)) for one in episodes])
    assert set(seen.values()) == {agent_batches.NOTHING}
    assert all("<|user|><|end|>" in question for question in seen)

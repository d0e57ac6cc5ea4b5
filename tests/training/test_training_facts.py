"""What mini-llm learns from: its tokenizer and chat template, conversations, batches; and a run of it, made small."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoTokenizer, Qwen3ForCausalLM

import fact_batches
import fact_evaluation
import mini_hybrid
import mini_llm
import training_loop
from fact_batches import BUCKETS, ROLES, NameExchange, answer_mask, chat_text, conversation, encoded_rows
from whyformer.facts import example, examples
from whyformer.facts.names import POOL_OF, split_of


@pytest.fixture(scope="module")
def tokenizer():
    return fact_batches.new_tokenizer()


@pytest.fixture(scope="module")
def rows():
    return torch.from_numpy(encoded_rows(0, 20, BUCKETS[0])).long()


def test_every_word_of_facts_world_is_one_token(tokenizer):
    for story in examples(40, sentences=(3, 20)):
        words = f"{story.prompt} {story.answer}".replace(".", " .").replace("?", " ?").split()
        tokens = tokenizer.tokenize(f"{story.prompt} {story.answer}")
        assert [token.strip("▁\n") for token in tokens if token.strip("▁\n")] == words


@pytest.mark.parametrize("text", ["The key is in Oslo.", "Hello, wörld 世界 🙂!", "a\n\nb c", "שלום Anna", "x  y"])
def test_any_text_survives_the_tokenizer(tokenizer, text):
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_conversations_are_laid_out_as_by_the_chat_template(tokenizer):
    for seed in range(20):
        messages = conversation(seed, BUCKETS[seed % 2])
        assert tokenizer.apply_chat_template(messages, tokenize=False) == chat_text(messages)
        prompt = tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
        assert prompt == chat_text(messages[:1], is_prompt=True)
    with pytest.raises(Exception, match=r"No role named tool. Known: system, user, assistant."):
        tokenizer.apply_chat_template([{"role": "tool", "content": "x"}])


def test_the_answers_are_what_the_assistant_says(tokenizer):
    messages = conversation(3, BUCKETS[0])
    encoded = tokenizer.apply_chat_template(messages, return_assistant_tokens_mask=True, return_dict=True)
    tokens = torch.tensor([encoded["input_ids"] + [tokenizer.pad_token_id] * 5])
    assert answer_mask(tokens, tokenizer)[0].int().tolist() == encoded["assistant_masks"] + [0] * 5


def test_a_row_ends_with_a_whole_turn(tokenizer):
    bucket = fact_batches.Bucket((3, 8), 100, 20)
    for row in torch.from_numpy(encoded_rows(0, 20, bucket)).long():
        tokens = row[row != tokenizer.pad_token_id]
        assert tokens[-1] == tokenizer.eos_token_id
        roles = [token for token in tokenizer.convert_ids_to_tokens(tokens) if token in ROLES.values()]
        assert roles[-1] == ROLES["assistant"]


def test_a_document_cut_into_several_says_the_same():
    rng, story = random.Random(0), example(1, sentences=12)
    prompts = [fact_batches.laid_out_prompt(story, rng) for _ in range(60)]
    assert story.prompt in prompts
    assert any(prompt.count("\n\n") > 1 for prompt in prompts)
    for prompt in prompts:
        places = [prompt.index(sentence.text) for sentence in story.sentences]
        assert prompt.endswith(story.question)
        assert len(set(places)) == len({sentence.text for sentence in story.sentences})


def test_exchanged_names_stay_in_their_pool_and_their_pairs_in_their_split(tokenizer, rows):
    torch.manual_seed(0)
    exchanged = NameExchange(tokenizer, "cpu")(rows)
    assert not torch.equal(exchanged, rows)
    for before, after in zip(rows.tolist(), exchanged.tolist(), strict=True):
        table = dict(zip(before, after, strict=True))
        assert [table[token] for token in before] == after
        assert len(set(table.values())) == len(table)
        words = dict(zip(*map(tokenizer.convert_ids_to_tokens, (before, after)), strict=True))
        names = {old[1:]: new[1:] for old, new in words.items() if old[1:] in POOL_OF}
        assert all(POOL_OF[old] == POOL_OF[new] for old, new in names.items())
        assert all(old == new for old, new in words.items() if old[1:] not in POOL_OF)
        subjects = [name for name in names if POOL_OF[name] in ("person", "thing", "container")]
        for subject in subjects:
            assert all(split_of(subject, name) == split_of(names[subject], names[name]) for name in names)


def test_repetitions_count_only_what_can_be_copied(rows):
    tokens, weights = mini_llm.repeated(rows)
    for before, row, weight in zip(rows, tokens, weights, strict=True):
        period = 1 + int((weight == 0).sum())
        assert 8 <= period < 40
        assert torch.equal(row[:period], before[:period])
        assert torch.equal(row[period:], row[:-period])
        assert weight[period - 1 :].all()


def test_the_lengths_grow_as_the_training_goes_on():
    assert mini_llm.length_shares(0.0) == (1.0, 0.0, 0.0)
    assert mini_llm.length_shares(1.0) == (0.3, 1.0, 1.0)
    assert [mini_llm.repetition_share(progress) for progress in (0.0, 0.07, 0.12)] == pytest.approx([1.0, 0.5, 0.0])


def test_accuracies_are_those_of_each_group():
    stories = examples(4, kind="plain", hops=1)
    groups = dict(zip(map(id, stories), ("a", "a", "b", None), strict=True))
    scores = fact_evaluation.accuracies(stories, [True, False, True, False], lambda story: groups[id(story)])
    assert scores == {"a": 50.0, "all": 66.67, "b": 100.0}


def test_an_answer_is_right_if_greedy_decoding_writes_it(tokenizer):
    torch.manual_seed(0)
    model = mini_llm.new_model(tokenizer, argparse.Namespace(width=64, blocks=1), fact_batches.POSITIONS)
    stories = examples(3, kind="plain", hops=1, sentences=(3, 6))
    texts = [chat_text([*story.messages, {"role": "assistant", "content": story.answer}]) for story in stories]
    tokens = tokenizer(texts, add_special_tokens=False, padding=True, return_tensors="pt")["input_ids"]
    weights = answer_mask(tokens, tokenizer)[:, 1:].float()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        mini_llm.answer_loss(model, tokens, weights).backward()
        optimizer.step()
    model.eval()
    answers = [story.answer for story in stories]
    assert [fact_evaluation.written(model, tokenizer, story) for story in stories] == answers
    assert fact_evaluation.right_answers(model, tokenizer, stories) == [True] * 3
    questions = fact_evaluation.prompts_of(stories)
    assert fact_evaluation.answered_as(model, tokenizer, questions, answers[1:] + answers[:1]) == [False] * 3


@pytest.mark.parametrize("kind", list(mini_hybrid.KINDS))
def test_a_hybrid_learns_with_all_its_weights_and_fits_ten_megabytes(tokenizer, rows, kind):
    torch.manual_seed(0)
    model = mini_hybrid.new_model(tokenizer, argparse.Namespace(kind=kind))
    assert 2 * model.num_parameters() < 10e6  # in float16
    assert model.config.layer_types == mini_hybrid.LAYERS
    tokens = rows[:1, :40]
    mini_llm.answer_loss(model, tokens, torch.ones(1, 39)).backward()
    without = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert without == []


def test_a_small_run_learns_and_writes_a_model_with_its_metrics(tmp_path, monkeypatch):
    arguments = (
        "--minutes 0.15 --reserve 4 --device cpu --buckets 1 --workers 1 --rows 60 --batch-tokens 800 --width 64"
    )
    arguments += " --blocks 1 --kept-back 8 --held-out 16 --report-every 0.5 --rate 5e-3"
    monkeypatch.setattr(sys, "argv", ["mini_llm.py", "--out", str(tmp_path), *arguments.split()])
    monkeypatch.setattr(mini_llm, "seconds_left", lambda options, reserve: 4.0)
    ticks = itertools.count(step=0.02)  # a clock that counts steps: on a busy machine real seconds hold too few
    monkeypatch.setattr(training_loop, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    precision = torch.get_float32_matmul_precision()
    try:
        mini_llm.main()
    finally:
        torch.set_float32_matmul_precision(precision)
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [record["loss"] for record in records if "loss" in record]
    assert losses[-1] < 0.75 * losses[0]
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert {"accuracy_by_hops", "accuracy_by_position", "accuracy_by_length", "reliance"} <= set(metrics)
    model = Qwen3ForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert set(ROLES.values()) < set(tokenizer.all_special_tokens)
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert len(tokenizer) == model.config.vocab_size

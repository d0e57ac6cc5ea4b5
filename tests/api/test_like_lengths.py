"""Which examples run at once: those of like length, in any order, and the results in the order of the examples."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whyformer import explain, explain_batch, explain_response, explain_responses, load
from whyformer.api.batches import PADDING, like_lengths, texts_at_once
from whyformer.batching import in_batches
from whyformer.tracing import build

WORDS = ["the film was good", "the", "film was", "the film was good the film was good the film"]
TEXTS = [" ".join([WORDS[number % 4]] * (1 + number % 3)) for number in range(9)]


@given(st.lists(st.integers(1, 600), max_size=40), st.integers(0, 50))
def test_every_text_runs_once_with_texts_of_like_length_and_no_more_than_pay(lengths, padding):
    batches = like_lengths(lengths, texts_at_once, padding)
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    for batch in batches:
        own = [lengths[number] for number in batch]
        assert max(own) - min(own) <= padding
        assert len(batch) <= texts_at_once(max(own))
    longest = [max(lengths[number] for number in batch) for batch in batches]
    assert longest == sorted(longest)


def test_texts_of_one_length_run_in_batches_of_the_size_that_is_given():
    assert like_lengths([5] * 7, lambda _: 3) == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_long_text_runs_alone_on_a_cpu_and_short_ones_together():
    assert [texts_at_once(length) for length in (0, 20, 160, 256, 300, 512, 5000)] == [480, 24, 3, 1, 1, 1, 1]


def test_results_come_in_the_order_of_the_items_whatever_runs_together():
    numbers = [5, 3, 8, 1]
    batches = like_lengths(numbers, lambda _: 2)
    assert batches == [[3, 1], [0, 2]]
    squares = in_batches(numbers, lambda batch, _: [x * x for x in batch], batches, "squares", progress=False)
    assert squares == [25, 9, 64, 1]


@pytest.mark.parametrize("method", [None, "generic_attention", "rollout", "lrp"])
def test_texts_of_different_length_are_explained_like_each_alone(bert, method):
    model = load(bert, device="cpu", dtype="float64")
    together = explain_batch(TEXTS, model, method=method)
    for text, ours in zip(TEXTS, together, strict=True):
        alone = explain(text, model, method=method)
        assert ours.target == alone.target
        assert ours.tokens == alone.tokens
        assert ours.scores == pytest.approx(alone.scores, rel=1e-5, abs=1e-7)


def test_a_list_of_labels_stays_with_its_texts(bert):
    model = load(bert, device="cpu")
    labels = [number % 2 for number in range(len(TEXTS))]
    together = explain_batch(TEXTS, model, labels, "generic_attention")
    for text, label, ours in zip(TEXTS, labels, together, strict=True):
        assert ours.scores == pytest.approx(explain(text, model, label, "generic_attention").scores, rel=1e-3, abs=1e-5)


def test_a_target_of_ones_own_sees_the_examples_in_their_order(bert):
    model = load(bert, device="cpu")
    labels = torch.tensor([1, 0, 0, 1, 1])

    def own_labels(output):
        return output.logits[torch.arange(5), labels]

    together = explain_batch(TEXTS[:5], model, own_labels, "generic_attention")
    by_label = explain_batch(TEXTS[:5], model, labels.tolist(), "generic_attention")
    for ours, theirs in zip(together, by_label, strict=True):
        assert ours.scores == pytest.approx(theirs.scores, rel=1e-3, abs=1e-5)


def test_a_batch_has_little_padding_on_a_cpu(monkeypatch):
    paddings, trace = [], build.trace

    def trace_and_note(model, inputs, *args, **options):
        real = inputs["attention_mask"].sum(dim=1)
        paddings.append(int(real.max() - real.min()))
        return trace(model, inputs, *args, **options)

    monkeypatch.setattr(build, "trace", trace_and_note)
    model = load("mini-bert", device="cpu")
    texts = [" ".join(["good"] * count) for count in (120, 3, 60, 5, 110, 4)]
    explain_batch(texts, model, method="rollout")
    assert len(paddings) == 3
    assert max(paddings) <= PADDING


def test_the_rows_of_each_prompt_share_a_pass_in_a_list_too(monkeypatch):
    passes, trace = [], build.trace

    def trace_and_note(model, inputs, *args, **options):
        passes.append(len(inputs["input_ids"]))
        return trace(model, inputs, *args, **options)

    monkeypatch.setattr(build, "trace", trace_and_note)
    model = load("mini-llm", device="cpu")
    prompts = ["Anna is in Oslo. Where is Anna?", "Boris is in Rome. Anna is in Oslo. Where is Boris?"]
    responses = ["Oslo. She is in Oslo.", "Rome. He is in Rome."]
    together = explain_responses(prompts, responses, model, "generic_attention", units="word")
    assert passes == [1, 1]
    for prompt, response, ours in zip(prompts, responses, together, strict=True):
        alone = explain_response(prompt, response, model, "generic_attention", units="word")
        assert ours.scores == pytest.approx(alone.scores, rel=1e-3, abs=1e-5)

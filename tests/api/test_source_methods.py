"""Responses explained by asking the model again without some sources, and by the routes that information takes."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
import torch

from made_responses import source_ablation
from whyformer import explain_response, explain_responses
from whyformer.errors import WhyformerError
from whyformer.inputs.prompt import prompt_of
from whyformer.methods.registry import METHODS
from whyformer.methods.source_ablation import random_subsets

PROMPT, RESPONSE = "The plot was dull. The actors were bad. The music was", " great. I liked it."
DOCUMENTS = [("plot", "A dull story."), ("cast", "Bad actors."), ("sound", "Great music.")]


def log_probability(loaded_model, prompt, response: list[int]) -> float:
    """By a plain forward of its own."""
    ids = prompt_of(loaded_model, prompt).ids
    with torch.no_grad():
        logits = loaded_model.model(input_ids=torch.tensor([ids + response])).logits[0].double()
    steps = logits.log_softmax(dim=-1)[len(ids) - 1 : -1]
    return float(steps[range(len(response)), response].sum())


def test_leave_one_out_equals_differences_made_by_hand(gpt):
    explained = explain_response(PROMPT, RESPONSE, gpt, "leave_one_out", units="response", sources="sentence")
    ids = [token.id for token in explained.tokens]
    whole = log_probability(gpt, PROMPT, ids)
    rests = [
        "The actors were bad. The music was",
        "The plot was dull. The music was",
        "The plot was dull. The actors were bad.",
    ]
    expected = [whole - log_probability(gpt, rest, ids) for rest in rests]
    np.testing.assert_allclose(explained.scores[0], expected, rtol=1e-3, atol=1e-4)
    assert explained.method == "leave_one_out"
    assert explained.token_scores is None
    assert whole == pytest.approx(explained.log_probability, abs=1e-4)


def test_rows_of_a_response_add_up_to_the_whole(gpt):
    whole, sentences = (
        explain_response(PROMPT, RESPONSE, gpt, "leave_one_out", units=units) for units in ("response", "sentence")
    )
    assert len(sentences.rows) == 2
    np.testing.assert_allclose(sentences.scores.sum(axis=0), whole.scores[0], rtol=1e-4, atol=1e-5)


def test_context_ablation_takes_subsets_and_a_seed(gpt):
    call = {
        "prompt": "Tell me.",
        "response": " It is great.",
        "model": gpt,
        "context": DOCUMENTS,
        "sources": "document",
    }
    first, again, other = (
        explain_response(**call, method="context_ablation", subsets=16, seed=seed) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.scores, again.scores)
    assert (first.scores != other.scores).any()
    assert first.options == {"subsets": 16, "seed": 3}
    assert explain_response(**call, method="context_ablation", subsets=16).options == {"subsets": 16, "seed": 0}
    assert [source.name for source in first.sources] == ["plot", "cast", "sound"]
    assert random_subsets(3, 16, seed=3).shape == (16, 3)


def test_a_contrast_is_the_difference_of_both(gpt):
    call = {"model": gpt, "method": "leave_one_out", "units": "response"}
    one, other = (explain_response(PROMPT, text, **call) for text in (" great", " bad"))
    both = explain_response(PROMPT, " great", contrast=" bad", **call)
    np.testing.assert_allclose(both.scores, one.scores - other.scores, rtol=1e-4, atol=1e-5)
    assert both.options["contrast"] == " bad"


def test_messages_are_asked_through_their_template(chat):
    messages = [{"role": "system", "content": "Be kind. Be short."}, {"role": "user", "content": "How was the film?"}]
    explained = explain_response(messages, "Great.", chat, "leave_one_out", sources="sentence")
    ids = [token.id for token in explained.tokens]
    shorter = [{"role": "system", "content": "Be short."}, messages[1]]
    expected = log_probability(chat, messages, ids) - log_probability(chat, shorter, ids)
    assert explained.scores[0, 0] == pytest.approx(expected, abs=1e-4)


def test_many_prompts_are_explained_as_each_alone(gpt):
    prompts = ["A dull film. It was", "The music! It was"]
    together = explain_responses(prompts, [" great.", " bad."], gpt, "leave_one_out")
    for prompt, response, explained in zip(prompts, [" great.", " bad."], together, strict=True):
        alone = explain_response(prompt, response, gpt, "leave_one_out")
        np.testing.assert_allclose(explained.scores, alone.scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("aggregate", ["positive", "sum"])
def test_what_sources_score_can_be_grouped_but_not_split(gpt, aggregate):
    explained = explain_response("Tell me.", " It is.", gpt, "leave_one_out", context=DOCUMENTS, sources="word")
    documents = explained.by("document", aggregate)
    assert documents.scores.shape == (1, 3)
    with pytest.raises(WhyformerError):
        documents.by("word")


def test_what_a_method_of_sources_does_not_take_is_refused(gpt):
    with pytest.raises(WhyformerError, match=r"leave_one_out has no option 'subsets'\. It takes: none\."):
        explain_response(PROMPT, RESPONSE, gpt, "leave_one_out", subsets=3)
    with pytest.raises(WhyformerError, match=r"leave_one_out reads no gradients, so backward='libra' has no effect"):
        explain_response(PROMPT, RESPONSE, gpt, "leave_one_out", backward="libra")


def test_it_can_be_saved_and_shown(gpt, tmp_path):
    explained = explain_response(PROMPT, RESPONSE, gpt, "leave_one_out")
    for suffix in (".json", ".npz", ".html"):
        explained.save(tmp_path / f"response{suffix}")
    loaded = type(explained).load(tmp_path / "response.json")
    np.testing.assert_array_equal(loaded.scores, explained.scores)
    assert "leave_one_out" in str(explained)


@pytest.mark.parametrize("units", ["response", "word"])
def test_flow_routes_hop_through_what_the_response_said_before(gpt, units):
    straight, hopped = (
        explain_response(PROMPT, RESPONSE, gpt, "flow_routes", units=units, hops=hops) for hops in (0, 2)
    )
    assert (hopped.token_scores >= 0).all()
    later = slice(1, None) if units == "word" else slice(None)
    assert (hopped.earlier[later].sum(axis=1) < straight.earlier[later].sum(axis=1)).all()
    assert hopped.options["hops"] == 2


def test_a_row_by_flow_routes_is_as_if_it_were_asked_alone(gpt):
    together = explain_response(PROMPT, RESPONSE, gpt, "flow_routes", units="sentence")
    for number, row in enumerate(together.rows):
        alone = explain_response(PROMPT, RESPONSE, gpt, "flow_routes", units=[(row.start, row.end)])
        np.testing.assert_allclose(together.token_scores[number], alone.token_scores[0], rtol=1e-4, atol=1e-6)


def shapley_values(worth) -> np.ndarray:
    """By every order in which the sources may come, from what each subset of them is worth [row]."""
    count = int(np.log2(len(worth)))
    orders = list(permutations(range(count)))
    values = np.zeros((count, len(worth[()])))
    for order in orders:
        for place, source in enumerate(order):
            before = tuple(sorted(order[:place]))
            values[source] += worth[tuple(sorted((*before, source)))] - worth[before]
    return values.T / len(orders)


def test_kernel_shap_gives_the_shapley_values_of_sources():
    """Of any function of four sources, and two rows, that it is asked about once for both."""
    random, asked = np.random.default_rng(0), []
    worth = {subset: random.normal(size=2) for k in range(5) for subset in combinations(range(4), k)}

    def log_probabilities(masks):
        asked.append(len(masks))
        return np.stack([worth[tuple(np.flatnonzero(mask))] for mask in masks])

    scores = METHODS["kernel_shap"].of_sources(source_ablation(4, (3, 1), log_probabilities))
    np.testing.assert_allclose(scores, shapley_values(worth), rtol=1e-9, atol=1e-9)
    assert sum(asked) == 16


def test_shapley_values_of_a_prompt_are_those_by_enumeration(gpt):
    sentences, end = ["The plot was dull.", "The actors were bad.", "I liked it."], "The music was"
    prompt = " ".join([*sentences, end])
    starts = [prompt.index(sentence) for sentence in sentences]
    sources = [(start, start + len(sentence)) for start, sentence in zip(starts, sentences, strict=True)]
    whole, parts = (
        explain_response(prompt, RESPONSE, gpt, "kernel_shap", units=units, sources=sources)
        for units in ("response", "sentence")
    )
    ids = [token.id for token in whole.tokens]
    subsets = [subset for k in range(4) for subset in combinations(range(3), k)]
    texts = {subset: " ".join([*(sentences[n] for n in subset), end]) for subset in subsets}
    worth = {subset: np.array([log_probability(gpt, text, ids)]) for subset, text in texts.items()}
    np.testing.assert_allclose(whole.scores, shapley_values(worth), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(parts.scores.sum(axis=0), whole.scores[0], rtol=1e-4, atol=1e-5)
    assert whole.options == {"forwards": 512, "seed": 0, "stable": None}


def test_after_an_early_stop_the_notes_of_a_response_say_how_much_was_asked(gpt):
    early = explain_response(PROMPT, RESPONSE, gpt, "lime", sources="word", forwards=128, stable=0.01)
    assert "It stopped early after 64 of at most 128 subsets." in early.notes
    whole = explain_response(PROMPT, RESPONSE, gpt, "lime", sources="word", forwards=64, stable=1.0)
    assert "It used all 64 subsets without reaching a stable ranking." in whole.notes


def test_occlusion_of_sources_is_leave_one_out(gpt):
    removed, left_out = (
        explain_response(PROMPT, RESPONSE, gpt, method, sources="word") for method in ("occlusion", "leave_one_out")
    )
    np.testing.assert_allclose(removed.scores, left_out.scores, rtol=1e-3, atol=1e-5)
    assert removed.method == "occlusion"


@pytest.mark.parametrize("method", ["lime", "rise", "mask_regression"])
def test_methods_that_remove_units_find_the_source_that_matters(method):
    """One source of six raises the response, another lowers it, and the others do nothing."""
    effect = np.array([0.0, 3.0, 0.0, 0.0, -1.5, 0.0])
    ablation = source_ablation(6, (2,), lambda masks: masks.astype(float) @ effect[:, None] - 5)
    ((first, *_),) = np.argsort(-METHODS[method].of_sources(ablation, forwards=256))
    assert first == 1
    assert int(METHODS[method].of_sources(ablation, forwards=256)[0].argmin()) == 4


def test_what_has_no_meaning_for_sources_is_refused(gpt):
    with pytest.raises(WhyformerError, match=r"kernel_shap has no option 'fill'\. It takes: forwards=512"):
        explain_response(PROMPT, RESPONSE, gpt, "kernel_shap", fill="black")
    with pytest.raises(WhyformerError, match="lime reads no gradients, so backward='libra' has no effect"):
        explain_response(PROMPT, RESPONSE, gpt, "lime", backward="libra")

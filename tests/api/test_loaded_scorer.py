"""The scorer of a loaded model: plain forward passes, with less to compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from whyformer import load
from whyformer.api.generation import generate
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.removal.response_scorer import PromptVariant, ScoringRequest

DOCUMENTS = [("plot", "A dull story."), ("sound", "Great music."), ("end", "Nobody knows.")]


@pytest.fixture(scope="module")
def scorer(gpt):
    return LoadedScorer(gpt)


@pytest.fixture(scope="module")
def prompt(scorer):
    return scorer.prompt("The music was", context=DOCUMENTS)


def by_plain_forward(scorer: LoadedScorer, prompt: PromptVariant, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        logits = scorer.loaded_model.model(torch.tensor([[*prompt.ids, *ids]])).logits[0].double()
    places = torch.arange(len(prompt.ids) - 1, len(prompt.ids) + len(ids) - 1)
    return logits.log_softmax(dim=-1)[places, torch.tensor(ids)].numpy()


def test_scores_are_those_of_plain_forwards_in_the_order_of_the_requests(scorer, prompt):
    variants = [scorer.variant(prompt, places) for places in ([], [(0, 19)], [(0, 19), (19, 40)])]
    requests = [
        ScoringRequest(variant, scorer.response(prompt, text), text)
        for text in (" great.", " dull and long.")
        for variant in (*variants, variants[0])
    ]
    for _ in range(2):  # the second time from the kept prefix
        values = scorer.log_probabilities(requests, whole=variants[0])
        for request, value in zip(requests, values, strict=True):
            expected = by_plain_forward(scorer, request.prompt, [token.id for token in request.tokens])
            np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)


def test_a_kept_prefix_is_not_computed_again(gpt, prompt):
    scorer, tokens = LoadedScorer(gpt), []
    variants = [scorer.variant(prompt), scorer.variant(prompt, [(38, 58)]), scorer.variant(prompt, [(19, 36)])]
    requests = [ScoringRequest(one, scorer.response(prompt, " great."), " great.") for one in variants]
    hook = gpt.model.register_forward_pre_hook(
        lambda module, args, kwargs: tokens.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    try:
        scorer.log_probabilities(requests, whole=variants[0])
        first, tokens[:] = sum(tokens), []
        scorer.log_probabilities(requests, whole=variants[0])
    finally:
        hook.remove()
    assert sum(tokens) == first - len(variants[0].ids) + 1


def test_responses_that_differ_in_their_last_token_share_a_forward_pass(gpt, scorer, prompt):
    tokens, calls = scorer.response(prompt, " great and long."), []
    others = [(*tokens[:-1], replace(tokens[-1], id=id)) for id in (tokens[0].id, tokens[1].id)]
    variants = [scorer.variant(prompt), scorer.variant(prompt, [(19, 36)])]
    requests = [ScoringRequest(one, own, "") for own in (tokens, *others) for one in variants]
    hook = gpt.model.register_forward_pre_hook(lambda module, args: calls.append(module))
    try:
        values = LoadedScorer(gpt, keeps_prefix=False).log_probabilities(requests)
    finally:
        hook.remove()
    assert len(calls) == 1
    assert not scorer.log_probabilities([ScoringRequest(variants[0], (), "")])[0].size
    for request, value in zip(requests, values, strict=True):
        expected = by_plain_forward(scorer, request.prompt, [token.id for token in request.tokens])
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4)


def test_the_variant_without_a_source_is_the_prompt_of_the_others(scorer, prompt):
    first = next(document for document in prompt.documents if document.name == "plot")
    shorter = scorer.variant(prompt, [(first.start, first.end)])
    assert shorter == scorer.variant(scorer.prompt("The music was", context=DOCUMENTS[1:]))


@pytest.mark.parametrize("name", ["mini-gpt", "mini-t5"])
def test_it_writes_what_generate_writes(name):
    loaded_model = load(name, device="cpu")
    scorer = LoadedScorer(loaded_model)
    prompt = scorer.prompt("The film was long and")
    ids = torch.tensor([prompt.ids])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if loaded_model.task.has_decoder:
        inputs["decoder_input_ids"] = torch.tensor([loaded_model.model.generation_config.decoder_start_token_id])[None]
    expected = loaded_model.tokenizer.decode(generate(loaded_model, inputs, 6), skip_special_tokens=True)
    for _ in range(2):
        assert scorer.write(scorer.variant(prompt), 6) == expected

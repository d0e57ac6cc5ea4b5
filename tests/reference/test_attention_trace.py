"""attntrace and its naive twin: attention as transformers returns it, with sources hidden by the mask."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import whyformer
from whyformer import WhyformerError, explain_response
from whyformer.methods.source_ablation import random_subsets

PROMPT = [{"role": "user", "content": "Boris is in Oslo. Anna is a baker. Greta took the key.\n\nWhere is Boris?"}]
ANSWER = "Boris is in Oslo."


@pytest.fixture(scope="module")
def llm():
    return whyformer.load("mini-llm", device="cpu")


def test_scores_are_the_mean_over_contexts_of_the_strongest_attention(llm):
    options = {"subsets": 4, "kept": 0.5, "top": 2, "seed": 3}
    response = explain_response(PROMPT, ANSWER, llm, "attntrace", units="word", sources="sentence", **options)
    module = copy.deepcopy(llm.model).double()
    module.set_attn_implementation("eager")
    prompt = [token.id for token in response.prompt.tokens]
    ids = torch.tensor([[*prompt, *(token.id for token in response.tokens)]])
    sums, counts = np.zeros(response.scores.shape), np.zeros(len(response.sources))
    for mask in random_subsets(len(response.sources), 4, kept=0.5, seed=3):
        seen = torch.ones_like(ids)
        for source, is_kept in zip(response.sources, mask, strict=True):
            seen[0, list(source.tokens)] = int(is_kept)
        with torch.no_grad():
            maps = torch.stack(module(ids, attention_mask=seen, output_attentions=True).attentions)[:, 0]
        for number in np.flatnonzero(mask):
            counts[number] += 1
            for line, row in enumerate(response.rows):
                weights = []
                for key in response.sources[number].tokens:
                    queries = [len(prompt) + token - 1 for token in row.tokens]
                    weights.append(float(maps[:, :, queries, key].mean()))
                sums[line, number] += sum(sorted(weights)[-2:]) / 2
    np.testing.assert_allclose(response.scores, sums / np.maximum(counts, 1), rtol=1e-4, atol=1e-7)


def test_options_that_cannot_be_used_are_refused(llm):
    for options, message in [({"kept": 0.0}, "kept=0.0"), ({"top": 0}, "top=0"), ({"subsets": 0}, "subsets=0")]:
        with pytest.raises(WhyformerError, match=message):
            explain_response(PROMPT, ANSWER, llm, "attntrace", **options)


def test_a_served_model_shows_no_attention():
    def score(prompts, responses):
        return [-1.0] * len(prompts)

    with pytest.raises(WhyformerError, match="attntrace reads attention"):
        explain_response("It is cold. It is late.", " Yes.", score=score, method="attntrace")
    with pytest.raises(WhyformerError, match="explains responses only"):
        whyformer.explain("A film.", "mini-gpt", method="attntrace")

"""at2 and its learning: the naive twins of scores, of masks and of the fit."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import whyformer
from whyformer import WhyformerError, explain_response
from whyformer.api.learn_heads import (
    LearningRun,
    fitted_heads,
    generated_answers,
    learn_heads,
    masked_log_odds,
    mean_correlation,
    source_attention,
)
from whyformer.api.replies import reply_of
from whyformer.errors import UnsupportedModel
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.sources import sources_of
from whyformer.models.head_weights import (
    HEADS_FOLDER,
    HeadWeights,
    head_weights,
    heads_file,
    read_heads,
    save_heads,
    tensor_digest,
)

PROMPT = [{"role": "user", "content": "Boris is in Oslo. Anna is a baker. Greta took the key.\n\nWhere is Boris?"}]
ANSWER = "Boris is in Oslo."


@pytest.fixture(scope="module")
def llm():
    return whyformer.load("mini-llm", device="cpu")


@pytest.fixture(scope="module")
def reply(llm):
    return reply_of(llm, encode_prompt(llm, PROMPT), ANSWER)


@pytest.fixture(scope="module")
def maps(llm, reply):
    """The maps [block, head, query, key] as transformers returns them, in float64."""
    module = copy.deepcopy(llm.model).double()
    module.set_attn_implementation("eager")
    with torch.no_grad():
        ids = torch.tensor([[*reply.exchange.prompt, *reply.exchange.response]])
        return torch.stack(module(ids, output_attentions=True).attentions)[:, 0].numpy()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(HEADS_FOLDER, str(tmp_path))
    return tmp_path


def test_scores_are_the_weighted_sum_of_attention(llm, reply, maps, folder):
    blocks, heads, *_ = maps.shape
    theta = torch.rand(blocks * heads, generator=torch.Generator().manual_seed(0))
    save_heads(HeadWeights(theta, tensor_digest(llm.model)), heads_file(llm.model))
    response = explain_response(PROMPT, ANSWER, llm, "at2", sinks="keep", units="token")
    first = len(reply.exchange.prompt)
    for number, row in enumerate(response.rows):
        expected = np.zeros(first)
        for block in range(blocks):
            for head in range(heads):
                for token in row.tokens:
                    for key in range(first):
                        query = first + token - 1  # where the token is predicted
                        value = maps[block, head, query, key]
                        expected[key] += float(theta[block * heads + head]) * value / len(row.tokens)
        assert response.token_scores[number] == pytest.approx(expected, abs=1e-5)


def test_features_are_attention_to_sources(llm, reply, maps):
    sources, first = sources_of(reply.prompt), len(reply.exchange.prompt)
    features = source_attention(llm, reply, sources).numpy()
    queries = [first + token - 1 for token in range(len(reply.exchange.response))]
    for number, source in enumerate(sources):
        expected = [
            np.mean([sum(maps[b, h, q, list(source.tokens)]) for q in queries])
            for b in range(len(maps))
            for h in range(maps.shape[1])
        ]
        assert features[number] == pytest.approx(expected, abs=1e-5)


def test_outcomes_are_log_odds_with_sources_hidden(llm, reply):
    sources = sources_of(reply.prompt)
    masks = torch.tensor([[True] * len(sources), [False, *[True] * (len(sources) - 1)]])
    outcomes = masked_log_odds(llm, reply, sources, masks)
    module, first = copy.deepcopy(llm.model).double(), len(reply.exchange.prompt)
    ids = [*reply.exchange.prompt, *reply.exchange.response]
    for mask, outcome in zip(masks, outcomes, strict=True):
        seen = [1] * len(ids)
        for source, is_kept in zip(sources, mask.tolist(), strict=True):
            for token in source.tokens:
                seen[token] = int(is_kept)
        with torch.no_grad():
            logits = module(torch.tensor([ids]), attention_mask=torch.tensor([seen])).logits[0]
        odds = []
        for place, token in enumerate(reply.exchange.response, start=first):
            p = torch.softmax(logits[place - 1].double(), dim=0)
            odds.append(float(torch.log(p[token]) - torch.log(p.sum() - p[token])))
        assert float(outcome) == pytest.approx(np.mean(odds), rel=2e-3)
    assert float(outcomes[1]) < float(outcomes[0]) - 1  # the answer is in the first sentence


def test_the_correlation_is_pearsons():
    rng = np.random.default_rng(0)
    features, outcomes, theta = rng.normal(size=(4, 16, 3)), rng.normal(size=(4, 16)), rng.random(3)
    expected = np.mean([np.corrcoef(one @ theta, other)[0, 1] for one, other in zip(features, outcomes, strict=True)])
    value = mean_correlation(*map(torch.from_numpy, (features, outcomes, theta)))
    assert float(value) == pytest.approx(expected)


def test_the_heads_that_decide_are_found():
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(40, 32, 12, generator=generator)
    outcomes = 3 * features[..., 2] + features[..., 7] + 0.05 * torch.rand(40, 32, generator=generator)
    theta, learned, uniform = fitted_heads(features, outcomes)
    assert learned > 0.99 > 0.6 > uniform
    assert theta.topk(2).indices.tolist() == [2, 7]
    assert float(theta[2] / theta[7]) == pytest.approx(3, rel=0.15)
    assert float(theta.sum()) == pytest.approx(1)


def test_a_stopped_run_goes_on_to_the_same_weights(llm, tmp_path, monkeypatch):
    monkeypatch.setattr("whyformer.api.learn_heads.KEPT_EVERY", 4)
    whole = LearningRun(llm, "test", 8, 0, tmp_path / "whole.part.safetensors")
    expected = learn_heads(whole, generated_answers(llm, 14), 14)
    stopped = LearningRun(llm, "test", 8, 0, tmp_path / "stopped.part.safetensors")

    def cut_off():
        yield from list(generated_answers(llm, 14))[:9]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn_heads(stopped, cut_off(), 14)
    assert stopped.part.is_file()
    weights = learn_heads(stopped, generated_answers(llm, 14), 14)
    assert torch.equal(weights.theta, expected.theta)
    assert weights.facts == expected.facts
    assert not stopped.part.exists()


def test_weights_are_of_one_model_and_checked(llm, folder):
    with pytest.raises(UnsupportedModel, match="run `whyformer learn MODEL`"):
        explain_response(PROMPT, ANSWER, llm, "at2")
    file = folder / "other.safetensors"
    save_heads(HeadWeights(torch.ones(3), "another digest"), file)
    with pytest.raises(WhyformerError, match="learned for other weights"):
        head_weights(llm.model, file)
    save_heads(HeadWeights(torch.tensor([1.0, -1.0]), "x"), file)
    with pytest.raises(WhyformerError, match="not numbers of 0 and more"):
        read_heads(file)
    file.write_bytes(b"no tensors")
    with pytest.raises(WhyformerError, match="has no weights of heads"):
        read_heads(file)
    save_heads(HeadWeights(torch.ones(3), tensor_digest(llm.model)), heads_file(llm.model))
    with pytest.raises(WhyformerError, match="3 weights were learned for"):
        explain_response(PROMPT, ANSWER, llm, "at2")
    with pytest.raises(WhyformerError, match="explains responses only"):
        whyformer.explain("A film.", "mini-gpt", method="at2")

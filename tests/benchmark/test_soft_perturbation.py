"""Soft comprehensiveness and sufficiency: the formula written out, and what a good explanation gains by it."""

import math
from zlib import crc32

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from test_protocols import shard

from whyformer import WhyformerError, attribute
from whyformer.benchmark import PROTOCOLS
from whyformer.benchmark.choice import Choice
from whyformer.data import Document, Photo
from whyformer.metrics.soft_removal import (
    hellinger,
    keep_probabilities,
    mean_changes,
    soft_comprehensiveness,
    soft_comprehensiveness_removal,
    soft_sufficiency,
    soft_sufficiency_removal,
)

TEXTS = ["the film was great and not bad", "a bad film", "the film was not a great film and not badly great"]
DOCUMENTS = [Document(f"{number}", text, None) for number, text in enumerate(TEXTS)]
ALL = torch.ones(1, 6, dtype=torch.bool)
numbers = st.lists(st.floats(-5, 5, width=32), min_size=6, max_size=6)
shares = st.floats(0.05, 0.95)


def naive_probabilities(scores, share):
    """Of one text, in plain Python."""
    low, high = min(scores), max(scores)
    unit = [(score - low) / (high - low) if high > low else 0.0 for score in scores]
    mean = sum(unit) / len(unit)
    if mean > share:
        return [score * share / mean for score in unit]
    return [1 - (1 - score) * (1 - share) / (1 - mean) for score in unit]


def distance(one, other):
    """Hellinger's, of two distributions."""
    return math.sqrt(max(0.0, 1 - sum(math.sqrt(p * q) for p, q in zip(one, other, strict=True))))


@given(numbers, shares)
def test_probabilities_keep_the_order_and_the_mean_share(scores, share):
    found = keep_probabilities(torch.tensor([scores]), ALL, share)[0]
    np.testing.assert_allclose(found, naive_probabilities(scores, share), atol=1e-9)
    assert float(found.mean()) == pytest.approx(share)
    assert ((found >= -1e-12) & (found <= 1 + 1e-12)).all()
    assert (found[torch.tensor(scores).double().argsort()].diff() >= -1e-12).all()


@given(numbers, shares)
def test_comprehensiveness_keeps_one_minus_the_score_and_the_same_share(scores, share):
    uniform = torch.rand(50, 1, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    opposite = torch.tensor(naive_probabilities([-score for score in scores], share), dtype=torch.float64)
    assert float(opposite.mean()) == pytest.approx(share)
    found = soft_comprehensiveness_removal(torch.tensor([scores]), ALL, uniform, [share])[:, 0]
    is_clear = (uniform[:, 0] - opposite).abs() > 1e-9
    assert (found == (uniform[:, 0] >= opposite))[is_clear].all()


@pytest.mark.parametrize("removal", [soft_comprehensiveness_removal, soft_sufficiency_removal])
def test_scores_of_zero_remove_tokens_at_random(removal):
    may_go = torch.tensor([[False, True, True, True, False]])
    uniform = torch.rand(2000, 1, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = removal(torch.zeros(1, 5), may_go, uniform, [0.3, 0.8])
    assert torch.equal(found, torch.cat([uniform >= 0.3, uniform >= 0.8]) & may_go)
    np.testing.assert_allclose(1 - found[:2000, 0, 1:4].double().mean(dim=0), 0.3, atol=0.05)


@pytest.mark.parametrize("position", range(6))
def test_the_only_cause_has_more_comprehensiveness_and_sufficiency_than_noise(position):
    """The answer depends on one token alone; it is changed whenever that one is removed."""
    rng = torch.Generator().manual_seed(position)
    uniform = torch.rand(200, 1, 6, dtype=torch.float64, generator=rng)
    cause = torch.zeros(1, 6).index_fill(1, torch.tensor(position), 1.0)
    noise = torch.zeros(1, 6)
    clean, share = torch.tensor([[3.0, -3.0]]), [0.5]

    def change(removal, scores):
        is_gone = removal(scores, ALL, uniform, share)[:, :, position]
        steps = torch.where(is_gone[..., None], -clean, clean)
        return mean_changes(clean, steps, 1)

    empty = hellinger(clean, -clean[None])[:, 0]
    nc, nc_noise = (soft_comprehensiveness(change(soft_comprehensiveness_removal, s), empty) for s in (cause, noise))
    ns, ns_noise = (soft_sufficiency(change(soft_sufficiency_removal, s), empty) for s in (cause, noise))
    assert float(nc) == pytest.approx(1.0)
    assert float(ns) == pytest.approx(1.0)
    assert float(nc_noise) == pytest.approx(0.5, abs=0.1)
    assert float(ns_noise) == pytest.approx(0.5, abs=0.1)


def test_a_text_whose_answer_needs_no_words_has_no_value():
    changes, empty = torch.tensor([[0.2], [0.2]]), torch.tensor([0.4, 0.01])
    found = soft_comprehensiveness(changes, empty)[:, 0]
    assert float(found[0]) == pytest.approx(0.5)
    assert soft_comprehensiveness(changes, empty)[:, 0].isnan().tolist() == [False, True]
    assert soft_sufficiency(changes, empty)[:, 0].isnan().tolist() == [False, True]


def naive_ratio(answer, ids, words, scores, drawn, share):
    """Mean change over the draws, over the change of the text without its words."""
    whole = answer(ids, set(range(len(ids))))
    probabilities = naive_probabilities(scores, share)
    changes = []
    for draw in drawn:
        gone = {word for word, number, keep in zip(words, draw, probabilities, strict=True) if number >= keep}
        changes.append(distance(whole, answer(ids, set(range(len(ids))) - gone)))
    return np.mean(changes) / distance(whole, answer(ids, set(range(len(ids))) - set(words)))


def test_the_protocol_is_the_formula_text_by_text(bert, monkeypatch):
    monkeypatch.setattr(
        "whyformer.metrics.soft_removal.LEAST_EMPTY_CHANGE", 0.0
    )  # a random model answers all texts alike
    tested = shard(bert, DOCUMENTS, methods=[Choice("input_x_gradient"), Choice("random")])
    found = PROTOCOLS["soft_perturbation"].measure(tested, shares=[0.3, 0.8], draws=3)
    model, tokenizer = tested.loaded_model.model, tested.loaded_model.tokenizer

    @torch.no_grad()
    def answer(ids, kept):
        read = [token if place in kept else tokenizer.pad_token_id for place, token in enumerate(ids)]
        mask = [[int(place in kept) for place in range(len(ids))]]
        logits = model(input_ids=torch.tensor([read]), attention_mask=torch.tensor(mask)).logits
        return logits[0].double().softmax(dim=0).tolist()

    for row, document in enumerate(DOCUMENTS):
        inputs = dict(tokenizer([document.text], return_tensors="pt"))
        ids = inputs["input_ids"][0].tolist()
        words = [place for place, token in enumerate(ids) if token not in tokenizer.all_special_ids]
        predicted = int(tested.logits[row].argmax())
        scores = attribute(model, inputs, predicted, "input_x_gradient")["text"][0, words].tolist()
        drawn = np.random.default_rng([0, crc32(document.name.encode())]).random((3, len(words)))
        opposite = [-score for score in scores]
        nc = [naive_ratio(answer, ids, words, opposite, drawn, share) for share in (0.3, 0.8)]
        ns = [1 - naive_ratio(answer, ids, words, scores, drawn, share) for share in (0.3, 0.8)]
        for name, expected in (("π-Soft-NC", nc), ("π-Soft-NS", ns)):
            line = found["input_x_gradient", f"{name} by share kept"]
            assert line.at == (0.3, 0.8)
            np.testing.assert_allclose(line.values[row], expected, atol=2e-3)
            assert float(found["input_x_gradient", name][row]) == pytest.approx(np.mean(expected), abs=2e-3)


def test_a_text_has_the_same_values_alone_and_among_others(bert):
    together = PROTOCOLS["soft_perturbation"].measure(shard(bert, DOCUMENTS))
    tested = shard(bert, DOCUMENTS[1:2])
    alone = PROTOCOLS["soft_perturbation"].measure(tested)
    np.testing.assert_allclose(alone["rollout", "π-Soft-NC"], together["rollout", "π-Soft-NC"][1:2], atol=1e-4)


@pytest.mark.parametrize("invalid", [[], [0], [1.0], ["half"], 0.5])
def test_shares_lie_between_0_and_1(bert, invalid):
    with pytest.raises(WhyformerError, match=r"soft_perturbation: shares=.* must be shares between 0 and 1"):
        PROTOCOLS["soft_perturbation"].measure(shard(bert, DOCUMENTS[:1]), shares=invalid)


@pytest.mark.parametrize("draws", [0, 1.5, True])
def test_draws_are_counted(bert, draws):
    with pytest.raises(WhyformerError, match="draws per share, a whole number, 1 or more"):
        PROTOCOLS["soft_perturbation"].measure(shard(bert, DOCUMENTS[:1]), draws=draws)


def test_pictures_are_refused(vit):
    with pytest.raises(WhyformerError, match="soft_perturbation needs texts"):
        PROTOCOLS["soft_perturbation"].measure(shard(vit, [Photo("a", Image.new("RGB", (32, 32)))]))

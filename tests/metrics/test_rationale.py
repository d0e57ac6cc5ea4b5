"""Rationales: words from pieces, agreement with what people marked, and what the model says without them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc, precision_recall_curve, precision_recall_fscore_support
from test_perturbation import EVALUATION, EXPECTED, IDS, INPUTS, TEXTS

from tiny_models import TEXT, built
from whyformer.inputs.fills import erased
from whyformer.metrics.perturbation_curves import step_logits
from whyformer.metrics.rationale import (
    BINS,
    auprc,
    mean_drop,
    only_rationale,
    picked_words,
    precision_recall_f1,
    rationale_counts,
    without_rationale,
    word_scores,
)
from whyformer.metrics.removal import removable_tokens

SPANS = json.loads((EVALUATION / "config.json").read_text())["eraser"]["documents"]


def marked(document, count):
    truth = np.zeros(count, dtype=bool)
    for start, end in SPANS[document]["truth_spans"]:
        truth[start:end] = True
    return truth


def pieces():
    """The reference's word pieces, their places in the text, and their scores; special tokens dropped."""
    text = " ".join(INPUTS["eraser/words"])
    vocabulary, place = INPUTS["eraser/vocab"], 0
    offsets, scores = [], []
    for token, score in zip(vocabulary[INPUTS["eraser/ids"]], INPUTS["eraser/token_scores"], strict=True):
        if token.startswith("["):
            continue
        piece = token.removeprefix("##")
        place = text.index(piece, place)
        offsets.append((place, place + len(piece)))
        scores.append(score)
        place += len(piece)
    return text, offsets, scores


def test_word_scores_are_those_of_the_reference():
    assert word_scores(*pieces()) == pytest.approx(EXPECTED["eraser/word_scores"], abs=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_token_f1_is_that_of_the_reference(count):
    scores = EXPECTED["eraser/word_scores"]
    assert picked_words(scores, count).tolist() == EXPECTED[f"eraser/top{count}/top_words_doc0"].tolist()
    first = rationale_counts(scores, marked("d0", 8), [count])[0]
    picked = np.isin(np.arange(8), range(2, 2 + count))
    second = rationale_counts(picked.astype(float), marked("d1", 8), [count])[0]
    both = np.stack([first, second])
    macro, micro = precision_recall_f1(both).mean(axis=0), precision_recall_f1(both.sum(axis=0))
    assert macro == pytest.approx(EXPECTED[f"eraser/top{count}/macro_precision_recall_f1"], abs=1e-12)
    assert micro == pytest.approx(EXPECTED[f"eraser/top{count}/micro_precision_recall_f1"], abs=1e-12)


def test_a_word_is_worth_its_best_piece_and_a_piece_over_two_words_counts_for_both():
    found = word_scores("ab cd  ef gone", [(0, 1), (1, 2), (0, 0), (4, 8)], [0.1, 0.4, 9.0, 0.3])
    assert found.tolist() == [0.4, 0.3, 0.3, -np.inf]


def test_words_beyond_the_models_limit_are_never_picked_but_count_in_the_recall():
    scores, truth = np.array([0.2, 0.1, -np.inf, -np.inf]), np.array([True, False, True, True])
    assert rationale_counts(scores, truth, [3]).tolist() == [[1, 2, 3]]


words = st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        st.lists(st.integers(-5, 5), min_size=n, max_size=n), st.lists(st.booleans(), min_size=n, max_size=n)
    )
)


@given(words)
def test_agreement_is_scikit_learns(case):
    scores, truth = np.array(case[0], dtype=float), np.array(case[1])
    for count in (1, 4):
        said = np.isin(np.arange(len(scores)), picked_words(scores, count))
        expected = precision_recall_fscore_support(truth, said, average="binary", zero_division=0)[:3]
        assert precision_recall_f1(rationale_counts(scores, truth, [count]))[0] == pytest.approx(expected)
    if truth.any():
        precision, recall, _ = precision_recall_curve(truth, scores)
        assert auprc(scores, truth) == pytest.approx(auc(recall, precision), abs=1e-5)
    else:
        assert np.isnan(auprc(scores, truth))


def test_unscored_words_come_last_in_the_area():
    scores, truth = np.array([0.5, -1.0, -np.inf]), np.array([True, False, True])
    precision, recall, _ = precision_recall_curve(truth, [0.5, -1.0, -9.0])
    assert auprc(scores, truth) == pytest.approx(auc(recall, precision))


def test_without_and_only_part_the_content():
    removable = removable_tokens(IDS, TEXTS["attention_mask"], {0, 1, 2})
    scores = torch.rand(IDS.shape, generator=torch.Generator().manual_seed(0))
    without, only = without_rationale(scores, removable), only_rationale(scores, removable)
    assert len(without) == len(BINS)
    assert torch.equal(without | only, removable.expand_as(without))
    assert not (without & only).any()


def test_comprehensiveness_and_sufficiency_are_drops_asked_one_text_at_a_time():
    model = built("BertForSequenceClassification", "BertConfig", **TEXT)
    scores = torch.rand(IDS.shape, generator=torch.Generator().manual_seed(0))
    removable, explained = removable_tokens(IDS, TEXTS["attention_mask"], {0, 1, 2}), torch.tensor([1, 2])

    def probability(ids, label):
        with torch.no_grad():
            return model(input_ids=torch.tensor([ids])).logits.softmax(dim=1)[0, label].item()

    expected = {"without": [], "only": []}
    for row, heat, label in zip(IDS.tolist(), scores.tolist(), explained.tolist(), strict=True):
        real = [place for place, token in enumerate(row) if token != 0]
        content = [place for place in real if row[place] not in (1, 2)]
        clean = probability([row[place] for place in real], label)
        drops = {"without": [], "only": []}
        for share in BINS:
            best = sorted(content, key=lambda place: -heat[place])[: int(share * len(content))]
            kept = {"without": set(real) - set(best), "only": set(real) - (set(content) - set(best))}
            for name, places in kept.items():
                drops[name].append(clean - probability([row[place] for place in sorted(places)], label))
        for name in expected:
            expected[name].append(np.mean(drops[name]))

    def forward(x):
        return model(**x).logits

    with torch.no_grad():
        clean_logits = forward(TEXTS)
    for name, rationale in (("without", without_rationale), ("only", only_rationale)):
        steps = step_logits(forward, erased(TEXTS, rationale(scores, removable), "delete", filler=0))
        assert mean_drop(clean_logits, steps, explained).tolist() == pytest.approx(expected[name], abs=1e-6)

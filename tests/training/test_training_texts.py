"""Texts for the small BERTs: batches, masking, and the ridge regression, each against a naive twin."""

from __future__ import annotations

import math

import pytest
import torch

from bert_training import accuracy, majority_accuracy, symmetric_divergence
from mini_news import macro_f1
from ridge_regression import MIN_TEXTS, PENALTY, features, fit_ridge, inner_products, weighted_counts
from texts import Texts, post_body, sentences
from token_batches import CLS, IGNORED, MASK, PAD, SEP, EncodedTexts, length_batches, mask_tokens

POST = """From: somebody
Subject: skates

Mary writes:
> Are they sharp?
They are very sharp.

--
somebody, somewhere"""


def encoded(*rows: list[int], labels: list[int] | None = None) -> EncodedTexts:
    tokens, lengths = torch.tensor([token for row in rows for token in row]), torch.tensor([len(row) for row in rows])
    return EncodedTexts(tokens, lengths, torch.tensor(labels or [0] * len(rows)))


def test_rows_hold_the_tokens_between_cls_and_sep_and_padding():
    texts = encoded([11, 12, 13], [21, 22])
    rows = texts.rows(torch.tensor([1, 0]), torch.tensor([0, 1]), torch.tensor([2, 1]))
    assert rows.shape == (2, 64)
    assert rows[0, :5].tolist() == [CLS, 21, 22, SEP, PAD]
    assert rows[1, :5].tolist() == [CLS, 12, SEP, PAD, PAD]
    assert set(rows[:, 5:].flatten().tolist()) == {PAD}


def test_concatenated_texts_are_separated():
    assert encoded([11, 12], [21]).concatenated().tolist() == [11, 12, SEP, 21, SEP]


def test_masking_hides_a_share_of_the_tokens_and_keeps_what_was_there():
    torch.manual_seed(0)
    ids = torch.randint(10, 60, (64, 100))
    ids[:, 0], ids[:, 50] = CLS, SEP
    ids[32:, 51:] = PAD
    inputs, places, targets = mask_tokens(ids, share=0.2, vocabulary=60)
    is_masked = targets != IGNORED
    assert is_masked.sum(dim=1).tolist() == [20] * 32 + [11] * 32  # of 51 tokens: the first 0 to 10 of 20 places
    assert torch.equal(targets[is_masked], ids.gather(1, places)[is_masked])
    unchanged = torch.ones_like(ids, dtype=torch.bool).scatter(1, places, ~is_masked)
    assert torch.equal(inputs[unchanged], ids[unchanged])
    hidden = inputs.gather(1, places)[is_masked]
    assert (hidden == MASK).float().mean() == pytest.approx(0.8, abs=0.05)
    assert (hidden == targets[is_masked]).float().mean() == pytest.approx(0.1, abs=0.05)
    assert not torch.isin(targets[is_masked], torch.tensor([CLS, SEP, PAD])).any()


def test_an_epoch_has_every_text_as_often_as_it_is_repeated():
    torch.manual_seed(0)
    lengths, repeats = torch.tensor([5, 700, 30, 80]), torch.tensor([1, 3, 1, 1])
    batches = length_batches(lengths, repeats, 2)
    epoch = [next(batches) for _ in range(3)]
    texts, starts, counts = (torch.cat(parts) for parts in zip(*epoch, strict=True))
    assert texts.bincount().tolist() == [1, 3, 1, 1]
    assert ((starts >= 0) & (starts + counts <= lengths[texts])).all()
    assert (counts <= 510).all()


def test_scores_of_labels_are_what_they_are_by_hand():
    predictions, labels = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1])
    assert accuracy(predictions, labels) == 75
    assert majority_accuracy(labels) == 75
    assert macro_f1(predictions, labels, 2) == pytest.approx(100 * (2 / 3 + 4 / 5) / 2)


def test_the_divergence_of_two_predictions_is_symmetric():
    one, two = torch.tensor([[0.9, 0.1]]).log(), torch.tensor([[0.5, 0.5]]).log()
    by_hand = (0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5) + 0.5 * math.log(0.5 / 0.9)) / 2
    by_hand += 0.5 * math.log(0.5 / 0.1) / 2
    assert float(symmetric_divergence(one, two)) == pytest.approx(by_hand, rel=1e-5)
    assert float(symmetric_divergence(two, one)) == pytest.approx(by_hand, rel=1e-5)


def test_features_are_tokens_and_pairs_within_a_text():
    codes, owners = features(encoded([3, 4], [5]))
    assert codes.tolist() == [3, 4, 5, 4 * 2**20 + 4]
    assert owners.tolist() == [0, 0, 1, 0]


def test_the_left_out_predictions_are_those_of_a_regression_without_the_text():
    generator = torch.Generator().manual_seed(0)
    labels = [number % 2 for number in range(12)]
    rows = [(torch.randint(10, 14, (20,), generator=generator) + 2 * label).tolist() for label in labels]
    texts = encoded(*rows, labels=labels)
    probabilities, scores_of = fit_ridge(texts, 2)
    codes, owners = features(texts)
    counts = {code: len(set(owners[codes == code].tolist())) for code in codes.unique().tolist()}
    vocabulary = torch.tensor([code for code, number in counts.items() if number >= MIN_TEXTS])
    rarity = torch.tensor([math.log(len(texts) / counts[code]) + 1 for code in vocabulary.tolist()])
    inputs = weighted_counts(texts, vocabulary, rarity).to_dense().double()
    targets = 2 * torch.nn.functional.one_hot(texts.labels, 2).double() - 1

    def weights(kept: torch.Tensor) -> torch.Tensor:
        gram = inputs[kept].T @ inputs[kept] + PENALTY * torch.eye(inputs.shape[1], dtype=torch.float64)
        return torch.linalg.solve(gram, inputs[kept].T @ targets[kept])

    numbers = torch.arange(len(texts))
    assert torch.allclose(scores_of(texts).double(), inputs @ weights(numbers), atol=1e-4)
    left_out = torch.stack([inputs[number] @ weights(numbers[numbers != number]) for number in numbers])
    logits = probabilities.log().double()
    scale = (logits[0, 0] - logits[0, 1]) / (left_out[0, 0] - left_out[0, 1])  # softmax forgets a common summand
    assert torch.allclose(probabilities.double(), (scale * left_out).softmax(dim=1), atol=1e-3)
    assert torch.allclose(
        inner_products(weighted_counts(texts, vocabulary, rarity), block=5).double(), inputs @ inputs.T, atol=1e-5
    )


def test_a_text_that_shares_its_sentences_with_others_is_left_out():
    long = "This film is very good indeed. I would watch it again any day."
    texts = Texts((long, "Something else entirely that nobody else has written here."), (0, 1))
    assert texts.without_overlap(sentences(long)).labels == (1,)


def test_a_split_takes_every_text_once_and_is_the_same_at_every_call():
    texts = Texts(tuple(f"text {number}" for number in range(10)), tuple(range(10)))
    rest, part = texts.split(3)
    assert (len(rest), len(part)) == (7, 3)
    assert sorted(rest.labels + part.labels) == list(range(10))
    assert texts.split(3) == (rest, part)


def test_the_body_of_a_post_has_no_header_footer_and_quotes():
    assert post_body(POST).split() == "They are very sharp.".split()

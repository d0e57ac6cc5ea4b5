"""What the recipes learn of scenes: questions, captions and detection targets, each against a naive twin."""

from __future__ import annotations

import argparse

import pytest
import torch
from scipy.optimize import linear_sum_assignment
from transformers import BertTokenizer

import mini_t5
from caption_batches import (
    CaptionEncoder,
    all_changes,
    cells_of,
    claims_of,
    edited_claims,
    false_claims,
    is_true,
    labels_of,
    merge_pair,
    new_tokenizer,
    scene_batches,
    versions_of,
)
from detection_batches import GRID, NOTHING, detection_batch
from detection_losses import assignment, generalized_iou
from detection_metrics import Detections, average_precision, true_positives
from vqa_baselines import best_guess_from_question, best_guess_from_scene, question_probabilities
from vqa_batches import VqaEncoder
from vqa_batches import new_tokenizer as new_vqa_tokenizer
from whyformer.scenes import LABELS, SIDE, captions, descriptions, pictures, questions, sample, texts


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def scenes():
    return sample(40, "test", rng=2)


def test_words_are_encoded_as_the_tokenizer_encodes_their_text(scenes):
    encoder = VqaEncoder(new_vqa_tokenizer(), argparse.Namespace(device="cpu", batch=4, seed=0))
    words = questions(scenes, generator()).words
    encoder.check_tokenizer(encoder.tokenizer, words)
    pieces = list(encoder.tokenizer.vocab)
    other_tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(reversed(pieces))})
    with pytest.raises(ValueError, match="gives other input_ids than the model is trained with"):
        encoder.check_tokenizer(other_tokenizer, words)


def test_a_pair_is_encoded_as_the_tokenizer_of_mini_t5_encodes_its_text(scenes):
    about, scene_words = questions(scenes, generator()), descriptions(scenes).words
    ours = mini_t5.encode(about.words, scene_words)
    pairs = zip(texts(about.words), texts(scene_words), strict=True)
    theirs = mini_t5.new_tokenizer()([f"{question} {text}" for question, text in pairs], padding=True)["input_ids"]
    for row, expected in zip(ours.tolist(), theirs, strict=True):
        assert [token for token in row if token] == [token for token in expected if token]


def test_training_batches_ask_about_the_same_scenes_a_few_times():
    encoder = VqaEncoder(new_vqa_tokenizer(), argparse.Namespace(device="cpu", batch=2, seed=0))
    batches = encoder.training_batches()
    first = [next(batches) for _ in range(32)]
    assert all(torch.equal(first[0].features, first[number].features) for number in (8, 16, 24))
    assert not torch.equal(first[0].features, first[1].features)
    assert not torch.equal(next(batches).features, first[0].features)


def test_blanked_inputs_say_nothing(scenes):
    encoder = VqaEncoder(new_vqa_tokenizer(), argparse.Namespace(device="cpu", batch=4, seed=0))
    batch = next(encoder.training_batches())
    blind, deaf = encoder.without_regions(batch), encoder.without_words(batch)
    assert len(blind.features.flatten(0, 1).unique(dim=0)) == len(blind.boxes.flatten(0, 1).unique(dim=0)) == 1
    assert torch.equal(blind.ids, batch.ids)
    assert len(deaf.ids.unique(dim=0)) == 1
    assert deaf.mask.sum(dim=1).tolist() == [2] * 4
    assert torch.equal(deaf.features, batch.features)


def test_the_best_guesses_are_those_of_many_questions():
    scenes = sample(3, "test", rng=5)
    probabilities = question_probabilities(scenes)
    assert torch.allclose(probabilities.sum(dim=(1, 2, 3)), torch.ones(3))
    many = 4000
    numbers = torch.arange(3).repeat_interleave(many)
    about = questions(scenes[numbers], generator())
    best = [about.answer[numbers == number].bincount().max() / many for number in range(3)]
    assert best_guess_from_scene(scenes)["all"] == pytest.approx(100 * float(sum(best)) / 3, abs=1.5)
    chances = torch.tensor([1 / 8, 1 / 6, 1 / 2, 1 / 2, 1 / 2, 1 / 3, 1 / 3])
    assert best_guess_from_question(scenes)["all"] == pytest.approx(100 * float(chances[about.kind].mean()), abs=1.5)


def test_claims_say_what_captions_say_and_are_true(scenes):
    claims, sentence = claims_of(scenes, generator(1))
    cells = cells_of(scenes)
    first, second = labels_of(claims)
    assert is_true(*(cells.gather(1, label[:, None])[:, 0] for label in (first, second)), sentence).all()
    for number, text in enumerate(texts(captions(scenes, generator(1)).words)):
        assert text.startswith(f"a {LABELS[first[number]]} ")
        assert text.endswith(f" a {LABELS[second[number]]}")


def test_false_claims_are_false_and_edited_scenes_make_theirs_true(scenes):
    claims, sentence = claims_of(scenes, generator())
    cells, changes = cells_of(scenes), all_changes(torch.device("cpu"))
    wrong = false_claims(cells, claims, sentence, changes, 3, generator())
    places = [cells.gather(1, label) for label in labels_of(wrong)]
    assert not is_true(*places, sentence[:, None]).any()
    new = edited_claims(cells, claims, changes, 2, generator())
    versions, all_claims = versions_of(scenes, claims, new)
    places = [cells_of(versions).gather(1, label[:, None])[:, 0] for label in labels_of(all_claims)]
    assert is_true(*places, sentence.repeat_interleave(3)).all()


def test_the_first_claim_of_every_training_scene_is_true_of_it():
    batch = next(scene_batches(8, generator()))
    first, second = (batch.cells.gather(1, label[:, None])[:, 0] for label in labels_of(batch.claims[:, 0]))
    assert is_true(first, second, batch.sentence).all()


def test_claims_are_encoded_as_the_tokenizer_encodes_their_captions(scenes):
    tokenizer = new_tokenizer(("cat", "dog"))
    encoder = CaptionEncoder(tokenizer, ("cat", "dog"), torch.device("cpu"))
    sentences = texts(captions(scenes, generator(1)).words)
    expected = tokenizer(sentences, padding="max_length", max_length=10, return_tensors="pt").input_ids
    assert torch.equal(encoder.encode(*claims_of(scenes, generator(1))), expected)


def test_a_pair_is_merged_wherever_it_occurs():
    assert merge_pair(["a", "b", "c", "a", "b"], ("a", "b")) == ["ab", "c", "ab"]


def test_queries_are_assigned_as_by_the_hungarian_method():
    cost = torch.randn(20, 7, 4, generator=generator())
    query = assignment(cost)
    for number in range(20):
        rows, columns = linear_sum_assignment(cost[number].numpy())
        expected = float(cost[number].numpy()[rows, columns].sum())
        assert len(set(query[number].tolist())) == 4
        assert float(cost[number].gather(0, query[number][None]).sum()) == pytest.approx(expected, rel=1e-5)


def test_the_overlap_of_boxes_is_what_it_is_by_hand():
    square, apart = torch.tensor([0.25, 0.25, 0.5, 0.5]), torch.tensor([0.75, 0.25, 0.5, 0.5])
    half = torch.tensor([0.5, 0.25, 0.5, 0.5])
    assert float(generalized_iou(square, square)) == pytest.approx(1)
    assert float(generalized_iou(square, half)) == pytest.approx(1 / 3)
    assert float(generalized_iou(square, apart)) == pytest.approx(0, abs=1e-6)
    assert float(generalized_iou(square, torch.tensor([0.75, 0.75, 0.5, 0.5]))) == pytest.approx(-0.5)


def test_detection_targets_are_the_objects_and_what_each_token_shows(scenes):
    batch, drawing = detection_batch(scenes), pictures(scenes)
    assert batch.token_labels.shape == (len(scenes), GRID * GRID)
    for number in range(10):
        objects = scenes.is_object[number].nonzero()[:, 0]
        assert batch.labels[number].tolist() == (scenes.label[number, objects].tolist() + [NOTHING] * 6)[:6]
        left, top, right, bottom = (drawing.boxes[number, objects[0]] / SIDE).tolist()
        expected = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
        assert batch.boxes[number, 0].tolist() == pytest.approx(expected)
        row, column = 7, 9
        owner = int(drawing.owner[number, 4 * row + 2, 4 * column + 2])
        is_object = owner >= 0 and bool(scenes.is_object[number, owner])
        label = int(scenes.label[number, owner]) if is_object else NOTHING
        assert int(batch.token_labels[number, GRID * row + column]) == label


def test_average_precision_is_what_it_is_by_hand():
    detected = Detections(torch.tensor([[0.9, 0.8, 0.7]]), torch.tensor([[0, 0, 0]]), torch.zeros(1, 3, 4))
    is_correct = torch.tensor([[True, False, True]])
    labels = torch.tensor([[0, 0, -1]])
    assert average_precision(detected, is_correct, labels) == pytest.approx((1 + 2 / 3) / 2)
    overlap = torch.tensor([[0.6, 0.9, 0.2]])
    assert true_positives(detected, overlap, 0.5).tolist() == [[True, False, False]]

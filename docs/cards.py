"""The tables of scores in the bundled models' cards, from the metrics.json that each training run wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "training" / "results"

Metrics = dict[str, Any]
Row = tuple[str, Callable[[Metrics], str]]


def percent(*path: str, places: int = 1) -> Callable[[Metrics], str]:
    """Formats the metric at this path, which is in percent."""
    return lambda metrics: f"{at(metrics, *path):.{places}f} %"


def number(*path: str, places: int = 1) -> Callable[[Metrics], str]:
    """Formats the metric at this path as it is."""
    return lambda metrics: f"{at(metrics, *path):,.{places}f}"


def share(*path: str) -> Callable[[Metrics], str]:
    """Formats the metric at this path, a share of one, in percent."""
    return lambda metrics: f"{100 * at(metrics, *path):.1f} %"


def at(metrics: Metrics, *path: str) -> Any:
    """The value under nested keys."""
    for name in path:
        metrics = metrics[name]
    return metrics


def by_kind(*path: str) -> Callable[[Metrics], str]:
    """Formats the metric at this path for each kind of question."""

    def listed(metrics: Metrics) -> str:
        kinds = {name: value for name, value in at(metrics, *path).items() if name != "all"}
        return ", ".join(f"{name} {value:.1f}" for name, value in kinds.items())

    return listed


def sampled_continuation(metrics: Metrics) -> str:
    """What the model wrote after "The film was", in one line."""
    text: str = metrics["continuations"]["The film was"]["sampled"]
    return text.replace("|", " ").replace("\n", " ").strip()


def duration(metrics: Metrics) -> str:
    """How long training took, and on what."""
    seconds = metrics.get("training_seconds", metrics["seconds"])
    return f"{seconds / 60:.0f} minutes on one {metrics['device']}"


OBJECT_REMOVED = "accuracy_with_the_asked_objects_cleared"
OTHER_REMOVED = "accuracy_with_another_object_cleared"
CLASSIFICATION: list[Row] = [
    ("balanced accuracy, 11 labels", percent("balanced_accuracy")),
    ("accuracy", percent("accuracy")),
]
SEGMENTATION: list[Row] = [
    ("mIoU of `generic_attention` on the 3,669 Pets masks", number("generic_attention_miou")),
    ("mIoU of a fixed blob in the middle, same masks", number("centre_blob_miou")),
]
VQA: list[Row] = [
    ("accuracy on questions about test scenes", percent("accuracy", "all")),
    ("… by kind, %", by_kind("accuracy")),
    ("best guess from the question alone", percent("best_guess_from_the_question", "all")),
    ("best guess from the scene alone", percent("best_guess_from_the_scene", "all")),
    ("accuracy by kind when the object asked about is removed, %", by_kind(OBJECT_REMOVED)),
    ("accuracy by kind when another object is removed, %", by_kind(OTHER_REMOVED)),
]
CARDS: dict[str, list[Row]] = {
    "mini-vit": CLASSIFICATION + SEGMENTATION,
    "mini-vit-mae": CLASSIFICATION,
    "mini-bert": [
        ("accuracy on the 25,000 IMDB test reviews", percent("imdb_test_accuracy")),
        ("accuracy on the 199 ERASER test reviews, first 512 pieces", percent("eraser_test_accuracy")),
        ("accuracy on the 200 ERASER validation reviews, first 512 pieces", percent("eraser_val_accuracy")),
        ("a linear model on tokens and pairs of tokens, IMDB test", percent("imdb_test_accuracy_of_the_ridge")),
    ],
    "mini-news": [
        ("accuracy on the 7,532 test posts", percent("news_test_accuracy")),
        ("macro F1", percent("news_test_macro_f1")),
        ("a linear model on tokens and pairs of tokens", percent("news_test_accuracy_of_the_ridge")),
        ("the commonest label", percent("news_test_majority")),
    ],
    "mini-clip": [
        ("zero-shot balanced accuracy on the validation photographs", percent("zero_shot_balanced_accuracy")),
        ("the right caption of 32 for a test scene", percent("image_to_text_r1")),
        ("the right scene of 32 for a caption", percent("text_to_image_r1")),
    ],
    "mini-detr": [
        ("AP at IoU 0.5, mean over 48 labels, 4,000 test scenes", number("ap50", places=4)),
        ("AP at IoU 0.75", number("ap75", places=4)),
        ("objects detected with a score of 0.5 or more", share("objects_found")),
        ("labels still detected where their object was removed", share("label_found_when_cleared")),
    ],
    "mini-lxmert": [
        *VQA,
        ("the same model, trained on the question alone", percent("accuracy_of_the_question_only_twin", "all")),
        ("the same model, trained on the scene alone", percent("accuracy_of_the_image_only_twin", "all")),
    ],
    "mini-visualbert": VQA,
    "mini-gpt": [
        ("perplexity per token on IMDB test reviews", number("perplexity_per_token")),
        ("perplexity per word", number("perplexity_per_word")),
        ("next token right", percent("next_token_accuracy")),
        (
            "“The film was” continued (sampled at temperature 0.7)",
            sampled_continuation,
        ),
    ],
    "mini-llm": [
        ("held-out questions answered right, 3 to 60 sentences", percent("accuracy_by_hops", "all", places=2)),
        ("… by the number of facts to join, up to 40 sentences, %", by_kind("accuracy_by_hops_up_to_40_sentences")),
        ("… by kind, %", by_kind("accuracy_by_kind")),
        ("… by where in the text the first fact stands, %", by_kind("accuracy_by_position")),
        ("… by length, %", by_kind("accuracy_by_length")),
        ("two questions at once", percent("accuracy_of_two_questions")),
        (
            "the answer changes without the sentences it depends on",
            percent("reliance", "answer_changes_without_its_causes"),
        ),
        (
            "the answer stays without another sentence",
            percent("reliance", "answer_stays_without_another_sentence"),
        ),
    ],
    "mini-vlm": [
        ("replies that match exactly, test scenes", percent("exact_match", "all")),
        ("… by kind, %", by_kind("exact_match")),
        ("right words in descriptions of whole scenes", percent("right_words_of_whole_scenes")),
        ("the reply changes without the objects it depends on, %", by_kind("reply_changes_without_its_objects")),
        ("the reply stays without another object, %", by_kind("reply_stays_without_another_object")),
        ("exact matches with the picture of another scene, %", by_kind("exact_match_with_another_picture")),
    ],
    "mini-t5": [
        ("answers that match exactly, test scenes", percent("exact_match", "all")),
        ("… by kind, %", by_kind("exact_match")),
        ("without the description", percent("without_description", "all")),
        ("best guess from the question alone", percent("best_guess_from_the_question", "all")),
    ],
}


def metrics(name: str) -> Metrics:
    """What the training run of this model wrote."""
    values: Metrics = json.loads((RESULTS / name / "metrics.json").read_text())
    return values


def card_rows(name: str) -> list[list[str]]:
    """The rows of a model's card: its size, its scores, and the time its training took."""
    values = metrics(name)
    rows = [["parameters", f"{values['parameters']:,}"]]
    rows += [[label, text(values)] for label, text in CARDS[name]]
    return [*rows, ["training", duration(values)]]

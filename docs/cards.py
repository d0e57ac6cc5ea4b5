"""The measured part of each bundled model's card, from what its training wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "training" / "results"

Metrics = dict[str, Any]
Row = tuple[str, Callable[[Metrics], str]]


def percent(*path: str, places: int = 1) -> Callable[[Metrics], str]:
    return lambda found: f"{at(found, *path):.{places}f} %"


def number(*path: str, places: int = 1) -> Callable[[Metrics], str]:
    return lambda found: f"{at(found, *path):,.{places}f}"


def share(*path: str) -> Callable[[Metrics], str]:
    return lambda found: f"{100 * at(found, *path):.1f} %"


def at(found: Metrics, *path: str) -> Any:
    for name in path:
        found = found[name]
    return found


def by_kind(*path: str) -> Callable[[Metrics], str]:
    def shown(found: Metrics) -> str:
        kinds = {name: value for name, value in at(found, *path).items() if name != "all"}
        return ", ".join(f"{name} {value:.1f}" for name, value in kinds.items())

    return shown


def duration(found: Metrics) -> str:
    seconds = found.get("training_seconds", found["seconds"])
    return f"{seconds / 60:.0f} minutes on one {found['device']}"


REMOVED = "accuracy_with_the_asked_objects_cleared"
KEPT = "accuracy_with_another_object_cleared"
PHOTOS: list[Row] = [
    ("balanced accuracy, 11 labels", percent("balanced_accuracy")),
    ("accuracy", percent("accuracy")),
]
LOOKING: list[Row] = [
    ("mIoU of `generic_attention` on the 3,669 Pets masks", number("generic_attention_miou")),
    ("mIoU of a fixed blob in the middle, same masks", number("centre_blob_miou")),
]
ASKED: list[Row] = [
    ("accuracy on questions about test scenes", percent("accuracy", "all")),
    ("… by kind, %", by_kind("accuracy")),
    ("best guess from the question alone", percent("best_guess_from_the_question", "all")),
    ("best guess from the scene alone", percent("best_guess_from_the_scene", "all")),
    ("accuracy by kind when the object asked about is taken away, %", by_kind(REMOVED)),
    ("accuracy by kind when another object is taken away, %", by_kind(KEPT)),
]
CARDS: dict[str, list[Row]] = {
    "mini-vit": PHOTOS + LOOKING,
    "mini-vit-mae": PHOTOS,
    "mini-bert": [
        ("accuracy on the 25,000 IMDB test reviews", percent("imdb_test_accuracy")),
        ("accuracy on the 199 ERASER test reviews, first 512 pieces", percent("eraser_test_accuracy")),
        ("accuracy on the 200 ERASER validation reviews, first 512 pieces", percent("eraser_val_accuracy")),
        ("a linear model on pieces and pairs, IMDB test", percent("imdb_test_accuracy_of_the_ridge")),
    ],
    "mini-news": [
        ("accuracy on the 7,532 test posts", percent("news_test_accuracy")),
        ("macro F1", percent("news_test_macro_f1")),
        ("a linear model on pieces and pairs", percent("news_test_accuracy_of_the_ridge")),
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
        ("objects found with a score of 0.5 or more", share("objects_found")),
        ("labels still found where their object was taken away", share("label_found_when_cleared")),
    ],
    "mini-lxmert": [
        *ASKED,
        ("a twin that reads but does not see", percent("accuracy_of_the_question_only_twin", "all")),
        ("a twin that sees but does not read", percent("accuracy_of_the_image_only_twin", "all")),
    ],
    "mini-visualbert": ASKED,
    "mini-gpt": [
        ("perplexity per token on IMDB test reviews", number("perplexity_per_token")),
        ("perplexity per word", number("perplexity_per_word")),
        ("next token right", percent("next_token_accuracy")),
        (
            "“The film was” continued (sampled at temperature 0.7)",
            lambda found: (
                found["continuations"]["The film was"]["sampled"].replace("|", " ").replace("\n", " ").strip()
            ),
        ),
    ],
    "mini-t5": [
        ("answers that match exactly, test scenes", percent("exact_match", "all")),
        ("… by kind, %", by_kind("exact_match")),
        ("without the description", percent("without_description", "all")),
        ("best guess from the question alone", percent("best_guess_from_the_question", "all")),
    ],
}


def metrics(name: str) -> Metrics:
    found: Metrics = json.loads((RESULTS / name / "metrics.json").read_text())
    return found


def card_rows(name: str) -> list[list[str]]:
    """The rows of a model's card: its size, what was measured, and the time it took."""
    found = metrics(name)
    rows = [["parameters", f"{found['parameters']:,}"]]
    rows += [[label, value(found)] for label, value in CARDS[name]]
    return [*rows, ["training", duration(found)]]

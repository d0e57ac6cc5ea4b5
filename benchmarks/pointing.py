"""The pointing game on Shapes World, where what an answer depends on is known exactly.

    python benchmarks/pointing.py [--scenes 200] [--out benchmarks/results/pointing.json]

For each bundled model of two senses, of sentences or of objects, and each method: how often the token with the highest
score is one the answer depends on. A patch counts if any pixel of the object lies in it, a word piece if its word names
the object or says what is asked of it. Only scenes that the model answers rightly are counted. `chance` is what a blind
finger hits.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.progress import track

from whyformer import Explanation, Regions, explain_batch, load
from whyformer.methods.registry import trace_methods
from whyformer.scenes import (
    ANSWERS,
    LABELS,
    Scenes,
    captions,
    descriptions,
    pictures,
    questions,
    regions,
    sample,
    texts,
)

# of mini-clip, the last that both towers have
LAST_BLOCK = {"mini-clip": 2, "mini-detr": 2, "mini-lxmert": 3, "mini-visualbert": 3, "mini-t5": 3}
# method, whether only its last block is used, and how gradients are taken
VARIANTS = [(method, False, "gradient") for method in trace_methods()]
VARIANTS += [(method, True, "gradient") for method in ("bi_head", "bi_token")]
READERS = [
    name for name, method in trace_methods().items() if method.reads.takes_gradients and method.reads.inputs == "none"
]
VARIANTS += [
    (method, False, "libra") for method in [*READERS, "grad_cam", "transformer_attribution", "input_x_gradient"]
]
VARIANTS += [(method, True, "libra") for method in ("bi_head", "bi_token")]


@dataclass(frozen=True)
class Task:
    """Examples for a model, what it must answer, and the truth: pixels or things for the image, words for texts."""

    model: str
    examples: list[Any]
    targets: list[Any] | str
    answers: list[str] | None
    pixels: torch.Tensor | None = None
    things: torch.Tensor | None = None
    words: dict[str, list[set[int]]] | None = None


def tasks(count: int, seed: int = 11) -> Iterator[Task]:
    """The same scenes for every model."""
    scenes, rng = sample(count, "test", rng=seed), torch.Generator().manual_seed(seed)
    drawn, about = pictures(scenes), questions(scenes, rng)
    images = [Image.fromarray(part.permute(1, 2, 0).numpy()) for part in drawn.pixels]
    said = captions(scenes, rng)
    told = texts(said.words)
    yield Task(
        "mini-clip",
        list(zip(images, told, strict=True)),
        "predicted",
        None,
        pixels=drawn.mask(said.things),
        words={"text": marked_words(said.words, said.truth)},
    )
    one = scenes.is_object & (scenes.is_object.cumsum(dim=1) == 1)  # the first object of each scene
    labels = [LABELS[label] for label in scenes.label[one].tolist()]
    yield Task("mini-detr", images, labels, labels, pixels=drawn.mask(one))
    seen = regions(drawn)
    shown = [
        Regions(image, boxes.numpy(), features.numpy())
        for image, boxes, features in zip(images, drawn.boxes, seen.features, strict=True)
    ]
    asked, answers = texts(about.words), [ANSWERS[answer] for answer in about.answer.tolist()]
    marks = marked_words(about.words, about.truth)
    for name in ("mini-lxmert", "mini-visualbert"):
        pairs = list(zip(shown, asked, strict=True))
        yield Task(name, pairs, "predicted", answers, things=about.things, words={"text": marks})
    yield sentences(scenes, about)


def sentences(scenes: Scenes, about: Any) -> Task:
    """The word that answers, given the reply up to it."""
    told = descriptions(scenes, about)
    replies, answers = texts(about.replies), [ANSWERS[answer] for answer in about.answer.tolist()]
    so_far = [reply.partition(answer)[0].strip() for reply, answer in zip(replies, answers, strict=True)]
    sources = [f"{asked} {text}" for asked, text in zip(texts(about.words), texts(told.words), strict=True)]
    both = torch.cat([about.words, told.words], dim=1), torch.cat([about.truth, told.truth], dim=1)
    pairs = list(zip(sources, so_far, strict=True))
    return Task("mini-t5", pairs, "predicted", answers, words={"source": marked_words(*both)})


def marked_words(words: torch.Tensor, truth: torch.Tensor) -> list[set[int]]:
    """The numbers, among a sentence's words, of those marked; punctuation belongs to the word before it."""
    found = []
    for line, marks in zip(words.tolist(), truth.tolist(), strict=True):
        number, here = -1, set()
        for word, mark in zip(line, marks, strict=True):
            is_word = word > 2  # neither nothing nor a question mark nor a full stop
            number += is_word
            here |= {number} if mark and is_word else set()
        found.append(here)
    return found


def hits(task: Task, explanations: list[Explanation]) -> dict[str, list[tuple[float, float]]]:
    """Per part of the examples: whether the highest score is on the truth, and the share of tokens that are."""
    found: dict[str, list[tuple[float, float]]] = {}
    for number, explanation in enumerate(explanations):
        right = task.answers is None or explanation.target.strip() == task.answers[number]
        for name, part in explanation.parts.items():
            truth = part_truth(task, number, name, part) if right else None
            if truth is not None and truth.any():
                best = part.scores == part.scores.max()  # ties are shared
                found.setdefault(name, []).append((float(truth[best].mean()), float(truth.mean())))
    return found


def part_truth(task: Task, number: int, name: str, part: Any) -> np.ndarray | None:
    if name == "image" and task.things is not None:
        return task.things[number].numpy()
    if name == "image" and task.pixels is not None:
        rows, columns = part.layout.rows, part.layout.columns
        mask = task.pixels[number].float()[None, None]
        return torch.nn.functional.adaptive_max_pool2d(mask, (rows, columns)).flatten().bool().numpy()
    if task.words is None or name not in task.words:
        return None
    text, marks = part.layout.texts[0], task.words[name][number]
    numbers = np.cumsum([character == " " for character in text])  # the word each character is in
    return np.array([int(numbers[start]) in marks for start, _ in part.layout.offsets])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    report: dict[str, Any] = {"scenes": options.scenes, "rows": []}
    for task in tasks(options.scenes):
        loaded_model = load(task.model)
        for method, last_only, backward in track(VARIANTS, task.model):
            how: dict[str, Any] = {"backward": backward}
            if last_only:
                how["first_block"] = LAST_BLOCK[task.model]
            found = hits(task, explain_batch(task.examples, loaded_model, task.targets, method, **how))
            for name, pairs in found.items():
                accuracy, chance = (100 * float(np.mean(side)) for side in zip(*pairs, strict=True))
                label = f"{method}, last block" if last_only else method
                row = {"model": task.model, "part": name, "method": label, "backward": backward}
                row |= {"accuracy": round(accuracy, 1), "chance": round(chance, 1), "examples": len(pairs)}
                report["rows"].append(row)
                print(row, flush=True)
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

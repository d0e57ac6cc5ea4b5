"""The best guess that is possible from the question alone or the scene alone, computed exactly."""

import dataclasses

import torch
from torch import Tensor

from whyformer.scenes import ANSWERS, COLOURS, KINDS, SHAPES, SIZES, Scenes, answerable, questions_about

# How many answers a question of each kind has, all equally likely.
ANSWERS_PER_KIND = (len(COLOURS), len(SHAPES), len(SIZES), 2, 2, 3, 3)


def best_guess_from_question(scenes: Scenes) -> dict[str, float]:
    """The accuracy, in percent, of the best guess from the question alone: of all questions, and of each kind."""
    guesses = torch.tensor([1 / count for count in ANSWERS_PER_KIND])
    kinds = question_probabilities(scenes).sum(dim=(2, 3)).mean(dim=0).cpu()
    return {
        "all": percent(kinds @ guesses),
        **{name: percent(guess) for name, guess in zip(KINDS, guesses, strict=True)},
    }


def best_guess_from_scene(scenes: Scenes) -> dict[str, float]:
    """The accuracy, in percent, of the best guess from the scene alone: the answer most of its questions have."""
    probabilities = question_probabilities(scenes)
    scene, kind, first, second = probabilities.nonzero().unbind(dim=1)
    noiseless = dataclasses.replace(scenes, grain=scenes.grain[:, :0])  # scenes are copied for every question
    answer = questions_about(noiseless[scene], kind, torch.stack([first, second], dim=1)).answer
    answers = probabilities.new_zeros(len(scenes), len(ANSWERS))
    answers.index_put_((scene, answer), probabilities[scene, kind, first, second], accumulate=True)
    return {"all": percent(answers.amax(dim=1).mean())}


def question_probabilities(scenes: Scenes) -> Tensor:
    """How likely `whyformer.scenes.questions` is to ask each question: scene, kind, thing, other thing."""
    possible = answerable(scenes).float()
    per_kind = possible.sum(dim=(2, 3), keepdim=True)
    kinds = (per_kind > 0).sum(dim=1, keepdim=True)
    return possible / per_kind.clamp(min=1) / kinds


def percent(share: Tensor) -> float:
    return round(100 * float(share), 2)

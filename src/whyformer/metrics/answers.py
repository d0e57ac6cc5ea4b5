"""Soft accuracy of answers to visual questions (VQA)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import torch

from whyformer.axes import Logits

_ARTICLES = {"a", "an", "the"}
_NUMBERS = "none zero one two three four five six seven eight nine ten".split()
_DIGITS = {word: str(max(0, value - 1)) for value, word in enumerate(_NUMBERS)}


def answer_scores(answers: Sequence[str]) -> dict[str, float]:
    """Soft accuracy of every human answer: min(n/3, 1), averaged over leaving one person out.

    For ten people: 0.3, 0.6, 0.9, 1 if one, two, three, four or more agree (Antol et al. 2015).
    """
    counts = Counter(plain_answer(answer) for answer in answers)
    people = len(answers)
    return {
        answer: (count * min(1.0, (count - 1) / 3) + (people - count) * min(1.0, count / 3)) / people
        for answer, count in counts.items()
    }


def plain_answer(answer: str) -> str:
    """Normalise an answer: lower case, no articles or punctuation, small numbers as digits."""
    words = re.sub(r"[^\w\s']|(?<!\w)'|'(?!\w)", " ", answer.lower()).split()
    return " ".join(_DIGITS.get(word, word) for word in words if word not in _ARTICLES)


def answer_table(answers: Sequence[Sequence[str]], vocabulary: Sequence[str]) -> Logits:
    """Soft accuracy of every answer in a model's vocabulary, for each question."""
    known = [plain_answer(answer) for answer in vocabulary]
    rows = [answer_scores(of_people) for of_people in answers]
    return torch.tensor([[row.get(answer, 0.0) for answer in known] for row in rows])

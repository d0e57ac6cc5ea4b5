"""One stream of an explained input: its tokens and their scores, and the words that they make."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from whyformer.errors import WhyformerError
from whyformer.inputs.layouts import Layout, WordPieces

Aggregate = Literal["max", "sum"]


@dataclass(frozen=True)
class Word:
    """A word of the text, with its word pieces' scores combined."""

    text: str
    segment: int
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Part:
    """One stream of the input: where its tokens are, and a score for each."""

    layout: Layout
    scores: np.ndarray

    def __post_init__(self) -> None:
        shape, dtype = np.shape(self.scores), getattr(self.scores, "dtype", type(self.scores).__name__)
        if shape != (self.layout.size,):
            raise WhyformerError(f"{self.layout.summary} need {self.layout.size} scores in one row, not shape {shape}.")
        if dtype not in (np.float16, np.float32, np.float64):
            raise WhyformerError(f"Scores are a float16, float32 or float64 array, not {dtype}.")
        if not np.isfinite(self.scores).all():
            first = int(np.flatnonzero(~np.isfinite(self.scores))[0])
            raise WhyformerError(f"Scores are finite, but the score of {self.tokens[first]!r} is {self.scores[first]}.")

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.layout.tokens

    def words(self, aggregate: Aggregate = "max") -> list[Word]:
        """Scored words of the text; a piece that reaches over two words counts for both."""
        if aggregate not in get_args(Aggregate):
            raise WhyformerError(f"No aggregate named {aggregate!r}. Known: {', '.join(get_args(Aggregate))}.")
        if not isinstance(self.layout, WordPieces):
            raise WhyformerError(f"Only word pieces make words; this part is {self.layout.summary}.")
        combined = max if aggregate == "max" else math.fsum
        words = [
            Word(self.layout.texts[segment][start:end], segment, start, end, float(combined(scores)))
            for (segment, start, end), scores in _word_scores(self.layout, self.scores).items()
        ]
        return sorted(words, key=lambda word: (word.segment, word.start))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Part):
            return NotImplemented
        same_scores = self.scores.dtype == other.scores.dtype and np.array_equal(self.scores, other.scores)
        return same_scores and self.layout == other.layout


def _word_scores(layout: WordPieces, scores: np.ndarray) -> dict[tuple[int, int, int], list[float]]:
    """Scores of the pieces that share characters with each word (segment, start, end)."""
    spans = [[match.span() for match in re.finditer(r"\S+", text)] for text in layout.texts]
    starts, ends = ([[span[side] for span in words] for words in spans] for side in (0, 1))
    found: dict[tuple[int, int, int], list[float]] = {}
    for segment, (first, last), score in zip(layout.segments, layout.offsets, scores.tolist(), strict=True):
        if first == last:
            continue
        for word in range(bisect_right(ends[segment], first), bisect_left(starts[segment], last)):
            found.setdefault((segment, *spans[segment][word]), []).append(score)
    return found

"""A part of an explained input: its tokens, their scores, and words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from whyformer.errors import WhyformerError, check_choice
from whyformer.inputs.layouts import Boxes, Layout, Patches, WordPieces
from whyformer.inputs.words import tokens_by_word
from whyformer.render.heatmaps import pixel_scores
from whyformer.render.layout_kinds import kind_of
from whyformer.render.text_spans import strongest, token_names, visible

Aggregate = Literal["max", "sum"]
By = Literal["word", "token", "patch", "region", "frame"]

_AGGREGATES: dict[str, Callable[[list[float]], float]] = {"max": strongest, "sum": math.fsum}


@dataclass(frozen=True)
class Word:
    """A word of a text with the score of its tokens.

    Attributes:
        text: The word with its punctuation, verbatim.
        segment: The index of its text: 0, or 1 for the second of a pair.
        start: Its first character in that text.
        end: The end of its range, exclusive.
        score: The aggregate of its tokens' scores.

    Example:
        >>> import whyformer
        >>> [word.text for word in whyformer.explain("A wonderful film.", "mini-bert").words()]
        ['A', 'wonderful', 'film.']
    """

    text: str
    segment: int
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class TopItem:
    """One of the strongest words, tokens, patches or regions of an explanation.

    Attributes:
        text: The word, the token, or the name of the patch or region ("row 3, column 1").
        position: Its index in its part: in `words()` for a word, otherwise in `scores`.
        score: Its score, with its sign.
        part: The name of its part ("text", "image" …).

    Example:
        >>> import whyformer
        >>> whyformer.explain("A wonderful film.", "mini-bert").top(1)[0].text
        'wonderful'
    """

    text: str
    position: int
    score: float
    part: str


@dataclass(frozen=True)
class Part:
    """A part of an input: the layout of its tokens, and a score for each.

    Args:
        layout: The layout of its tokens: patches or regions of a picture, word pieces of a text, frames or cells of a
            sound.
        scores: A float array with a finite score for each token.

    Raises:
        WhyformerError: If there is not one finite float for each token.

    Example:
        >>> import whyformer
        >>> part = whyformer.explain("A wonderful film.", "mini-bert").parts["text"]
        >>> [word.text for word in part.words()]
        ['A', 'wonderful', 'film.']
    """

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
        """The name of each token: a word piece as spelled in the vocabulary, or the position of a patch or region."""
        return self.layout.tokens

    def words(self, aggregate: Aggregate = "sum") -> list[Word]:
        """The words of a text with their scores, in the order of the text.

        Words are separated by spaces; scripts without spaces are split at Unicode's word boundaries. A token that
        overlaps two words counts for both; a word without tokens is omitted.

        Args:
            aggregate: "sum" of the scores of a word's tokens, punctuation included, or "max", the one furthest from 0.

        Returns:
            A `Word` for each word.

        Raises:
            WhyformerError: If the part is not a text, or `aggregate` has another value.

        Example:
            >>> import whyformer
            >>> part = whyformer.explain("A wonderful film.", "mini-bert").parts["text"]
            >>> max(part.words(), key=lambda word: abs(word.score)).text
            'wonderful'
        """
        if aggregate not in get_args(Aggregate):
            raise WhyformerError(f"No aggregate named {aggregate!r}. Known: {', '.join(get_args(Aggregate))}.")
        if not isinstance(self.layout, WordPieces):
            raise WhyformerError(f"Only word pieces make words; this part is {self.layout.summary}.")
        scores, combine = self.scores.tolist(), _AGGREGATES[aggregate]
        return [
            Word(
                self.layout.texts[segment][start:end], segment, start, end, combine([scores[token] for token in tokens])
            )
            for (segment, start, end), tokens in tokens_by_word(self.layout).items()
        ]

    def top(self, k: int = 10, *, by: By | None = None, name: str = "") -> list[TopItem]:
        """The strongest words, tokens, patches or regions, by absolute score.

        Args:
            k: Maximum number.
            by: The unit to rank: "word" or "token" of a text, "patch" or "region" of a picture, "frame" or "patch" of a
                sound ("token" means the same there). If None, words of a text, otherwise tokens.
            name: The part's name, for the records.

        Returns:
            At most `k` records with signed scores, strongest first.

        Raises:
            WhyformerError: If the part has no such units, or `k` is not a positive integer.

        Example:
            >>> import whyformer
            >>> part = whyformer.explain("A wonderful film.", "mini-bert").parts["text"]
            >>> part.top(1)[0].text
            'wonderful'
        """
        check_top_count(k)
        by = by or units_of(self.layout)[0]
        check_choice("by", by, By)
        if by not in units_of(self.layout):
            raise WhyformerError(f"by={by!r}: this part is {self.layout.summary}. Use by={units_of(self.layout)[0]!r}.")
        if by == "word":
            items = [TopItem(word.text, index, word.score, name) for index, word in enumerate(self.words())]
        else:
            names = token_names(self) if isinstance(self.layout, WordPieces) else self.tokens
            items = [
                TopItem(text, index, score, name)
                for index, (text, score) in enumerate(zip(names, self.scores.tolist(), strict=True))
            ]
        return strongest_items(items, k)

    def heatmap(self) -> np.ndarray:
        """The scores at every pixel of the picture, interpolated as in the overlay.

        Returns:
            A float64 array [height, width] at the picture's size. Pixels without a score (cropped by preprocessing, or
            between regions) are NaN. Where regions overlap, the strongest counts.

        Raises:
            WhyformerError: If the part is a text or a sound.

        Example:
            >>> import whyformer
            >>> from PIL import Image
            >>> part = whyformer.explain(Image.new("RGB", (60, 40)), "mini-vit").parts["image"]
            >>> part.heatmap().shape
            (40, 60)
        """
        if not isinstance(self.layout, (Patches, Boxes)):
            raise WhyformerError(
                f"Only a picture has a heatmap; this part is {self.layout.summary}. Use {_others(self.layout)}."
            )
        return pixel_scores(self.layout, self.scores)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Part):
            return NotImplemented
        same_scores = self.scores.dtype == other.scores.dtype and np.array_equal(self.scores, other.scores)
        return same_scores and self.layout == other.layout


def units_of(layout: Layout) -> tuple[By, ...]:
    """The units that can be ranked in a layout, the default first."""
    return kind_of(layout).units


def _others(layout: Layout) -> str:
    return "words() or top()" if isinstance(layout, WordPieces) else "scores or top()"


def strongest_items(items: list[TopItem], k: int) -> list[TopItem]:
    """The k items with the largest absolute scores; ties in reading order."""
    return sorted(items, key=lambda item: -abs(item.score))[:k]


def check_top_count(k: Any) -> None:
    """Validate the number of items."""
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise WhyformerError(f"k={k!r}: a positive integer.")


def only_text(parts: Mapping[str, Part]) -> Part:
    """The only part that is a text."""
    texts = {name: part for name, part in parts.items() if isinstance(part.layout, WordPieces)}
    if not texts:
        raise WhyformerError(f"Only text has words; the parts of this explanation are: {part_names(parts)}.")
    if len(texts) > 1:
        raise WhyformerError(several_parts(texts, "words()"))
    (part,) = texts.values()
    return part


def only_picture(parts: Mapping[str, Part]) -> Part:
    """The only part that is a picture, or else the first."""
    pictures = {name: one for name, one in parts.items() if isinstance(one.layout, (Patches, Boxes))}
    if len(pictures) > 1:
        raise WhyformerError(several_parts(pictures, "heatmap()"))
    (one,) = (pictures or dict([next(iter(parts.items()))])).values()
    return one


def several_parts(parts: Mapping[str, Part], attribute: str, call: str = "") -> str:
    """The message that asks for the name of a part."""
    first = next(iter(parts))
    example = call.format(first) or f"parts[{first!r}].{attribute}"
    return f"Several parts have {attribute}: {part_names(parts)}. Name one: explanation.{example}."


def part_names(parts: Mapping[str, Part]) -> str:
    """The names of the parts, joined."""
    return ", ".join(map(visible, parts))

"""The result: why one example got one answer."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from PIL import Image

from whyformer.errors import WhyformerError

Box = tuple[float, float, float, float]
Aggregate = Literal["max", "sum"]


@dataclass(frozen=True)
class Patches:
    """Scores lie row by row on a grid that covers `box` (left, top, right, bottom) of the image.

    The box may be fractional, and may reach beyond an image that preprocessing padded. `outline` is a box of the image
    that the answer is about, such as a detection's.
    """

    image: Image.Image
    rows: int
    columns: int
    box: Box
    outline: Box | None = None

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise WhyformerError(f"A grid of patches has a row and a column at least, not {self.rows}×{self.columns}.")
        _check_box(self.box, "box")
        if self.outline is not None:
            _check_box(self.outline, "outline")

    @property
    def size(self) -> int:
        return self.rows * self.columns

    @property
    def tokens(self) -> tuple[str, ...]:
        """Names of the patches, counted from row 1, column 1 at the top left."""
        rows, columns = range(1, self.rows + 1), range(1, self.columns + 1)
        return tuple(f"row {row}, column {column}" for row in rows for column in columns)

    @property
    def summary(self) -> str:
        return f"{self.rows}×{self.columns} patches"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Patches):
            return NotImplemented
        places = [(layout.rows, layout.columns, layout.box, layout.outline) for layout in (self, other)]
        return places[0] == places[1] and _same_picture(self.image, other.image)


@dataclass(frozen=True)
class Boxes:
    """Scores are of regions of the image, each a box (left, top, right, bottom) in its pixels."""

    image: Image.Image
    boxes: tuple[Box, ...]

    def __post_init__(self) -> None:
        for box in self.boxes:
            _check_box(box, "A region's box")

    @property
    def size(self) -> int:
        return len(self.boxes)

    @property
    def tokens(self) -> tuple[str, ...]:
        """Names of the regions, counted from 1."""
        return tuple(f"region {number}" for number in range(1, len(self.boxes) + 1))

    @property
    def summary(self) -> str:
        return f"{len(self.boxes)} regions"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Boxes):
            return NotImplemented
        return self.boxes == other.boxes and _same_picture(self.image, other.image)


def _check_box(box: Box, what: str) -> None:
    left, top, right, bottom = box
    if not (left < right and top < bottom and all(map(math.isfinite, box))):
        raise WhyformerError(f"{what} is (left, top, right, bottom), left < right and top < bottom, not {box}.")


def _same_picture(first: Image.Image, second: Image.Image) -> bool:
    # PIL calls two images unequal when they came from different file formats.
    return first.mode == second.mode and np.array_equal(np.array(first), np.array(second))


@dataclass(frozen=True)
class WordPieces:
    """Each token is characters `offsets[token]` of text `segments[token]` (a pair of texts has two)."""

    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    segments: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.segments) == len(self.offsets):
            counts = f"{len(self.tokens)} tokens, {len(self.segments)} segments and {len(self.offsets)} offsets"
            raise WhyformerError(f"Each token has one segment and one pair of offsets, but there are {counts}.")
        for token, segment, (start, end) in zip(self.tokens, self.segments, self.offsets, strict=True):
            if not 0 <= segment < len(self.texts):
                raise WhyformerError(f"Token {token!r} is in segment {segment}, but there are {len(self.texts)} texts.")
            if not 0 <= start <= end <= len(self.texts[segment]):
                length = len(self.texts[segment])
                raise WhyformerError(f"Token {token!r} has offsets {(start, end)} in a text of {length} characters.")

    @property
    def size(self) -> int:
        return len(self.tokens)

    @property
    def summary(self) -> str:
        return f"{len(self.tokens)} word pieces"


Layout = Patches | Boxes | WordPieces


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


def _visible(text: str) -> str:
    # The renderers are built on this module, so they are only imported when a method needs them.
    from whyformer.render.text import visible

    return visible(text)


def _several(parts: Mapping[str, Part], wanted: str) -> str:
    names = ", ".join(parts)
    return f"Several parts have {wanted}: {names}. Name one: explanation.parts[{next(iter(parts))!r}].{wanted}."


@dataclass(frozen=True)
class Explanation:
    """One score per token of one example, for one target, by one method."""

    parts: Mapping[str, Part]
    target: str
    probability: float | None
    method: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    completeness: float | None = None  # how far the scores are from adding up to the answer's, where they should

    def __post_init__(self) -> None:
        if not self.parts:
            raise WhyformerError("An explanation has at least one part, but parts is empty.")
        if self.probability is not None and not math.isfinite(self.probability):
            raise WhyformerError(f"probability is finite or None, not {self.probability}.")

    @property
    def scores(self) -> np.ndarray:
        return self._only_part("scores").scores

    @property
    def tokens(self) -> tuple[str, ...]:
        return self._only_part("tokens").tokens

    @property
    def answer(self) -> str:
        """The target and its probability in a line: `cat (0.93)`, of a token with a space `␣cat (0.93)`."""
        target = _visible(self.target)
        return target if self.probability is None else f"{target} ({self.probability:.2f})"

    @property
    def headline(self) -> str:
        """The explanation in a line: `cat (0.93) by bi_token (backward=libra) on mini-vit`."""
        return f"{self.answer} by {self.manner} on {_visible(self.model)}"

    @property
    def manner(self) -> str:
        """The method, and how its gradients were taken if not as gradients: `bi_token (backward=libra)`."""
        backward = self.options.get("backward")
        return _visible(self.method if backward is None else f"{self.method} (backward={backward})")

    def words(self, aggregate: Aggregate = "max") -> list[Word]:
        """Scores of the whitespace-delimited words: the largest or the sum of their pieces' scores."""
        texts = {name: part for name, part in self.parts.items() if isinstance(part.layout, WordPieces)}
        if not texts:
            raise WhyformerError(f"Only text has words; the parts of this explanation are: {', '.join(self.parts)}.")
        if len(texts) > 1:
            raise WhyformerError(_several(texts, "words()"))
        (part,) = texts.values()
        return part.words(aggregate)

    def save(self, path: str | Path) -> None:
        """Write to a .html, .png, .json or .npz file; an error leaves the folder as it was."""
        from whyformer import storage

        storage.write(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Explanation:
        """Read back what `save` wrote to a .json or .npz file."""
        from whyformer import storage

        return storage.read(Path(path), cls)

    def __str__(self) -> str:
        from whyformer.render import terminal

        return terminal.shown(self)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {part.layout.summary}" for name, part in self.parts.items())
        return f"<Explanation of {self.headline}; {parts}>"

    def _repr_html_(self) -> str:
        from whyformer.render import html

        return html.fragment(self)

    def _only_part(self, wanted: str) -> Part:
        if len(self.parts) > 1:
            raise WhyformerError(_several(self.parts, wanted))
        (part,) = self.parts.values()
        return part

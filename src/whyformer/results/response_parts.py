"""Parts of a response: its tokens, attention sinks, and the strongest sources."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from whyformer.axes import SpanScores
from whyformer.errors import WhyformerError
from whyformer.inputs.layouts import Layout
from whyformer.inputs.sources import Source
from whyformer.render.layout_kinds import kind_of
from whyformer.results.part import Part


@dataclass(frozen=True)
class ResponseToken:
    """A token of a response: its position, and the model's prediction of it.

    `log_probability` and `entropy` are in nats, the latter of the whole distribution at this position; `rank` is 1 for
    the most likely token. `alternatives` are the likeliest other tokens at this position with their probabilities.
    For a served model the entropy and the rank are None, the id is -1, and there are no alternatives.
    """

    id: int
    text: str
    start: int
    end: int
    log_probability: float
    entropy: float | None
    rank: int | None
    is_special: bool = False
    alternatives: tuple[tuple[str, float], ...] = ()

    @property
    def probability(self) -> float:
        return math.exp(min(self.log_probability, 0.0))


@dataclass(frozen=True)
class Sinks:
    """Attention sinks: their shares in a row's absolute scores.

    The first token, other special tokens (such as those of a chat template), and earlier tokens of the response.
    """

    first_token: float
    special: float
    earlier: float


@dataclass(frozen=True, eq=False)
class PartScores:
    """A part of a prompt that is not a text: the layout of its tokens, and its scores for each row of the response.

    Args:
        layout: The layout of its tokens, such as patches of a picture.
        scores: A float32 array [row, token].

    Raises:
        WhyformerError: If there is not one finite float32 for each row and token.

    Example:
        >>> from whyformer.scenes import example
        >>> scene = example(3)
        >>> response = whyformer.explain_response((scene.image, scene.question), model="mini-vlm", method="rollout")
        >>> response.parts["image"].part(0).layout.summary
        '16×16 patches'
    """

    layout: Layout
    scores: SpanScores

    def __post_init__(self) -> None:
        is_table = np.ndim(self.scores) == 2 and self.scores.shape[1] == self.layout.size
        if not is_table or self.scores.dtype != np.float32 or not np.isfinite(self.scores).all():
            raise WhyformerError(
                f"Scores of {self.layout.summary} are finite float32 [row, {self.layout.size}], not "
                f"{getattr(self.scores, 'dtype', type(self.scores).__name__)} of shape {np.shape(self.scores)}."
            )

    def part(self, row: int | None = None) -> Part:
        """The part with the scores of a row, by default of all rows together."""
        return Part(self.layout, self.scores.sum(axis=0) if row is None else self.scores[row])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartScores):
            return NotImplemented
        return self.layout == other.layout and np.array_equal(self.scores, other.scores)


def part_sources(parts: Mapping[str, PartScores]) -> tuple[Source, ...]:
    """Each part that is not a text, as a source; it covers no characters of the prompt."""
    return tuple(Source(kind_of(one.layout).noun, "", 0, 0, name, ()) for name, one in parts.items())


@dataclass(frozen=True)
class TopSource:
    """One of the strongest sources, with its score and its share of the row or of all rows."""

    source: Source
    score: float
    share: float


def check_score_array(name: str, values: np.ndarray, shape: tuple[int, int]) -> None:
    """Validate an array of a response: finite float32 of this shape."""
    if getattr(values, "dtype", None) != np.float32 or values.shape != shape or not np.isfinite(values).all():
        kind = f"{getattr(values, 'dtype', type(values).__name__)} of shape {np.shape(values)}"
        raise WhyformerError(f"{name} of a response are finite float32 of shape {shape}, not {kind}.")


def same_fields(first: Any, second: Any) -> bool:
    """Whether all fields that are compared are equal, arrays also in their dtype."""
    return all(_same(getattr(first, one.name), getattr(second, one.name)) for one in fields(first) if one.compare)


def check_row(row: int | None, rows: int) -> None:
    """Validate the index of a row; None stands for all of them."""
    if row is not None and (type(row) is not int or not -rows <= row < rows):
        raise WhyformerError(f"row={row!r}: the response has {rows} rows, 0 to {rows - 1}.")


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    return bool(first == second)

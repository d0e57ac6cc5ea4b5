"""Draw results on matplotlib axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from whyformer.extras import extra
from whyformer.inputs.layouts import WordPieces
from whyformer.render.colour import score_scale
from whyformer.render.layout_kinds import Space, kind_of
from whyformer.render.text_spans import one_line, part_scale, token_names, visible

if TYPE_CHECKING:
    from whyformer.results.continuation import Continuation
    from whyformer.results.part import Part

MOST_BARS = 20
WIDTH = 960


def plot_part(part: Part, title: str, ax: Any = None) -> Any:
    """Draw a heatmap, or bars for the strongest words of a text, on a matplotlib axis, and return it."""
    ax = _axis(ax)
    if isinstance(part.layout, WordPieces):
        _plot_words(part, ax)
    else:
        ax.imshow(np.asarray(kind_of(part.layout).figure(part, Space(WIDTH))))
        ax.set_axis_off()
    ax.set_title(_literal(title))
    return ax


def plot_matrix(continuation: Continuation, matrix: np.ndarray, part: Part, ax: Any = None) -> Any:
    """Draw a row for each written token and a column for each token before it on a matplotlib axis."""
    ax, scale = _axis(ax), score_scale(matrix)
    # As in the other pictures: white for 0, blue for negative.
    colours = scale.colours(scale.strength(matrix), "light")
    ax.imshow(colours, aspect="auto", interpolation="nearest")
    columns = token_names(part)[: matrix.shape[1]]
    ax.set_xticks(range(len(columns)), [_literal(name) for name in columns], rotation=90)
    ax.set_yticks(range(len(matrix)), [_literal(visible(token)) for token in continuation.tokens])
    ax.set_title(_literal(continuation.headline))
    return ax


def _plot_words(part: Part, ax: Any) -> None:
    words = sorted(part.words(), key=lambda word: -abs(word.score))[:MOST_BARS]
    scale, scores = part_scale(part), np.array([word.score for word in words])
    colours = np.clip(scale.colours(scale.strength(scores), "light"), 0, 1)
    places = range(len(words))
    ax.barh(places, scores, color=colours, edgecolor="0.5", linewidth=0.5)
    ax.set_yticks(places, [_literal(one_line(word.text)) for word in words])
    ax.invert_yaxis()
    ax.set_xlabel("score")


def _axis(ax: Any) -> Any:
    return extra("matplotlib.pyplot").subplots()[1] if ax is None else ax


def _literal(text: str) -> str:
    """Escape the characters that matplotlib parses as math."""
    return text.replace("$", r"\$")

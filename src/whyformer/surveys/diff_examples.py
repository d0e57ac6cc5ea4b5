"""The most telling samples of two models: other answers that both are sure of, and the same for other reasons."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np
from PIL import Image

from whyformer.inputs.layouts import Patches
from whyformer.inputs.sound import Sound
from whyformer.render.heatmaps import heat_picture
from whyformer.render.view import data_uri
from whyformer.surveys.model_diff import SampleChange
from whyformer.surveys.sample_pairs import SamplePair
from whyformer.surveys.scored_samples import ScoredSample
from whyformer.surveys.sound_examples import sound_pictures
from whyformer.surveys.survey_data import SurveyData

TELLING = 10  # samples
SAME_REASONS = 0.999  # a correlation from which on a sample tells nothing
SHOWN_WORDS, HEATMAP_SIDE = 48, 168  # of an excerpt, and in pixels


class TellingPairs:
    """Keeps the most telling pairs of those it is given, one at a time."""

    def __init__(self) -> None:
        self._changed: list[tuple[float, int, SamplePair]] = []
        self._moved: list[tuple[float, int, SamplePair]] = []

    def add(self, pair: SamplePair, correlation: float | None) -> None:
        """Add a pair with its correlation."""
        if pair.is_changed:
            _keep(self._changed, _sureness(pair), pair)
        elif correlation is not None and correlation < SAME_REASONS:
            _keep(self._moved, -correlation, pair)

    @property
    def pairs(self) -> list[SamplePair]:
        """Half of them with other answers, half with other reasons, or more of one kind if the other has fewer."""
        changed, moved = (
            [pair for *_, pair in sorted(kept, key=lambda one: (-one[0], -one[1]))]
            for kept in (self._changed, self._moved)
        )
        count = max(TELLING // 2, TELLING - len(moved))
        changed = changed[:count]
        return changed + moved[: TELLING - len(changed)]


def _keep(heap: list[tuple[float, int, SamplePair]], rank: float, pair: SamplePair) -> None:
    heapq.heappush(heap, (rank, -pair.first.number, pair))
    if len(heap) > TELLING:
        heapq.heappop(heap)


def _sureness(pair: SamplePair) -> float:
    """The lower of both probabilities: a change that both models are sure of tells most."""
    return min(sample.probability or 0.0 for sample in (pair.first, pair.second))


def sample_changes(pairs: Iterable[SamplePair], data: SurveyData) -> tuple[SampleChange, ...]:
    """The pairs with excerpts or heatmaps."""
    return tuple(_sample_change(pair, data) for pair in pairs)


def _sample_change(pair: SamplePair, data: SurveyData) -> SampleChange:
    first, second = pair.first, pair.second
    return SampleChange(
        first.number,
        first.name,
        first.label,
        (first.answer, second.answer),
        (first.probability, second.probability),
        pair.correlation,
        words=_excerpt(pair) if first.kind == "text" else (),
        pictures=() if first.kind == "text" else tuple(_drawn(sample, data) for sample in (first, second)),
    )


def _excerpt(pair: SamplePair) -> tuple[tuple[str, float, float], ...]:
    """The words around the largest difference of the scores."""
    count = pair.shared
    first, second = (_shares(sample.scores)[:count] for sample in (pair.first, pair.second))
    place = int(np.abs(first - second).argmax()) if count else 0
    start = max(0, min(place - SHOWN_WORDS // 2, count - SHOWN_WORDS))
    return tuple(
        (pair.first.words[n], float(first[n]), float(second[n])) for n in range(start, min(count, start + SHOWN_WORDS))
    )


def _shares(scores: np.ndarray) -> np.ndarray:
    shares: np.ndarray = np.round(scores / (np.abs(scores).max(initial=0) or 1.0), 3)
    return shares


def _drawn(sample: ScoredSample, data: SurveyData) -> str:
    """The picture or sound with its scores."""
    picture = data[sample.number].example
    if isinstance(picture, Sound):
        return sound_pictures(sample, None, picture)[0]
    assert isinstance(picture, Image.Image)
    assert sample.grid is not None
    assert sample.box is not None
    left, top, right, bottom = map(round, sample.box)
    seen = picture.convert("RGB").crop((left, top, right, bottom)).resize((HEATMAP_SIDE, HEATMAP_SIDE))
    layout = Patches(seen, *sample.grid, (0.0, 0.0, float(HEATMAP_SIDE), float(HEATMAP_SIDE)))
    return data_uri(heat_picture(layout, sample.scores))

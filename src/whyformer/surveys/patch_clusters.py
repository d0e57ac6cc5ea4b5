"""Clusters of patches that look alike to the model: by its own last states, named by their most typical patches."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from whyformer.api.batch_scores import trace_batch
from whyformer.axes import at_least_float32
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.extras import extra
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import encode
from whyformer.inputs.parts import part_places
from whyformer.models.loading import LoadedModel
from whyformer.render.view import data_uri
from whyformer.surveys.cues import Cue, region_parts
from whyformer.surveys.scored_samples import ScoredSample
from whyformer.surveys.survey_data import SurveyData
from whyformer.tracing.reads import Reads
from whyformer.tracing.trace import real_tokens

FITTED_PICTURES, FITTED_PATCHES = 200, 8  # of the choice half, and the highest-scored patches of each
FEWEST_PICTURES = 16
MOST_CLUSTERS = 10
FEWEST_PATCHES, DENSE_SHARE = 8, 0.025  # patches in a cluster, and their share of all
SILHOUETTE_PATCHES = 800  # patches, for the silhouette
LOOSEST = 10  # the percentile of a cluster's similarities below which a patch is of no cluster
TYPICAL, CONTEXT, PATCH_SIDE = 12, 1.5, 48  # patches in a montage, the side around them in patches, and in pixels


@dataclass(frozen=True, eq=False)
class PatchClusters:
    """Centres [cluster, state] of unit length, the least similarity of each one's patches, and its montage."""

    centres: np.ndarray
    least: np.ndarray
    montages: tuple[tuple[str, ...], ...]

    def of(self, states: np.ndarray) -> np.ndarray:
        """The cluster of each patch, from their states [row column state]; −1 for none."""
        likeness = states @ self.centres.T
        nearest = likeness.argmax(axis=-1)
        best = np.take_along_axis(likeness, nearest[..., None], axis=-1)[..., 0]
        clusters: np.ndarray = np.where(best >= self.least[nearest], nearest, -1)
        return clusters


def patch_states(loaded_model: LoadedModel, picture: Any) -> np.ndarray:
    """The last residual state of each patch [row column state], scaled to unit length."""
    inputs = model_inputs(loaded_model, encode(loaded_model, [picture]))
    trace = trace_batch(loaded_model, inputs, "predicted", Reads(maps="last", states=True))
    state, lengths = trace.last.key_state, {name: mask.shape[1] for name, mask in real_tokens(trace).items()}
    place = next((one for one in part_places(loaded_model.model, inputs, lengths) if one.kind == "picture"), None)
    grid = None if place is None else place.grid
    if state is None or place is None or grid is None or state.shape[1] != lengths.get(place.stream):
        raise UnsupportedModel(f"The last states of {loaded_model.name} are not those of its patches.")
    patches: np.ndarray = at_least_float32(state[0, place.first :][: grid[0] * grid[1]]).detach().cpu().numpy()
    patches = patches - patches.mean(axis=1, keepdims=True)
    unit_states: np.ndarray = patches / np.linalg.norm(patches, axis=1, keepdims=True)
    return unit_states.reshape(*grid, -1)


def likely_background(states: np.ndarray) -> np.ndarray:
    """The patches [row column] that are more like those at the border than the others are, by Otsu's threshold.

    So are patches unlike the border in areas that do not reach the middle of the picture, such as a stamp in a corner,
    unless no area does.
    """
    is_border = np.zeros(states.shape[:2], dtype=bool)
    is_border[[0, -1]] = is_border[:, [0, -1]] = True
    likeness = states @ states[is_border].mean(axis=0)
    areas, _ = extra("scipy.ndimage").label(likeness <= extra("skimage.filters").threshold_otsu(likeness))
    in_middle = areas[region_parts(areas.shape)[Cue("region", "centre")]]
    background: np.ndarray = ~np.isin(areas, in_middle[in_middle > 0]) if in_middle.any() else areas == 0
    return background


def fit_clusters(
    loaded_model: LoadedModel, data: SurveyData, samples: Iterable[ScoredSample], *, seed: int = 0
) -> PatchClusters | None:
    """Cluster the highest-scored patches of some pictures; None if they are too few."""
    rows: list[np.ndarray] = []
    origins: list[tuple[int, int]] = []
    order = np.random.default_rng([seed, 2]).permutation(len(data))
    own = heapq.nsmallest(FITTED_PICTURES, samples, key=lambda sample: order[sample.number])
    if len(own) < FEWEST_PICTURES:
        return None
    for sample in own:
        states = patch_states(loaded_model, data[sample.number].example)
        top = np.argsort(-sample.scores, kind="stable")[:FITTED_PATCHES]
        rows.append(states.reshape(len(sample.scores), -1)[top])
        origins += [(sample.number, int(patch)) for patch in top]
    points = np.concatenate(rows)
    members = _grouped(points, seed)
    centres = np.stack([points[members == group].mean(axis=0) for group in range(members.max() + 1)])
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    likeness = points @ centres.T
    least = np.array([np.percentile(likeness[members == group, group], LOOSEST) for group in range(len(centres))])
    by_number = {sample.number: sample for sample in own}
    montages = tuple(_montage(data, by_number, origins, likeness[:, group]) for group in range(len(centres)))
    return PatchClusters(centres, least, montages)


def _grouped(points: np.ndarray, seed: int) -> np.ndarray:
    """The cluster of each point, −1 for none: by density (HDBSCAN), or by k-means where there are no dense regions.

    k-means splits the states of a classifier into one group for each class, whatever the patches show.
    """
    fewest = max(FEWEST_PATCHES, round(DENSE_SHARE * len(points)))
    labels = extra("sklearn.cluster").HDBSCAN(min_cluster_size=fewest, copy=True).fit_predict(points.astype(np.float64))
    largest = [group for group, _ in Counter(labels[labels >= 0].tolist()).most_common(MOST_CLUSTERS)]
    if len(largest) < 2:
        return _by_means(points, seed)
    members = np.full(len(points), -1)
    for number, group in enumerate(largest):
        members[labels == group] = number
    return members


def _by_means(points: np.ndarray, seed: int) -> np.ndarray:
    """The k-means group of each point, for the number of groups with the largest silhouette."""
    cluster, metrics = extra("sklearn.cluster"), extra("sklearn.metrics")
    best, members = -np.inf, np.zeros(len(points), dtype=int)
    for count in range(2, min(MOST_CLUSTERS, len(np.unique(points, axis=0)) - 1) + 1):
        labels = cluster.KMeans(count, n_init=3, random_state=seed).fit_predict(points)
        score = metrics.silhouette_score(
            points, labels, sample_size=min(SILHOUETTE_PATCHES, len(points)), random_state=seed
        )
        if score > best:
            best, members = score, labels
    return members


def _montage(
    data: SurveyData,
    samples: dict[int, ScoredSample],
    origins: Sequence[tuple[int, int]],
    likeness: np.ndarray,
) -> tuple[str, ...]:
    """The most typical patches, each of another picture, with a little of what surrounds them."""
    thumbs: dict[int, str] = {}
    for place in np.argsort(-likeness, kind="stable").tolist():
        number, patch = origins[place]
        if number not in thumbs:
            try:
                thumbs[number] = data_uri(_patch(_picture(data, number), samples[number], patch))
            except WhyformerError:
                continue
        if len(thumbs) == TYPICAL:
            break
    return tuple(thumbs.values())


def _patch(picture: Image.Image, sample: ScoredSample, patch: int) -> Image.Image:
    assert sample.grid is not None
    assert sample.box is not None
    (rows, columns), (left, top, right, bottom) = sample.grid, sample.box
    wide, high = (right - left) / columns, (bottom - top) / rows
    x, y = left + (patch % columns + 0.5) * wide, top + (patch // columns + 0.5) * high
    around = (x - CONTEXT * wide, y - CONTEXT * high, x + CONTEXT * wide, y + CONTEXT * high)
    left_edge, upper, right_edge, lower = map(round, around)
    seen = picture.convert("RGB").crop((left_edge, upper, right_edge, lower))
    return seen.resize((PATCH_SIDE, PATCH_SIDE), Image.Resampling.BICUBIC)


def _picture(data: SurveyData, number: int) -> Image.Image:
    picture = data[number].example
    assert isinstance(picture, Image.Image)
    return picture

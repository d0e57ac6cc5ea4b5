"""Clusters of wrong answers by their cue profiles: what each cue adds to the wrong answer, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whyformer.extras import extra
from whyformer.surveys.cues import Cue, cue_set

MOST_PROFILE_CLUSTERS = 4  # of a mistake
SMALLEST_CLUSTER = 3  # wrong answers
TYPICAL_CUES, LEAST_CUE_SHARE = 3, 0.5  # cues that a cluster is named by, and their least part of the first one's score


def misleading_cues(profiles: np.ndarray, cues: Sequence[Cue]) -> list[Cue]:
    """Cluster wrong answers by their profiles [sample, cue], and return the typical cues of each cluster as one cue.

    A profile is the positive scores of the cues, scaled to unit length: samples misled by the same cues are alike,
    however strongly they were misled.
    """
    rows = np.maximum(profiles, 0.0)
    rows = rows[rows.any(axis=1)]
    if len(rows) < SMALLEST_CLUSTER:
        return []
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    members = _clustered(rows)
    own = [rows[members == number] for number in range(members.max() + 1)]
    named = (
        _typical(cluster, cues) for cluster in sorted(own, key=len, reverse=True) if len(cluster) >= SMALLEST_CLUSTER
    )
    return list(dict.fromkeys(named))


def _clustered(rows: np.ndarray) -> np.ndarray:
    """The cluster of each row: by average linkage of cosines, as many clusters as have the largest silhouette."""
    cluster, metrics = extra("sklearn.cluster"), extra("sklearn.metrics")
    best, members = 0.0, np.zeros(len(rows), dtype=int)
    most = min(MOST_PROFILE_CLUSTERS, len(rows) // SMALLEST_CLUSTER, len(np.unique(rows, axis=0)) - 1)
    for count in range(2, most + 1):
        labels = cluster.AgglomerativeClustering(count, metric="cosine", linkage="average").fit_predict(rows)
        score = metrics.silhouette_score(rows, labels, metric="cosine")
        if score > best:
            best, members = score, labels
    return members


def _typical(rows: np.ndarray, cues: Sequence[Cue]) -> Cue:
    means = rows.mean(axis=0)
    order = np.argsort(-means, kind="stable")[:TYPICAL_CUES]
    return cue_set([cues[place] for place in order if means[place] >= LEAST_CUE_SHARE * means[order[0]]])

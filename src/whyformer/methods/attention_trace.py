"""Attention from the response to each source, averaged over contexts of some of them."""

from __future__ import annotations

import numpy as np

from whyformer.axes import SourceScores, UnitScores
from whyformer.errors import WhyformerError
from whyformer.methods.registry import method
from whyformer.methods.source_ablation import random_subsets
from whyformer.removal.units import Ablation
from whyformer.tracing.reads import Reads


@method("attntrace", reads=Reads(subsets=True), kinds=("response",))
def attntrace(ablation: Ablation, *, subsets: int = 30, kept: float = 0.4, top: int = 5, seed: int = 0) -> SourceScores:
    """Mean of each source's strongest attention from the response, over random contexts (AttnTrace, 2025).

    A context shows a share `kept` of the sources. There a source scores the mean of its `top` highest attention
    weights, each of them a mean over blocks, heads and the tokens of the row.
    """
    if ablation.attend is None:
        raise WhyformerError("attntrace reads attention, which a model that is only served does not show.")
    if not 0 < kept <= 1:
        raise WhyformerError(f"kept={kept}: the share of the sources in each context, above 0 and at most 1.")
    if top < 1:
        raise WhyformerError(f"top={top}: at least 1 token.")
    sources = ablation.examples[0].count
    sums, counts = np.zeros((len(ablation.examples), sources)), np.zeros(sources)
    for mask in random_subsets(sources, subsets, kept=kept, seed=seed):
        attention = ablation.attend(mask)
        for source in np.flatnonzero(mask).tolist():
            sums[:, source] += mean_of_highest(attention[source], top)
            counts[source] += 1
    scores: SourceScores = sums / np.maximum(counts, 1)
    return scores


def mean_of_highest(weights: np.ndarray, top: int) -> UnitScores:
    """The mean of the highest weights of each row; 0 for a source without tokens."""
    if weights.shape[1] == 0:
        return np.zeros(len(weights))
    highest: UnitScores = np.sort(weights, axis=1)[:, -top:].mean(axis=1)
    return highest

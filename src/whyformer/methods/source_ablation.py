"""Methods that remove sources of a prompt, each with an estimator."""

from __future__ import annotations

import numpy as np

from whyformer.axes import SourceMasks, SourceScores, SubsetScores
from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.methods.registry import method
from whyformer.removal.units import Ablation
from whyformer.tracing.reads import Reads

SOURCE_KEEP_PROBABILITY = 0.5  # the probability that a source is in a random subset
PENALTY = 0.01  # LASSO's alpha


@method("context_ablation", reads=Reads(subsets=True), kinds=("response",))
def context_ablation(ablation: Ablation, *, subsets: int = 64, seed: int = 0) -> SourceScores:
    """LASSO from random subsets of the sources to the logit of the response (ContextCite, NeurIPS 2024).

    The logit is per token of the response, and the coefficients are scaled back to the whole response.
    """
    lasso = extra("sklearn.linear_model").Lasso(alpha=PENALTY, max_iter=100_000)
    scaler = extra("sklearn.preprocessing").StandardScaler()
    sources = ablation.examples[0].count
    masks = random_subsets(sources, subsets, seed=seed)
    tokens = np.array(ablation.tokens)
    logits = sequence_logits(ablation.scores_of(masks)) / tokens
    lasso.fit(scaler.fit_transform(masks.astype(np.float64)), logits)
    coefficients = np.reshape(lasso.coef_, (len(tokens), sources)) / scaler.scale_
    scores: SourceScores = coefficients * tokens[:, None]
    return scores


@method("leave_one_out", reads=Reads(subsets=True), kinds=("response",))
def leave_one_out(ablation: Ablation) -> SourceScores:
    """Drop of the response's log-probability when a single source is removed."""
    whole, *rest = ablation.scores_of(all_and_all_but_one(ablation.examples[0].count))
    scores: SourceScores = (whole - np.stack(rest)).T
    return scores


def random_subsets(sources: int, count: int, *, kept: float = SOURCE_KEEP_PROBABILITY, seed: int = 0) -> SourceMasks:
    """Random subsets that keep each source with the same probability."""
    if count < 1:
        raise WhyformerError(f"subsets={count}: at least 1.")
    if seed < 0:
        raise WhyformerError(f"seed={seed}: a seed is 0 or more.")
    return np.random.default_rng(seed).random((count, sources)) < kept


def all_and_all_but_one(sources: int) -> SourceMasks:
    """The whole set, then the sets without the first source, without the second, and so on."""
    return np.concatenate([np.ones((1, sources), dtype=bool), ~np.eye(sources, dtype=bool)])


def sequence_logits(log_probabilities: SubsetScores) -> SubsetScores:
    """log p − log(1 − p) of a whole sequence, from log p; finite where p rounds to 1."""
    least = np.minimum(np.asarray(log_probabilities, dtype=np.float64), -np.finfo(np.float64).tiny)
    logits: SubsetScores = least - np.log(-np.expm1(least))
    return logits

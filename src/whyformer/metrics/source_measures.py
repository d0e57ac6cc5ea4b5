"""Metrics of source attribution: recall of the true sources, and agreement with removing sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import regex

from whyformer.axes import SourceMasks, SourceScores, SourceTruth, SourceValues, SpanFigures, SubsetScores
from whyformer.extras import extra
from whyformer.inputs.words import word_ranges
from whyformer.methods.source_ablation import random_subsets
from whyformer.removal.units import Ablation

TOP = (1, 3, 5)
HELD_OUT = 2**32  # added to a seed, so that subsets differ from those of methods
PUNCTUATION = regex.compile(r"^\p{P}+|\p{P}+$")  # around a word
SATURATION, LENGTH_WEIGHT = 1.5, 0.75  # BM25's k₁ and b


def source_recall(scores: SourceValues, truth: SourceTruth, k: int) -> float:
    """Share of the true sources among the k with the highest scores; NaN without true sources.

    Ties count by their expectation under random order.
    """
    if not truth.any():
        return float("nan")
    least = np.sort(scores)[::-1][:k].min()
    above, tied = scores > least, scores == least
    chance = (min(k, len(scores)) - above.sum()) / tied.sum()
    return float((truth & above).sum() + chance * (truth & tied).sum()) / int(truth.sum())


def source_average_precision(scores: SourceValues, truth: SourceTruth) -> float:
    """Average precision of the true sources; NaN without any."""
    if not truth.any():
        return float("nan")
    return float(extra("sklearn.metrics").average_precision_score(truth, scores))


def top_k_drop(ablation: Ablation, scores: SourceScores, counts: Sequence[int] = TOP) -> SubsetScores:
    """Drop in log p(row) without the k sources with the highest scores, [row, k]."""
    whole = np.ones((1, scores.shape[1]), dtype=bool)
    masks = np.concatenate([whole, *(without_the_highest(row, counts) for row in scores)])
    before, *after = ablation.scores_of(masks)
    by_row = np.reshape(after, (len(scores), len(counts), len(scores)))
    drops: SubsetScores = before[:, None] - np.stack([by_row[row, :, row] for row in range(len(scores))])
    return drops


def without_the_highest(scores: SourceValues, counts: Sequence[int], *, seed: int = 0) -> SourceMasks:
    """For each k, the subset without the k sources with the highest scores; ties are broken at random."""
    order = np.lexsort((np.random.default_rng(seed).random(len(scores)), -scores))
    masks = np.ones((len(counts), len(scores)), dtype=bool)
    for mask, count in zip(masks, counts, strict=True):
        mask[order[:count]] = False
    return masks


def linear_datamodelling_score(
    ablation: Ablation, scores: SourceScores, *, subsets: int = 32, seed: int = 0
) -> SpanFigures:
    """LDS: Spearman correlation of summed scores of the kept sources with the true log-probability (Park et al. 2023).

    The subsets are held out: no method with this seed has used them.
    """
    masks = random_subsets(scores.shape[1], subsets, seed=seed + HELD_OUT)
    return rank_agreement(masks @ scores.T, ablation.scores_of(masks))


def rank_agreement(predicted: SubsetScores, real: SubsetScores) -> SpanFigures:
    """Spearman correlation of each row over the subsets; 0 if either is constant."""
    ranks = [extra("scipy.stats").rankdata(values, axis=0) for values in (predicted, real)]
    first, second = (values - values.mean(axis=0) for values in ranks)
    size = np.sqrt((first**2).sum(axis=0) * (second**2).sum(axis=0))
    agreement: SpanFigures = (first * second).sum(axis=0) / np.where(size > 0, size, 1.0)
    return agreement


def random_scores(sources: int, *, seed: int = 0) -> SourceValues:
    """A control: noise."""
    return np.random.default_rng(seed).random(sources)


def recency(sources: int) -> SourceValues:
    """A control: later sources first."""
    return np.arange(sources, dtype=np.float64)


def lexical_overlap(sources: Sequence[str], query: str) -> SourceValues:
    """A control: word overlap of each source with question and response, by BM25 (Robertson & Zaragoza 2009)."""
    counts = [Counter(_words(source)) for source in sources]
    lengths = np.array([sum(count.values()) for count in counts], dtype=np.float64)
    norm = SATURATION * (1 - LENGTH_WEIGHT + LENGTH_WEIGHT * lengths / (lengths.mean() or 1.0))
    scores = np.zeros(len(sources))
    for word in set(_words(query)):
        times = np.array([count[word] for count in counts], dtype=np.float64)
        holders = (times > 0).sum()
        rarity = np.log1p((len(sources) - holders + 0.5) / (holders + 0.5))
        scores += rarity * times * (SATURATION + 1) / np.where(times > 0, times + norm, 1.0)
    return scores


def _words(text: str) -> list[str]:
    words = (PUNCTUATION.sub("", text[start:end]).casefold() for start, end in word_ranges(text))
    return [word for word in words if word]

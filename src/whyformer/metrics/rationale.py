"""Agreement of an explanation's top words with human rationales (ERASER, DeYoung et al. 2020)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import torch

from whyformer.axes import (
    ExampleScores,
    Labels,
    Logits,
    Removal,
    StepLogits,
    TokenMask,
    TokenScores,
    WordCounts,
    WordFigures,
    WordPlaces,
    WordScores,
    WordTruth,
)
from whyformer.extras import extra
from whyformer.metrics.perturbation_curves import curves
from whyformer.metrics.removal import removed

TOP_WORDS = tuple(range(10, 81, 10))  # TA Fig. 4
BINS = (0.01, 0.05, 0.1, 0.2, 0.5)  # ERASER's shares of words taken as the rationale


def word_scores(text: str, offsets: Sequence[tuple[int, int]], scores: Sequence[float]) -> WordScores:
    """Score of each whitespace-delimited word: the maximum over the pieces that overlap it.

    A word without pieces, such as one beyond the model's limit, gets −∞.
    """
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    starts, ends = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    best = np.full(len(spans), -np.inf)
    for (first, last), score in zip(offsets, scores, strict=True):
        if first < last:
            touched = slice(np.searchsorted(ends, first, side="right"), np.searchsorted(starts, last, side="left"))
            best[touched] = np.maximum(best[touched], score)
    return best


def picked_words(scores: WordScores, count: int) -> WordPlaces:
    """The words with the highest scores, in descending order; ties by position; words without a score are excluded."""
    order: WordPlaces = np.argsort(-scores, kind="stable")[:count]
    return np.compress(np.isfinite(scores[order]), order)


def rationale_counts(scores: WordScores, truth: WordTruth, counts: Sequence[int] = TOP_WORDS) -> WordCounts:
    """For each count of picked words: hits, picked words, and marked words."""
    picked = [picked_words(scores, count) for count in counts]
    return np.array([[truth[words].sum(), len(words), truth.sum()] for words in picked], dtype=np.int64)


def precision_recall_f1(counts: WordCounts) -> WordFigures:
    """Precision, recall and F1: macro as a mean over documents, or micro from summed counts."""
    hits, picked, marked = np.moveaxis(np.asarray(counts, dtype=np.float64), -1, 0)
    return np.stack([_share(hits, picked), _share(hits, marked), _share(2 * hits, picked + marked)], axis=-1)


def auprc(scores: WordScores, truth: WordTruth) -> float:
    """Area under the precision-recall curve, by trapezoids as in ERASER; NaN if nothing is marked."""
    if not truth.any():
        return float("nan")
    known = np.isfinite(scores)
    low, high = (float(end) for end in (scores[known].min(), scores[known].max())) if known.any() else (0.0, 0.0)
    # torchmetrics applies a sigmoid to scores outside [0, 1]; words without a score rank last.
    stretched = np.where(known, 0.5 + (np.where(known, scores, low) - low) / (2 * (high - low) or 1.0), 0.0)
    curve = extra("torchmetrics.functional.classification").binary_precision_recall_curve
    precision, recall, _ = curve(torch.from_numpy(stretched), torch.from_numpy(truth.astype(np.int64)))
    return float(torch.trapezoid(precision.double().flip(0), recall.double().flip(0)))


def without_rationale(scores: TokenScores, removable: TokenMask, bins: Sequence[float] = BINS) -> Removal:
    """Remove the most relevant share of the tokens, for each bin."""
    return removed(scores, bins, removable=removable)


def only_rationale(scores: TokenScores, removable: TokenMask, bins: Sequence[float] = BINS) -> Removal:
    """Remove all but the most relevant share of the tokens, for each bin."""
    return removable & ~without_rationale(scores, removable, bins)


def mean_drop(clean: Logits, steps: StepLogits, explained: Labels) -> ExampleScores:
    """Drop in the probability of the explained class, averaged over the steps."""
    before, after = (curves(part, explained, explained).probability for part in (clean[None], steps))
    return (before - after).mean(dim=1)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return part / np.where(whole > 0, whole, 1.0)

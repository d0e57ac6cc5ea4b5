"""Samples whose answers are known sums over their words, so that every effect of a removal is known too."""

import numpy as np

from whyformer.surveys.respondents import RemovableSample
from whyformer.surveys.survey_data import SurveySample


def summed_sample(number, words, weights, base=0.0):
    """A sample of two labels whose log-odds of the second are a sum of its words' weights."""
    weights = np.asarray(weights, dtype=np.float64)

    def ask(kept):
        odds = base + kept @ weights
        return np.stack([np.zeros(len(kept)), odds], axis=1)

    whole = ask(np.ones((1, len(words)), dtype=bool))[0]
    sample = SurveySample(number, f"text {number}", " ".join(words))
    return RemovableSample(sample, (len(words),), np.ones(len(words)), tuple(words), None, whole, ask)


def random_texts(count, vocabulary, length, seed):
    """Texts of words drawn with equal probability."""
    random = np.random.default_rng(seed)
    return [[vocabulary[n] for n in random.integers(0, len(vocabulary), length)] for _ in range(count)]

from dataclasses import replace

import numpy as np
import pytest

from planted_samples import random_texts, summed_sample
from whyformer.metrics.statistics import choice_test, paired_comparison
from whyformer.surveys.cues import Cue, text_parts
from whyformer.surveys.proof import FALSE_DISCOVERY_RATE, FEWEST_SAMPLES, false_discovery_rates, halves, prove
from whyformer.surveys.removal_effects import removal_effects

VOCABULARY = [f"word{n}" for n in range(30)]
CUES = [Cue("word", name) for name in VOCABULARY]


def effects_by_cue(samples, cues, seed=0):
    effects = {}
    for sample in samples:
        for effect in removal_effects(sample, text_parts(sample.words, frozenset(cues)), seed=seed):
            if effect.answer == 1:
                effects.setdefault(effect.cue, []).append(effect)
    return effects


def discoveries(samples, cues, seed=0):
    tested = {
        cue: choice_test(np.stack([effect.drops for effect in own]), resamples=2000, seed=seed)
        for cue, own in effects_by_cue(samples, cues, seed).items()
        if len(own) >= FEWEST_SAMPLES
    }
    rates = false_discovery_rates(list(tested.values()))
    return {cue for cue, rate in zip(tested, rates, strict=True) if rate <= FALSE_DISCOVERY_RATE}


def noisy_samples(seed, planted=(), count=60):
    """Every occurrence of a word has an effect of its own; only planted words have one that recurs."""
    random = np.random.default_rng(seed)
    return [
        summed_sample(n, words, random.normal(size=len(words)) + [1.5 * (word in planted) for word in words], base=30.0)
        for n, words in enumerate(random_texts(count, VOCABULARY, 16, seed))
    ]


def test_the_test_counts_all_choices_where_there_are_few():
    rows = np.array([[3.0, 1.0, 0.0], [2.0, 4.0, 1.0], [5.0, 5.0, 2.0]])
    sums = [a + b + c for a in rows[0] for b in rows[1] for c in rows[2]]
    assert choice_test(rows) == pytest.approx(np.mean(np.array(sums) >= 10))


def test_with_two_columns_it_is_the_paired_permutation_test():
    random = np.random.default_rng(0)
    first, second = random.normal(0.5, 1, 9), random.normal(0, 1, 9)
    one_sided = choice_test(np.stack([first, second], axis=1))
    assert 2 * one_sided == pytest.approx(paired_comparison(first, second).p)


def test_p_values_of_exchangeable_columns_are_uniform():
    random = np.random.default_rng(0)
    p_values = [choice_test(random.gamma(0.5, size=(12, 4)), resamples=2000, seed=n) for n in range(400)]
    for level in (0.05, 0.2, 0.5):
        share = np.mean(np.array(p_values) <= level)
        assert abs(share - level) < 3 * np.sqrt(level * (1 - level) / 400)


def test_false_discovery_rates_follow_benjamini_and_hochberg():
    p_values = [0.01, 0.04, 0.03, 0.5, 0.002]
    rank = np.argsort(np.argsort(p_values))
    raw = [p * 5 / (place + 1) for p, place in zip(p_values, rank, strict=True)]
    expected = [min(other for other, p in zip(raw, p_values, strict=True) if p >= own) for own in p_values]
    assert false_discovery_rates(p_values) == pytest.approx(expected)
    assert false_discovery_rates([]) == []


def test_a_planted_word_is_proven_with_its_effect():
    samples = noisy_samples(1, planted=("word3",))
    effects = effects_by_cue(samples, CUES)[Cue("word", "word3")]
    proof = prove(effects)
    assert proof.p < 1e-3
    assert proof.samples == len(effects) == sum("word3" in sample.words for sample in samples)
    assert proof.excess.low > 0.5
    assert proof.drop.low < 1.6 < proof.drop.high + 0.5
    assert not proof.is_proven  # before the correction for all cues
    assert Cue("word", "word3") in discoveries(samples, CUES)


def test_few_samples_prove_nothing():
    words = "a fine film it is".split()
    samples = [summed_sample(n, words, [0, 9, 0, 0, 0]) for n in range(7)]
    proof = prove(effects_by_cue(samples, [Cue("word", "fine")])[Cue("word", "fine")])
    assert (proof.samples, proof.p) == (7, 1.0)


def test_a_certain_effect_that_is_next_to_nothing_is_not_proven():
    words = "a fine film it is".split()
    proofs = {}
    for effect in (0.02, 0.2):
        samples = [summed_sample(n, words, [0, effect, 0, 0, 0]) for n in range(20)]
        proof = prove(effects_by_cue(samples, [Cue("word", "fine")])[Cue("word", "fine")])
        proofs[effect] = replace(proof, q=proof.p)
    assert proofs[0.02].q < FALSE_DISCOVERY_RATE
    assert [proof.is_proven for proof in proofs.values()] == [False, True]


def test_without_planted_cues_at_most_one_survey_in_twenty_has_a_false_driver():
    false = [len(discoveries(noisy_samples(seed), CUES[:10], seed)) > 0 for seed in range(100)]
    # Under the global null the false-discovery rate is the chance of any discovery: .05, here up to 3 standard errors.
    assert np.mean(false) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 100)


def test_cues_chosen_on_one_half_are_proven_on_the_other_without_harm():
    """Choice by effect on the same samples makes false drivers; on the other half it does not."""
    same = apart = 0
    runs = 40
    for seed in range(runs):
        samples = noisy_samples(seed + 500)
        is_kept = halves(len(samples), seed)
        for_choice = [sample for sample, kept in zip(samples, is_kept, strict=True) if not kept]
        for_proof = [sample for sample, kept in zip(samples, is_kept, strict=True) if kept]
        by_cue = effects_by_cue(for_choice, CUES, seed)
        mean = {cue: np.mean([effect.drops[0] for effect in own]) for cue, own in by_cue.items()}
        chosen = sorted(mean, key=lambda cue: -mean[cue])[:3]
        same += bool(discoveries(for_choice, chosen, seed))
        apart += bool(discoveries(for_proof, chosen, seed))
    most = 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    assert apart / runs <= most < same / runs


def test_halves_are_halves_and_follow_the_seed():
    kept = halves(101, 7)
    assert kept.sum() == 50
    assert (kept == halves(101, 7)).all()
    assert (kept != halves(101, 8)).any()

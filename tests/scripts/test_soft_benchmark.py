"""The summary of soft removal beside the deletion curves."""

import json

import numpy as np
import pytest

from soft import DOSED, METHODS, NOISY, summary, texts


def test_pairs_are_told_apart_on_the_texts_that_all_methods_have_a_value_for():
    rng = np.random.default_rng(0)
    values = {name: number + rng.normal(0, 0.1, 40) for number, name in enumerate(METHODS)}
    values["random"] = values[METHODS[0]] + rng.normal(0, 0.1, 40)  # no worse than the first, and worse than the others
    for number, name in enumerate(DOSED[1:-1], start=1):
        values[name] = values[NOISY] - number / 2
    values[METHODS[2]][:4] = np.nan
    curve = {name: -number + np.zeros(40) for number, name in enumerate(METHODS)}
    found = summary(values, curve, 18)
    found = json.loads(json.dumps(found))  # as it is written
    assert (found["texts"], found["forwards"], found["pairs"]) == (36, 18, 28)
    assert (found["told apart"], found["ahead of random"]) == (27, 6)
    assert found["agreement"] == -1
    means = [found["doses"][name] for name in DOSED]
    assert np.diff(means) == pytest.approx(-0.5, abs=0.05)
    assert found["falls"] == 4
    mean, low, high = found["means"][METHODS[3]]
    assert mean == pytest.approx(values[METHODS[3]][4:].mean(), abs=1e-3)
    assert low < mean < high


def test_sentences_are_spread_over_the_file(tmp_path):
    (tmp_path / "lines.tsv").write_text("".join(f"text {number}\t0\n" for number in range(11)))
    assert texts(tmp_path / "lines.tsv", 3) == ["text 0", "text 5", "text 10"]

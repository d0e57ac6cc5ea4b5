"""The bundled calibrations and the published figures follow from the committed rows."""

from __future__ import annotations

import json

import pytest

import support_confirmation
import support_summary
from support import rows_of
from whyformer.api.calibrate import fit, labelled_units
from whyformer.api.verdict_models import bundled_calibrations

ROWS = support_summary.RESULTS.parent / "support"


@pytest.mark.parametrize("bundled", bundled_calibrations(), ids=lambda one: one.model)
def test_bundled_calibrations_are_fitted_on_the_committed_rows(bundled):
    rows = rows_of(ROWS / f"{bundled.model}.jsonl.gz")
    fitted = fit(labelled_units(rows), bundled.model, bundled.digest, bundled.data)
    assert fitted.errors == bundled.errors
    for verdict, model in fitted.models.items():
        assert model.coefficients == pytest.approx(dict(bundled.models[verdict].coefficients), rel=1e-3, abs=1e-4)
    (run,) = (one for one in json.loads(support_summary.RESULTS.read_text()) if one["model"] == bundled.model)
    assert run["verdicts"]["calibrated"]["balanced_accuracy"] == fitted.report["balanced_accuracy"]


def test_fresh_sentences_are_those_of_their_seeds_and_only_odd_ones_judge_a_fit():
    rows = rows_of(ROWS / "mini-llm.jsonl.gz")[:60]
    pairs = list(zip(rows, labelled_units(rows), strict=True))
    assert support_summary.confirmation(pairs, None) is None
    moved = [(row | {"seed": row["seed"] + 140}, one) for row, one in pairs]
    calibration = next(one for one in bundled_calibrations() if one.model == "mini-llm")
    fresh = support_summary.confirmation(moved, calibration)
    assert fresh["sentences"] == len(rows)
    for given in fresh["verdicts"].values():
        assert sum(one["of"] for one in given["kinds"].values()) == sum(one.half == 1 for _, one in moved)
    everything = support_summary.confirmation(moved, None)["verdicts"]["thresholds"]["kinds"]
    assert sum(one["of"] for one in everything.values()) == len(rows)


def test_the_published_confirmation_follows_from_the_committed_rows():
    (run,) = json.loads((support_summary.RESULTS.parent / "support_confirmation.json").read_text())
    rows = rows_of(support_confirmation.FOLDER / f"{run['model']}.jsonl.gz")
    assert run["sentences"] == len(rows)
    assert all(row["seed"] in support_summary.FRESH for row in rows)
    for name, threshold in run["thresholds"].items():
        assert run["right"][name] == support_confirmation.shares(rows, threshold)


def test_a_threshold_is_halfway_between_true_and_false_sentences():
    assert support_confirmation.best_threshold([1.0, 2.0], [-1.0, 0.0]) == 0.5
    assert support_confirmation.best_threshold([1.0, 2.0, 3.0], [0.0, 1.5]) == 1.75

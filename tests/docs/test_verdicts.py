"""The page of the default says in words what the file of the confirmation says, kind by kind."""

import json
from pathlib import Path

import pytest
import verdicts

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def counts(better, worse, alike):
    return {"better": better, "worse": worse, "alike": alike}


def verdict(**changes):
    return {
        "chosen": "new",
        "is_confirmed": True,
        "second_half": counts(2, 0, 1),
        "report_unseen": counts(2, 1, 0),
        "mean_ranks": [{"method": "new", "mean_rank": 1.5}, {"method": "old", "mean_rank": 2.5}],
        "first_half": [{"criterion": "half: p, f", "values": {"new": 0.5, "old": 0.4}}],
        "against_today": [],
        "against_others": [],
        **changes,
    }


def gain(criterion, kind, value, *, seen=False, holm=0.01):
    about = {"criterion": criterion, "kind": kind, "seen": seen, "n": 9}
    return {**about, "gain": value, "low": value - 0.01, "high": value + 0.01, "holm": holm}


@pytest.fixture
def page(tmp_path):
    today = [
        gain("half: p, f", "pictures", 0.1),
        gain("text: p, f", "texts", 0.2),
        gain("more: p, f", "texts", -0.3),
        gain("vlm: p, f", "writing", 0.4),
    ]
    rival = {"method": "rival", "chosen_ahead_by": -0.05, "low": -0.09, "high": 0.0, "holm": 0.02}
    others = [
        {"criterion": "half: p, f", "is_share": True, "rows": [{"method": "new"}, {"method": "old"}]},
        {"criterion": "vlm: p, f", "is_share": True, "rows": [rival, {"method": "new"}, {"method": "late"}]},
    ]
    tied = [{"method": name, "mean_rank": 1.5} for name in ("new", "old")]
    choices = {
        "all": verdict(against_today=today, against_others=others),
        "pictures": verdict(is_confirmed=False, report_unseen=counts(0, 0, 0)),
        "texts": verdict(mean_ranks=tied),
    }
    document = {
        "today": "old",
        "candidates": ["new", "old", "lost", "late"],
        "missing": [],
        "choices": choices,
        "options": [],
    }
    (tmp_path / "confirmation.json").write_text(json.dumps(document))
    (tmp_path / "writing.json").write_text(json.dumps({"label": "rival"}))
    return verdicts.confirmed(tmp_path / "confirmation.json", tmp_path / "writing.json")


def test_each_kind_has_its_verdict_in_words(page):
    assert (
        "- **pictures**: not confirmed, since no figure on unseen data was measured. `new` has the lowest mean rank on "
        "its first halves, 1.5; on the second halves it is better by 2 figures, worse by 0 and not told apart by 1.\n"
    ) in page
    assert "- **texts**: confirmed. `new` has the lowest mean rank on its first halves, 1.5, shared with `old`;" in page


def test_where_the_library_takes_another_default_the_page_says_which_is_better(page):
    assert "On unseen data `new` is better than `old` by 1 of 1 figures and worse by 0." in page
    assert (
        "Without them it is better by 1 and worse by 1. The library does not use it there: the default is `rival`"
        in page
    )
    assert "Against `new` that is, by vlm: p, f: better, +5.0 [+0.0, +9.0], corrected p 0.020." in page


def test_candidates_without_values_are_named_with_the_reason(page):
    assert "Of 4 candidates, no run has `lost`: `benchmarks/confirm.py` leaves out what the version" in page
    assert "`old` refused the models of vlm, so it has no values there." in page
    assert "`late` was added after the runs that choose; only vlm has it." in page


def test_the_published_page_has_a_verdict_of_every_kind():
    result = json.loads((RESULTS / "confirmation.json").read_text())
    text = verdicts.confirmed(RESULTS / "confirmation.json", RESULTS / "picture_default.json")
    for kind, own in result["choices"].items():
        if kind != "all":
            assert f"- **{kind}**: {'confirmed' if own['is_confirmed'] else 'not confirmed'}" in text

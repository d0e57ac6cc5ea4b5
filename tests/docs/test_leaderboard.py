"""The leaderboard says what the results say, ranks only what was compared, and needs nothing from outside."""

import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from whyformer.methods.registry import METHODS

leaderboard = importlib.import_module("leaderboard")
paired_ranking = importlib.import_module("paired_ranking")
evaluations = importlib.import_module("evaluations")
submit = importlib.import_module("submit")
ROOT = Path(leaderboard.__file__).parents[1]
FIGURE = {
    "figure": "mIoU",
    "better": "higher",
    "is_share": True,
    "rows": [
        {"method": "centre_prior", "n": 9, "value": 0.9, "low": 0.8, "high": 1.0},
        {"method": "rollout", "n": 9, "value": 0.6, "low": 0.5, "high": 0.7, "p": 0.01},
        {"method": "two <b>", "n": 9, "value": 0.59, "low": 0.5, "high": 0.7, "p": 0.4},
        {"method": "evidence", "n": 4, "value": 0.5, "low": 0.0, "high": 1.0},
        {"method": "grad_cam", "n": 9, "value": 0.1, "low": 0.0, "high": 0.2, "p": 0.001},
    ],
    "subsets": [{"n": 4, "values": {"evidence": 0.5, "rollout": 0.4}}],
}


def run(model):
    protocols = [{"protocol": name, "figures": [FIGURE]} for name in ("segmentation", "approximation")]
    refused = {"lrp": "lrp refuses it"}
    return {"model": model, "data": {"reader": "photos"}, "left_out": refused, "protocols": protocols}


FOUND = {name: run(name) for name in ("mini", "other", "third")}
LISTED = ["rollout", "grad_cam", "evidence", "lrp"]


def test_a_method_is_best_not_told_from_it_behind_or_not_tested_and_controls_are_neither():
    values = list(leaderboard.entries(leaderboard.cells_of({"mini": FOUND["mini"]})))
    assert [one.standing for one in values] == ["control", "best", "tie", "open", "behind"]
    assert [one.rank for one in values] == [None, 1, 2, 3, 4]


def test_methods_are_compared_only_on_the_same_samples():
    cells = leaderboard.cells_of(FOUND)
    assert {frozenset(values) for values in cells[0].values} == {
        frozenset({"centre_prior", "rollout", "two <b>", "grad_cam"}),
        frozenset({"evidence"}),
        frozenset({"evidence", "rollout"}),
    }
    scores = leaderboard.scores(cells, {"rollout": 2.5}, LISTED)
    # By its value evidence is behind rollout, on the samples that both have it is ahead; with grad_cam it has none.
    assert [one.method for one in scores] == ["evidence", "rollout", "grad_cam", "lrp"]
    assert [(one.cells, one.applies, one.cost) for one in scores] == [
        (3, 3, None),
        (3, 3, 2.5),
        (3, 3, None),
        (0, 0, None),
    ]
    assert [one.place and one.place.pairs for one in scores] == [3, 6, 3, None]
    assert [one.place for one in leaderboard.scores(cells[:1], {}, LISTED)] == [None] * 4  # of one model


def test_strengths_are_those_of_bradley_and_terry():
    assert paired_ranking.share_ahead(np.array([[0, 3e6], [1e6, 0]])) == pytest.approx([0.75, 0.25], abs=1e-5)
    true = np.array([1.0, 0.3, -0.5, -0.8])
    chance = 1 / (1 + np.exp(true[None] - true[:, None]))
    games = np.array([[0, 9e6, 4e6, 0], [9e6, 0, 0, 2e6], [4e6, 0, 0, 5e6], [0, 2e6, 5e6, 0]])  # not all pairs met
    assert paired_ranking.strengths(games * chance) == pytest.approx(true, abs=1e-3)


def test_a_method_loses_nothing_by_cells_that_it_is_not_in():
    tables = [{"a": 3.0, "b": 2.0, "c": 1.0}], [{"b": 2.0, "c": 1.0}]
    cells = [paired_ranking.Comparisons(f"model {n}", 1.0, True, tables[n > 3]) for n in range(12)]
    with_more, alone = (paired_ranking.ranking(some, "abc") for some in (cells, cells[:4]))
    assert [one.method for one in with_more] == [one.method for one in alone] == ["a", "b", "c"]
    assert [one.pairs for one in with_more] == [8, 16, 16]
    lower = [paired_ranking.Comparisons("m", 1.0, False, tables[0])]
    assert [one.method for one in paired_ranking.ranking(lower, "abc")] == ["c", "b", "a"]
    assert all(one.low <= one.ahead <= one.high for one in with_more)


def test_mean_ranks_are_over_the_cells_in_which_all_methods_share_samples():
    tables = [{"a": 3.0, "b": 2.0, "c": 1.0}], [{"a": 9.0, "b": 8.0}, {"a": 1.0, "b": 2.0, "c": 2.0}], [{"b": 2.0}]
    cells = [paired_ranking.Comparisons(f"model {n}", 1.0, True, table) for n, table in enumerate(tables)]
    found = paired_ranking.common_ranks(cells, "abc")
    assert found.cells == 2
    assert {name: mean for name, (mean, *_) in found.by_method.items()} == {"a": 2.0, "b": 1.75, "c": 2.25}
    assert found.by_method["a"][1:] == (1.0, 3.0)
    assert paired_ranking.common_ranks(cells[2:], "abc") == paired_ranking.CommonRanks(0, {})


def test_the_page_is_whole_escaped_and_asks_nothing_from_outside():
    page = leaderboard.page(FOUND, {})
    assert "two &lt;b&gt;" in page
    assert not re.search(r"https?://|%[A-Z]+%", page)
    values = "<td>rollout</td><td>60.0</td><td>50.0 to 70.0</td><td>9</td><td>1</td><td>best</td><td>mini</td>"
    assert values in page
    assert '<td title="lrp refuses it">×</td>' in page
    assert '<td title="not measured yet: machine time">–</td>' in page


def test_the_page_of_the_site_has_every_cell_and_the_table_alone_leads_back_to_it():
    docs = ROOT / "docs"
    assert '<iframe class="board" src="board.html"' in (docs / "results" / "leaderboard.md").read_text()
    assert '<a href="leaderboard.html">' in (docs / "results" / "board.html").read_text()


def test_every_method_that_is_offered_by_name_is_listed_and_has_a_value_or_a_reason():
    found = evaluations.runs(ROOT / "benchmarks" / "results" / "evaluation")
    listed = leaderboard.listed()
    assert {name.partition(" ")[0] for name in listed} == METHODS.keys() - {"random"}
    for cell in leaderboard.cells_of(found):
        for method in listed:
            assert method in cell.rows or leaderboard.reason(cell, method)


def test_the_prose_of_the_board_is_what_the_results_say():
    found = evaluations.runs(ROOT / "benchmarks" / "results" / "evaluation")
    cells, text = leaderboard.cells_of(found), (ROOT / "docs" / "results" / "leaderboard.md").read_text()
    assert leaderboard.common(found) in text
    scores = {one.method: one for one in leaderboard.scores(cells, {}, leaderboard.names_of(cells))}
    for name in ("lrp rules=attn_lrp", "integrated_gradients"):  # "far worse there than by pairs"
        by_pairs = sorted(scores, key=lambda other: -(scores[other].place.ahead if scores[other].place else 0))
        assert scores[name].rank[0] > by_pairs.index(name) + 5
    budget = {name for name in leaderboard.listed() if name.endswith("forwards=128")}
    assert budget == {f"{name} forwards=128" for name in ("rise", "kernel_shap", "lime", "mask_regression")}
    assert all(f"`{name.partition(' ')[0]}`" in text for name in budget)
    assert set(leaderboard.fill_document()["narrow"]) == set(
        re.findall(r"`(\w+)`", text.split("-->")[-1].split(":")[0])
    )


def test_a_method_of_a_plugin_is_measured_beside_the_default_and_the_best(tmp_path, monkeypatch):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from whyformer import METHODS\nfrom whyformer.extend import method\n"
        "@method('mine', reads=METHODS['rollout'].reads, replace=True)\n"
        "def mine(trace):\n    'Rollout again.'\n    return METHODS['rollout'].formula(trace)\n"
    )
    arguments = ["submit", plugin, "--method", "mine", "--suites", "scenes-visualbert", "--samples", 3]
    monkeypatch.setattr("sys.argv", [*map(str, arguments), "--out", str(tmp_path)])
    try:
        submit.main()
    finally:
        METHODS.pop("mine", None)
    found = json.loads((tmp_path / "mine-scenes-visualbert.json").read_text())
    rows = {row["method"]: row["value"] for row in found["protocols"][0]["figures"][0]["rows"]}
    assert {"mine", "random", "evidence"} <= set(rows)
    assert "| mine |" in leaderboard.summary({"mine": found}, {})
    assert "<td>mine</td>" in leaderboard.page({"mine": found}, {})


@pytest.mark.parametrize("name", submit.DRAWN + submit.WITH_DATA)
def test_the_suites_of_a_submission_are_there_and_have_opponents(name):
    assert (Path(submit.HERE) / "suites" / f"{name}.toml").is_file()
    assert submit.opponents(name)[0] == {"name": "evidence"}

"""The leaderboard counts what the results say, and its page needs nothing from outside."""

import importlib
import json
import re
from pathlib import Path

import pytest

from whyformer.methods.registry import METHODS

leaderboard = importlib.import_module("leaderboard")
submit = importlib.import_module("submit")
FIGURE = {
    "figure": "mIoU",
    "better": "higher",
    "is_share": True,
    "rows": [
        {"method": "centre_prior", "n": 9, "value": 0.9, "low": 0.8, "high": 1.0},
        {"method": "one", "n": 9, "value": 0.6, "low": 0.5, "high": 0.7, "p": 0.01},
        {"method": "two <b>", "n": 9, "value": 0.59, "low": 0.5, "high": 0.7, "p": 0.4},
        {"method": "three", "n": 9, "value": 0.1, "low": 0.0, "high": 0.2, "p": 0.001},
    ],
}
FOUND = {
    "run": {
        "model": "mini",
        "data": {"reader": "photos"},
        "protocols": [
            {"protocol": "segmentation", "figures": [FIGURE]},
            {"protocol": "approximation", "figures": [FIGURE]},
        ],
    }
}


def test_a_method_is_best_not_told_from_it_or_behind_and_controls_are_neither():
    cells = list(leaderboard.entries(FOUND))
    assert [entry.standing for entry in cells] == ["control", "best", "tie", "behind"]
    scores = leaderboard.scores(cells, {"one": 2.5})
    assert [(one.method, one.best, one.ties, one.behind) for one in scores] == [
        ("one", 1, 0, 0),
        ("two <b>", 0, 1, 0),
        ("three", 0, 0, 1),
    ]
    assert (scores[0].cost, scores[1].cost) == (2.5, None)


def test_the_page_is_whole_escaped_and_asks_nothing_from_outside():
    page = leaderboard.page(FOUND, {})
    assert "two &lt;b&gt;" in page
    assert not re.search(r"https?://|%[A-Z]+%", page)
    assert page.count("<tr>") == 2 + 3 + 4
    assert "<td>one</td><td>60.0</td><td>50.0 to 70.0</td><td>1</td><td>best</td><td>mini</td>" in page


def test_the_page_of_the_site_has_every_cell_and_the_table_alone_leads_back_to_it():
    docs = Path(leaderboard.__file__).parent
    assert '<iframe class="board" src="board.html"' in (docs / "results" / "leaderboard.md").read_text()
    assert '<a href="leaderboard.html">' in (docs / "results" / "board.html").read_text()


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
    assert "mine" in leaderboard.summary({"mine": found}, {})


@pytest.mark.parametrize("name", submit.DRAWN + submit.WITH_DATA)
def test_the_suites_of_a_submission_are_there_and_have_opponents(name):
    assert (Path(submit.HERE) / "suites" / f"{name}.toml").is_file()
    assert submit.opponents(name)[0] == {"name": "evidence"}

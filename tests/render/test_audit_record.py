"""A readable record of an audit file: what it says, and what verifying it found."""

from __future__ import annotations

import json
import re

import pytest

import whyformer
from commands import invoke, run


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    path = tmp_path_factory.mktemp("audit") / "film.audit.json"
    whyformer.explain("A wonderful <b>film</b>.", "mini-bert").save(path)
    return path


def test_the_record_says_what_was_asked_and_found_and_that_it_agrees(audit, tmp_path):
    run("verify", audit, "--html", tmp_path / "film.html")
    page = (tmp_path / "film.html").read_text()
    document = json.loads(audit.read_text())
    assert "Verified: recomputed, and everything that can be compared agrees." in page
    for value in (document["model"]["name"], document["computation"]["device"], document["created"]):
        assert value in page
    (weights,) = document["model"]["weights"].values()
    assert weights in page
    strongest = re.findall(r'<tr><th scope="row" dir="auto">([^<]+)</th><td>([^<]+) \(text\)', page)
    part = document["explanation"]["parts"]["text"]
    best = max(range(len(part["scores"])), key=lambda token: abs(part["scores"][token]))
    assert strongest[0][0] == part["tokens"][best]
    assert float(strongest[0][1]) == pytest.approx(part["scores"][best], rel=0.01)
    assert "<b>film</b>" not in page


def test_the_record_of_changed_scores_says_that_they_differ(audit, tmp_path):
    document = json.loads(audit.read_text())
    document["explanation"]["parts"]["text"]["scores"][1] += 1
    (tmp_path / "changed.audit.json").write_text(json.dumps(document))
    assert invoke("verify", tmp_path / "changed.audit.json", "--html", tmp_path / "changed.html").exit_code == 1
    page = (tmp_path / "changed.html").read_text()
    assert "Not verified: something differs." in page
    assert re.search(r"scores</th><td><b>differs</b>", page)

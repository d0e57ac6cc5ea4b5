"""The kept explanations by which a wheel is tried on other versions."""

import json
import subprocess
from pathlib import Path

import install_tables
import pytest

import compat
import installed
import newcomer
import whyformer


def test_every_example_is_kept_by_every_method_and_no_path_of_a_machine_is():
    names = {
        f"{model}-{method or 'default'}.audit.json" for model in installed.EXAMPLES for method in installed.METHODS
    }
    assert {path.name for path in installed.AUDITS.iterdir()} == names
    for path in installed.AUDITS.iterdir():
        text = path.read_text()
        assert json.loads(text)["format"] == "whyformer-audit"
        assert '"/' not in text


@pytest.mark.parametrize("model", ["mini-bert", "mini-gpt", "mini-t5"])
def test_a_kept_explanation_is_what_is_computed_today(model):
    verification = whyformer.verify(installed.AUDITS / f"{model}-default.audit.json")
    assert verification.agrees, str(verification)


def test_an_interpreter_that_is_not_there_is_a_row_that_says_so(tmp_path):
    assert compat.interpreter("9.9") is None
    row = compat.installed(tmp_path, "9.9", "2.6.0", "4.56.0", Path("none.whl"))
    assert row["failure"] == "no Python 9.9 here"


def test_the_test_suite_is_counted_from_its_own_report(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "python"  # of an environment whose pytest leaves this report behind
    cases = '<testcase classname="a" name="one"/><testcase classname="a" name="two"><failure/></testcase>'
    report = f'<testsuites><testsuite>{cases}<testcase name="three"><skipped/></testcase></testsuite></testsuites>'
    fake.write_text(f"#!/bin/sh\ncat > {tmp_path}/suite.xml <<'END'\n{report}\nEND\n")
    fake.chmod(0o755)
    (tmp_path / "repository").mkdir()
    subprocess.run(["git", "init", "--quiet", str(tmp_path / "repository")], check=True)
    monkeypatch.setattr(compat, "ROOT", tmp_path / "repository")
    assert compat.suite(tmp_path) == {"passed": 1, "skipped": 1, "failed": ["a::two"], "minutes": 0.0}


def test_a_way_in_is_timed_command_by_command_and_ends_with_its_page(tmp_path):
    row = newcomer.walk(["true", "touch page.html"], tmp_path / "page.html", tmp_path)
    assert (row["commands"], [step["command"] for step in row["steps"]]) == (2, ["true", "touch page.html"])
    with pytest.raises(SystemExit, match="'false' failed"):
        newcomer.walk(["false"], tmp_path / "page.html", tmp_path)
    with pytest.raises(SystemExit, match="No page"):
        newcomer.walk(["true"], tmp_path / "none.html", tmp_path)


def test_the_tables_say_what_was_the_same_and_what_took_how_long(tmp_path):
    row = {"python": "3.12.1", "torch": "2.6.0", "transformers": "4.56.0"}
    suite = {"passed": 1200, "skipped": 3, "failed": ["test_tiny::test_one"], "minutes": 15.0}
    differ = {"mini-vlm-rollout.audit.json": "scores"}
    rows = [{**row, "same": 2, "of": 3, "differ": differ, "suite": suite}, {**row, "failure": "no"}]
    (tmp_path / "compat.json").write_text(json.dumps({"wheel_megabytes": 72.0, "rows": rows}))
    text = install_tables.compat(tmp_path / "compat.json")
    assert "| 3.12.1 | 2.6.0 | 4.56.0 | 2 of 3; others: mini-vlm | 1,200 passed, 1 failed, 3 skipped |" in text
    assert "not run: no | not run |" in text
    way = {"commands": 1, "seconds": 90.0, "steps": [{"command": "make demo", "seconds": 90.0}]}
    machine = {"cores": 2, "load": 1.0, "python": "3.11.7"}
    (tmp_path / "newcomer.json").write_text(json.dumps({"ways": {"checkout": way | {"machine": machine}}}))
    assert "**1.5 min**" in install_tables.newcomer(tmp_path / "newcomer.json")

"""What stands beside the code: how to contribute, cite, report; and the workflow that releases."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from registries import registries_kept

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
RELEASE = ROOT / ".github" / "workflows" / "release.yml"


def test_the_methods_of_the_contributing_page_work(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    with registries_kept():
        for block in re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL):
            exec(compile(block, "CONTRIBUTING.md", "exec"), {"__name__": "contributing"})
    shown = capsys.readouterr().out
    assert "last_block_norm on mini-bert" in shown
    assert "value_norms on mini-vit" in shown


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_what_a_page_names_is_there(name):
    text = (ROOT / name).read_text()
    paths = re.findall(r"`?((?:docs|tests|src|benchmarks|\.github)/[\w./-]+\w)", text)
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_what_errors_and_help_send_a_reader_to_is_there():
    texts = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    pages = {page for text in texts for page in re.findall(r"docs/[\w/-]+\.md", text)}
    assert "docs/guides/evaluation.md" in pages
    assert [page for page in sorted(pages) if not (ROOT / page).is_file()] == []


def test_a_guide_installs_extras_that_there_are_by_the_name_of_the_package():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = [
        (page.name, line)
        for page in [ROOT / "README.md", *(ROOT / "docs" / "guides").glob("*.md")]
        for line in page.read_text().splitlines()
        if line.startswith("pip install ")
    ]
    assert {name for name, _ in lines} >= {"README.md", "app.md", "cluster.md", "evaluation.md", "install.md"}
    for name, line in lines:
        assert line.replace("'", "").startswith("pip install whyformer"), f"{name}: {line}"
        for names in re.findall(r"\[([\w,]+)\]", line):
            assert set(names.split(",")) <= extras.keys(), f"{name}: {line}"


def test_the_latest_version_is_the_same_everywhere():
    assert re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == VERSION
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == VERSION


def test_the_citation_has_the_fields_that_its_format_asks_for():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    for reference in citation["references"]:
        assert {"type", "title", "authors", "year"} <= reference.keys()


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_an_issue_template_is_a_form(path):
    form = yaml.safe_load(path.read_text())
    if path.name == "config.yml":
        assert form == {"blank_issues_enabled": True}
        return
    assert {"name", "description", "body"} <= form.keys()
    identifiers = [part["id"] for part in form["body"]]
    assert len(set(identifiers)) == len(identifiers)
    assert {part["type"] for part in form["body"]} <= {"input", "textarea", "dropdown", "checkboxes"}
    assert all(part["attributes"]["label"] for part in form["body"])


def test_the_release_publishes_what_was_tested_and_keeps_no_secret():
    text = RELEASE.read_text()
    workflow = yaml.safe_load(text)
    jobs = workflow["jobs"]
    assert set(jobs["publish"]["needs"]) == {"build", "suite", "installed"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in text
    needs = [job.get("needs", []) for job in jobs.values()]
    needed = {name for one in needs for name in ([one] if isinstance(one, str) else one)}
    assert needed <= jobs.keys()
    for script in re.findall(r"python (benchmarks/\S+)", text):
        assert (ROOT / script).is_file()
    assert re.findall(r"make (\w+)", text) == ["check"]


def test_every_test_that_the_page_on_security_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "security.md").read_text(encoding="utf-8")))
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 30
    assert not [name for name in named if f"def {name}(" not in sources]

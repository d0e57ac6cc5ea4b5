"""README and docs: their code runs, and their tables are those the committed results make."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import drawings
import numpy as np
import pictures
import pytest
import tables
from PIL import Image

from app_soak import Outcome, figures
from whyformer.methods.registry import METHODS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text()], ids=name_of)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / "src").symlink_to(ROOT / "src")
    monkeypatch.chdir(tmp_path)
    known = dict(METHODS)
    try:
        namespace: dict[str, object] = {"__name__": page.stem}
        for block in blocks:
            exec(compile(block, page.name, "exec"), namespace)
    finally:
        METHODS.clear()
        METHODS.update(known)


def test_tables_are_made_from_the_committed_results():
    command = [sys.executable, str(ROOT / "docs" / "tables.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_what_is_told_of_the_page_under_load_is_what_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    assert tables.soak() == "Not measured yet."
    outcomes = [Outcome("Text", number != 7, number / 10, 900.0 + number) for number in range(100)]
    (tmp_path / "app_soak.json").write_text(json.dumps(figures(outcomes, clients=8, warm_up=50)))
    table = tables.soak()
    assert table.startswith(f"| 100 requests, 8 visitors at once, {len(os.sched_getaffinity(0))} cores |")
    assert "| failures | 1 |" in table
    assert "| 95 of 100 answers within | 9.5 s |" in table
    assert "| memory at the end | 999 MB |" in table
    growth = (900 + 87) / (900 + 62) - 1  # the middles of the last 25 and of the first 25 after the warm-up
    assert f"| growth of memory after the first 50 requests | +{growth:.1%} |" in table


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


PICTURES = sorted((ROOT / "docs" / "pictures").iterdir())


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_small_and_shown_somewhere(picture):
    assert picture.stat().st_size <= 200_000
    assert any(picture.name in page.read_text() for page in PAGES)


def test_the_strip_shows_sources_that_count_and_the_star_in_the_colour_that_is_told():
    response = pictures.explained_response(None)
    shown = [pictures.first_sources(response, row, pictures.LEAST_SHARE) for row in range(2)]
    assert [[item.source.text.strip() for item in items] for items in shown] == [
        ["Boris went to Rome."],
        ["David has the box.", "The hat is in the box."],
    ]
    strip = np.asarray(Image.open(ROOT / "docs" / "pictures" / "strip.png").convert("RGB")).astype(int)
    cyan = (58, 192, 212)  # of the star, as the scene has it
    assert (np.abs(strip - cyan).max(axis=2) < 16).sum() > 100


@pytest.mark.parametrize("name", drawings.DRAWINGS)
def test_a_drawing_is_what_its_function_draws(name):
    assert (ROOT / "docs" / "pictures" / f"concept-{name}.svg").read_text() == drawings.svg(drawings.DRAWINGS[name])


def test_first_words_of_readme_need_no_paper():
    first_screen = (ROOT / "README.md").read_text().partition("## Two commands")[0]
    for word in ("TA", "BI", "GA", "read-out", "stream", "libra", "LRP", "rollout"):
        assert not re.search(rf"\b{word}\b", first_screen.replace("LRP-eXplains-Transformers", "")), word

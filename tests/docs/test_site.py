"""The site is built without a warning, has every public name, and asks nothing from outside."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import whyformer

ROOT = Path(__file__).parents[2]
# What a page loads by itself when it is read; links that a reader may follow are not of them.
LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?([^\" >]+)|<link\b[^>]*\bhref=\"?([^\" >]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "WARNING" not in built.stdout + built.stderr
    return folder


def test_no_page_loads_anything_from_outside(site):
    for page in site.rglob("*.html"):
        for found in LOADED.finditer(page.read_text()):
            address = found[1] or found[2]
            assert not re.match(r"(https?:)?//", address), f"{page.name} loads {address}"
            place = site if address.startswith("/") else page.parent  # the page of errors is served from anywhere
            assert address.startswith("data:") or (place / address.partition("?")[0].lstrip("/")).exists(), address


def test_what_programs_read_links_every_page_of_the_site_and_says_a_sentence_of_it(site):
    entries = re.findall(r"^- \[(.+?)\]\((.+?)\): (.+)$", (site / "llms.txt").read_text(), re.MULTILINE)
    pages = {str(page.relative_to(site)) for page in site.rglob("*.html")} - {"404.html", "results/board.html"}
    assert {place for _, place, _ in entries} == pages
    sentences = [sentence for _, _, sentence in entries]
    assert len(set(sentences)) == len(sentences)
    assert all(sentence[-1] in ".?:" and sentence.count("(") == sentence.count(")") for sentence in sentences)


def test_the_search_index_is_a_script_so_that_it_works_without_a_server(site):
    text = (site / "search" / "search_index.js").read_text()
    titles = {entry["title"] for entry in json.loads(text.removeprefix("var __index = "))["docs"]}
    assert {"Models", "Results", "Protocols"} <= titles


def test_every_public_name_is_on_the_pages_of_the_api(site):
    text = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    names = [name for name in whyformer.__all__ if not inspect.ismodule(getattr(whyformer, name))]
    names += [f"extend.{name}" for name in whyformer.extend.__all__]
    assert not [name for name in names if f'id="whyformer.{name}"' not in text]


def test_pages_that_a_docstring_names_are_links(site):
    text = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    assert 'href="../guides/models.html"' in text
    assert not re.search(r"docs/[\w/-]+\.md", text)


def test_formulas_are_drawn_by_the_browser_itself(site):
    for page in site.rglob("*.html"):
        assert "arithmatex" not in page.read_text(), page.name

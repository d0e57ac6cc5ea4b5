"""The notebooks run on the bundled models, and their outputs are committed, small and free of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_BYTES = 250_000


@pytest.fixture(scope="module")
def executed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("notebooks")
    command = [sys.executable, str(ROOT / "notebooks" / "outputs.py"), "--out", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_committed(path, executed):
    committed, again = (nbformat.read(folder / path.name, as_version=4).cells for folder in (path.parent, executed))
    assert [cell.source for cell in committed] == [cell.source for cell in again]
    assert [shown(cell) for cell in committed] == [shown(cell) for cell in again]


def shown(cell: nbformat.NotebookNode) -> set[str]:
    """The kinds of output a cell has: what is printed, pages, pictures."""
    return {kind for output in cell.get("outputs", []) for kind in output.get("data", [output.output_type])}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_has_outputs_and_is_small_and_free_of_this_machine(path):
    text = path.read_text()
    assert len(text) <= MOST_BYTES
    assert "site-packages" not in text
    assert "not healthy" not in text
    assert any(shown(cell) for cell in nbformat.reads(text, as_version=4).cells)

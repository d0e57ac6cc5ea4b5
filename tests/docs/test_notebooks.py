"""The notebooks run on the bundled models, and their outputs are committed, small and free of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from IPython.core.displayhook import CapturingDisplayHook
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from registries import registries_kept

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_BYTES = 300_000  # photographs keep their colours under a heatmap, which takes a few kilobytes more each


@pytest.fixture
def shell(tmp_path, monkeypatch) -> Iterator[InteractiveShell]:
    """What runs cells in a kernel, here without one: six kernels would import everything six times."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    InteractiveShell.clear_instance()
    with registries_kept():
        yield InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    InteractiveShell.clear_instance()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_committed(path, shell):
    for cell in (cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"):
        with capture_output() as now:
            shell.display_trap.hook = CapturingDisplayHook(shell=shell, outputs=(values := []))
            shell.run_cell(cell.source, store_history=False).raise_error()
        kinds = {
            kind for data in [*(one["data"] for one in values), *(one.data for one in now.outputs)] for kind in data
        }
        assert kinds | ({"stream"} if now.stdout else set()) == shown(cell), cell.source


def test_the_outputs_of_a_notebook_are_those_of_a_kernel(tmp_path):
    """The script that `make docs` runs, on the shortest of them."""
    path = min(NOTEBOOKS, key=lambda path: len(nbformat.read(path, as_version=4).cells))
    command = [sys.executable, str(ROOT / "notebooks" / "outputs.py"), path.stem, "--out", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    committed, again = (nbformat.read(folder / path.name, as_version=4).cells for folder in (path.parent, tmp_path))
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

"""Runs the notebooks and writes their outputs into them, or into copies.

python notebooks/outputs.py [NAME …] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def executed(notebook: nbformat.NotebookNode, manager: KernelManager) -> nbformat.NotebookNode:
    """The notebook with its outputs, without the hours at which they were made and the remarks of this machine."""
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    client = NotebookClient(notebook, km=manager, timeout=300)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
    del notebook.cells[0]
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        cell.metadata.pop("execution", None)
        cell.execution_count = number
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
    return notebook


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[path.stem for path in sorted(FOLDER.glob("*.ipynb"))])
    parser.add_argument("--out", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    manager = KernelManager()  # one for all, so that torch is imported once
    manager.start_kernel(cwd=str(arguments.out))
    try:
        for name in arguments.names:
            path = arguments.out / f"{name}.ipynb"
            nbformat.write(executed(nbformat.read(FOLDER / path.name, as_version=4), manager), path)
            print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)
    finally:
        manager.shutdown_kernel(now=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Show a result in a notebook, a terminal or a browser."""

from __future__ import annotations

import importlib
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Literal

from whyformer.errors import check_choice

Where = Literal["notebook", "terminal", "browser"]


def show(
    *, fragment: Callable[[], str], text: Callable[[], str], page: Callable[[], str], where: Where | None = None
) -> None:
    """Show the fragment in a notebook, the text in a terminal, or the page in a browser; None detects which."""
    where = where or reader_place(sys.stdout)
    check_choice("where", where, Where)
    if where == "notebook":
        display = importlib.import_module("IPython.display")
        display.display(display.HTML(fragment()))
    elif where == "terminal":
        print(text())
    else:
        _open_page(page())


def reader_place(stdout: IO[str] | None) -> Where:
    """Detect where to show: the notebook that runs this, the terminal, or else a browser."""
    if _is_notebook():
        return "notebook"
    return "terminal" if stdout is not None and stdout.isatty() else "browser"


def _is_notebook() -> bool:
    """Whether this runs in an IPython kernel, which displays HTML, unlike IPython's terminal."""
    if "IPython" not in sys.modules:
        return False
    shell: Any = importlib.import_module("IPython").get_ipython()
    return getattr(shell, "kernel", None) is not None


def _open_page(page: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".html", prefix="whyformer-", encoding="utf-8", delete=False) as file:
        file.write(page)
    if not webbrowser.open(Path(file.name).as_uri()):
        print(f"There is no browser here: open {file.name}")

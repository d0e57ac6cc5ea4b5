"""Console output: results to standard output, messages to standard error."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape


def safe(text: str | Path) -> str:
    """A name in one line; a control character in it is shown as a symbol instead of driving the terminal."""
    name = str(text)
    if name.isprintable() and name == " ".join(name.split()):
        return name  # without the import of the renderers, which lists of methods and models do not need
    from whyformer.render.text_spans import visible

    return visible(name)


def complain(message: str) -> None:
    """An error, in one line."""
    typer.echo(f"whyformer: {safe(' '.join(message.split()))}", err=True)


def announce(message: str, *, quiet: bool, err: bool = False) -> None:
    """A line about the results, which --quiet leaves out."""
    if not quiet:
        typer.echo(message, err=err)


def spinner(message: str, *, quiet: bool) -> AbstractContextManager[Any]:
    """A sign of life on a terminal while something takes its time."""
    console = Console(stderr=True)
    return nullcontext() if quiet or not console.is_terminal else console.status(escape(message))

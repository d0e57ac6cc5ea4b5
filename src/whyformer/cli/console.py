"""Console output: results to standard output, messages to standard error."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape


def safe(text: str | Path) -> str:
    """A name in one line, with control characters shown as symbols so that they cannot control the terminal."""
    name = str(text)
    if name.isprintable() and name == " ".join(name.split()):
        return name  # without importing the renderers, which lists of methods and models do not need
    from whyformer.render.text_spans import visible

    return visible(name)


def complain(message: str) -> None:
    """Print an error in one line."""
    typer.echo(f"whyformer: {safe(' '.join(message.split()))}", err=True)


def announce(message: str, *, quiet: bool, err: bool = False) -> None:
    """Print a line about the results, unless --quiet is set."""
    if not quiet:
        typer.echo(message, err=err)


def spinner(message: str, *, quiet: bool) -> AbstractContextManager[Any]:
    """Show a spinner on a terminal during slow work."""
    console = Console(stderr=True)
    return nullcontext() if quiet or not console.is_terminal else console.status(escape(message))

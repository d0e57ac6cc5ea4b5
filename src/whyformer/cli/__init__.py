"""The command line. This module imports nothing heavy, so that an interrupt at any moment is met by `main`."""

from __future__ import annotations

import sys
from typing import Any

INTERRUPTED = 130


def main() -> None:
    """The entry point `whyformer`."""
    try:
        from whyformer.cli.program import run

        run()
    except KeyboardInterrupt:
        print("whyformer: stopped.", file=sys.stderr)
        sys.exit(INTERRUPTED)


def __getattr__(name: str) -> Any:
    """`app`, the Typer application, which is not needed to meet an interrupt."""
    if name == "app":
        from whyformer.cli.program import app

        return app
    raise AttributeError(f"module 'whyformer.cli' has no attribute {name!r}")

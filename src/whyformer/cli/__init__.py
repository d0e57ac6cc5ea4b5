"""The command line. This module has no heavy imports, so that `main` can handle an interrupt at any moment."""

from __future__ import annotations

import signal
import sys

TYPE_CHECKING = False  # known to type checkers; importing `typing` would take longest
if TYPE_CHECKING:
    from typing import Any

INTERRUPTED = 130


def main() -> None:
    """The entry point `whyformer`."""
    interrupts: list[int] = []

    def interrupt(number: int, frame: Any) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as under `nohup`
        signal.signal(signal.SIGINT, interrupt)
    try:
        from whyformer.cli.program import run

        run()
    except KeyboardInterrupt:
        _stop()
    except Exception:
        # Some libraries turn an interrupt during their import into an error of their own.
        if not interrupts:
            raise
        _stop()


def _stop() -> None:
    print("whyformer: stopped.", file=sys.stderr)
    sys.exit(INTERRUPTED)


def __getattr__(name: str) -> Any:
    """Import `app`, the Typer application, on first access."""
    if name == "app":
        from whyformer.cli.program import app

        return app
    raise AttributeError(f"module 'whyformer.cli' has no attribute {name!r}")

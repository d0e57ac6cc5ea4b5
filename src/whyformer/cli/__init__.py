"""The command line. This module imports nothing heavy, so that an interrupt at any moment is met by `main`."""

from __future__ import annotations

import signal
import sys

TYPE_CHECKING = False  # as type checkers read it: `typing` itself takes longest to import
if TYPE_CHECKING:
    from typing import Any

INTERRUPTED = 130


def main() -> None:
    """The entry point `whyformer`."""
    interrupts: list[int] = []

    def interrupt(number: int, frame: Any) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # and not ignored, as for a job of `nohup`
        signal.signal(signal.SIGINT, interrupt)
    try:
        from whyformer.cli.program import run

        run()
    except KeyboardInterrupt:
        _stop()
    except Exception:
        # Some libraries make an error of their own of an interrupt that comes while they are imported.
        if not interrupts:
            raise
        _stop()


def _stop() -> None:
    print("whyformer: stopped.", file=sys.stderr)
    sys.exit(INTERRUPTED)


def __getattr__(name: str) -> Any:
    """`app`, the Typer application, which is not needed to meet an interrupt."""
    if name == "app":
        from whyformer.cli.program import app

        return app
    raise AttributeError(f"module 'whyformer.cli' has no attribute {name!r}")

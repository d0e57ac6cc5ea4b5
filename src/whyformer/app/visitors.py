"""Who is on the page: the work that a visitor waits for, and the files that are kept for them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from whyformer.app.work import Work

MOST_PLACES = 1024  # that files are kept for; those of the oldest go first


class Visitors:
    """State of each visitor in each tab: running work, uploads and downloads.

    A visitor is a page that is open in a browser, known by the name that Gradio gave it.
    """

    def __init__(self) -> None:
        self._works: dict[tuple[str, Hashable], Work] = {}
        self._paths: dict[tuple[str, Hashable], frozenset[Path]] = {}
        self._lock = Lock()

    @contextmanager
    def work(self, visitor: str, place: Hashable, seconds: float) -> Iterator[Work]:
        """Work on a new question: what is still done there for an older one is stopped."""
        work, key = Work(seconds), (visitor, place)
        with self._lock:
            older, self._works[key] = self._works.get(key), work
        if older is not None:
            older.stop()
        try:
            yield work
        finally:
            with self._lock:
                if self._works.get(key) is work:
                    del self._works[key]

    def stop(self, visitor: str, place: Hashable) -> None:
        """Stop what is done for a visitor there."""
        with self._lock:
            work = self._works.pop((visitor, place), None)
        if work is not None:
            work.stop()

    def keep(self, visitor: str, place: Hashable, paths: Iterable[Path]) -> None:
        """The files that a visitor needs there from now on; what nobody needs any more is deleted."""
        self._replace({(visitor, place): frozenset(paths)})

    def leave(self, visitor: str) -> None:
        """Stop all that is done for a visitor, and delete what nobody else needs."""
        with self._lock:
            keys = [key for key in (*self._works, *self._paths) if key[0] == visitor]
        for key in keys:
            self.stop(*key)
        self._replace(dict.fromkeys(keys, frozenset()))

    def _replace(self, paths: dict[tuple[str, Hashable], frozenset[Path]]) -> None:
        with self._lock:
            before = frozenset[Path]().union(*self._paths.values())
            for key, needed in paths.items():
                self._paths.pop(key, None)
                if needed:
                    self._paths[key] = needed
            for key in list(self._paths)[:-MOST_PLACES]:
                del self._paths[key]
            delete(before.difference(*self._paths.values()))


def delete(paths: Iterable[Path]) -> None:
    """Delete files, each with the folder that was made for it, when that is empty."""
    for path in paths:
        path.unlink(missing_ok=True)
        with suppress(OSError):
            path.parent.rmdir()

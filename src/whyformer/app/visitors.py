"""The visitors of the page: their running work and their files."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from whyformer.app.work import Work

MOST_PLACES = 1024  # for which files are kept; the oldest are dropped first


class Visitors:
    """State of each visitor in each tab: running work, uploads and downloads.

    A visitor is an open page in a browser, identified by Gradio's name for it.
    """

    def __init__(self) -> None:
        self._works: dict[tuple[str, Hashable], Work] = {}
        self._paths: dict[tuple[str, Hashable], frozenset[Path]] = {}
        self._lock = Lock()

    @contextmanager
    def work(self, visitor: str, place: Hashable, seconds: float) -> Iterator[Work]:
        """Start work on a new question, stopping that on an older one in the same place."""
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
        """Stop the work of a visitor in a place."""
        with self._lock:
            work = self._works.pop((visitor, place), None)
        if work is not None:
            work.stop()

    def keep(self, visitor: str, place: Hashable, paths: Iterable[Path]) -> None:
        """Replace the files of a visitor in a place; files that nobody needs any longer are deleted."""
        self._replace({(visitor, place): frozenset(paths)})

    def leave(self, visitor: str) -> None:
        """Stop all work of a visitor, and delete files that nobody else needs."""
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
    """Delete files, with their folders if these are empty."""
    for path in paths:
        path.unlink(missing_ok=True)
        with suppress(OSError):
            path.parent.rmdir()

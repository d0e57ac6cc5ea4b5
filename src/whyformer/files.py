"""Atomic file writes that survive a power cut, strict JSON, and file digests."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

MOST_LEVELS = 100  # of nested lists and objects; deeper nesting is rejected
# Suffixes of image files.
IMAGE_SUFFIXES = frozenset({".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`; when the block ends it is flushed to disk and replaces `path`."""
    # Not tempfile: its files are readable by their owner only.
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield unfinished
        _flush(unfinished)
        os.replace(unfinished, path)
        _flush(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically, creating its parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as unfinished:
        unfinished.write_bytes(content)


def is_unfinished(path: Path) -> bool:
    """Whether the file was left behind by a `whole_file` whose process was killed."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise a ValueError also if it is nested too deeply or an object repeats a key."""
    try:
        value = json.loads(text, object_pairs_hook=_distinct_keys)
    except RecursionError as error:
        raise ValueError(f"more than {MOST_LEVELS} levels of lists and objects") from error
    check_levels(value)
    return value


def check_levels(value: Any) -> None:
    """Raise a ValueError if lists and objects are nested so deeply that reading them could exhaust the stack."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list)))
        level = [value for values in inner for value in values if isinstance(value, (dict, list))]
        if not level:
            return
    raise ValueError(f"more than {MOST_LEVELS} levels of lists and objects")


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Python keeps the last of two values under one key, while a reader of the file may notice only the first.
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"the key {name!r:.60} occurs twice")
        values[name] = value
    return values


def file_stamp(path: Path) -> tuple[int, ...]:
    """Size, times and inode of a file: a cheap check for changes; the change time cannot be forged."""
    about = path.stat()
    return about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, cached until the file changes."""
    return _file_digest(path.resolve(), file_stamp(path))


@lru_cache(maxsize=1024)
def _file_digest(path: Path, stamp: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Flush a file, or a folder's list of files, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

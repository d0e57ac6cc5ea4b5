"""Files that are either there with all their bytes or not at all, also after a power cut; JSON; and digests."""

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

MOST_LEVELS = 100  # of lists and objects in each other; what is nested deeper is not read
# What files of pictures are called.
IMAGE_SUFFIXES = frozenset({".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
# What files of sounds are called; soundfile reads them all.
SOUND_SUFFIXES = frozenset({".aif", ".aiff", ".flac", ".mp3", ".ogg", ".opus", ".wav"})


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to write beside `path`; it is flushed to the disk and takes the place of `path` when the block ends."""
    # Opened plainly rather than by tempfile, whose files only their owner may read.
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield unfinished
        _flush(unfinished)
        os.replace(unfinished, path)
        _flush(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a whole file; folders on the way to it are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as unfinished:
        unfinished.write_bytes(content)


def is_unfinished(path: Path) -> bool:
    """Whether it is the rest of a `whole_file` whose process was killed."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. A ValueError also where it is nested too deeply, or an object has a key twice."""
    try:
        value = json.loads(text, object_pairs_hook=_distinct_keys)
    except RecursionError as error:
        raise ValueError(f"more than {MOST_LEVELS} levels of lists and objects") from error
    check_levels(value)
    return value


def check_levels(value: Any) -> None:
    """A ValueError where lists and objects are nested so deeply that reading them could exhaust the stack."""
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, (dict, list)))
        level = [value for values in inner for value in values if isinstance(value, (dict, list))]
        if not level:
            return
    raise ValueError(f"more than {MOST_LEVELS} levels of lists and objects")


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Of two values under one key Python keeps the last, and whoever reads the file may see the first.
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
    """The SHA-256 of a file, read piece by piece; one that has not changed since is not read again."""
    return _file_digest(path.resolve(), file_stamp(path))


@lru_cache(maxsize=1024)
def _file_digest(path: Path, stamp: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Have the system write what it holds back of a file, or of a folder's list of files."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

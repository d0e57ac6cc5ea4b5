"""Files that are either there with all their bytes or not at all, also after a power cut; and their digests."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

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


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, read piece by piece; one that has not changed since is not read again."""
    about = path.stat()
    return _file_digest(path.resolve(), about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=1024)
def _file_digest(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Have the system write what it holds back of a file, or of a folder's list of files."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

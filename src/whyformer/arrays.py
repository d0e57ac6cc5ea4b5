"""Array files (.npz), whose sizes are checked before anything is read."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from whyformer.errors import WhyformerError

# Unpacked, in total: enough for the largest image that is opened (89 million pixels) and its scores.
MOST_BYTES = 2**29
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


@contextmanager
def open_npz(source: Path | BinaryIO) -> Iterator[Mapping[str, np.ndarray]]:
    """Open an .npz file as arrays by name; raise, unread, if it unpacks to too much or misstates a size."""
    with zipfile.ZipFile(source) as archive:
        _checked_shapes(archive)
    if not isinstance(source, Path):
        source.seek(0)
    with np.load(source, allow_pickle=False) as arrays:
        yield arrays


def npz_shapes(source: Path | BinaryIO) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays in an .npz file by name, from headers checked as in `open_npz`."""
    with zipfile.ZipFile(source) as archive:
        return _checked_shapes(archive)


def _checked_shapes(archive: zipfile.ZipFile) -> dict[str, tuple[int, ...]]:
    total = sum(member.file_size for member in archive.infolist())
    if total > MOST_BYTES:
        raise WhyformerError(
            f"its arrays unpack to {_megabytes(total)}, and at most {_megabytes(MOST_BYTES)} are safe to read"
        )
    shapes = {}
    for member in archive.infolist():
        with archive.open(member) as file:
            shape, dtype = _read_header(file)
            stored = member.file_size - file.tell()
        # numpy allocates what the header claims before reading: a false header could take all memory.
        if not dtype.hasobject and math.prod(shape) * dtype.itemsize != stored:
            raise WhyformerError(
                f"its array {member.filename!r} has {stored:,} bytes, which does not fit {dtype} {shape}"
            )
        shapes[member.filename.removesuffix(".npy")] = shape
    return shapes


def _read_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise WhyformerError(f"its arrays use version {version} of numpy's format, which is not supported")
    shape, _, dtype = _HEADERS[version](file)
    return shape, dtype


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"

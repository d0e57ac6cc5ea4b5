"""Read files of data sets, with errors that name the file."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable, Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from whyformer.data.examples import UNLABELLED
from whyformer.errors import WhyformerError
from whyformer.files import parse_json
from whyformer.inputs.read import image_of, open_image


def inside(folder: Path, name: str) -> Path:
    """The path of a file inside a folder; raise if the name leads out of it."""
    path = Path(os.path.normpath(folder / name))
    if not name or not path.is_relative_to(os.path.normpath(folder)):
        raise WhyformerError(f"{name!r} is not a file inside {str(folder)!r}.")
    return path


def existing(path: str | Path, what: Literal["file", "folder"]) -> Path:
    """Validate that a file or folder exists."""
    path = Path(path)
    if not path.exists():
        raise WhyformerError(f"No {what} {str(path)!r}.")
    if path.is_dir() != (what == "folder"):
        raise WhyformerError(f"{str(path)!r} is not a {what}.")
    return path


def text_in(path: Path, encoding: str = "utf-8") -> str:
    try:
        return path.read_text(encoding=encoding)
    except (OSError, UnicodeDecodeError) as error:
        raise WhyformerError(f"The file {str(path)!r} cannot be read: {error}.") from error


def bytes_in(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise WhyformerError(f"The file {str(path)!r} cannot be read: {error}") from error


def json_in(path: Path) -> Any:
    try:
        return parse_json(text_in(path))
    except ValueError as error:
        raise WhyformerError(f"The file {str(path)!r} is not valid JSON: {error}") from error


def member(archive: Path, name: str) -> bytes:
    """Read a file inside an uncompressed tar archive."""
    try:
        start, size = _places(archive, archive.stat().st_mtime_ns)[name]
        with archive.open("rb") as file:
            file.seek(start)
            return file.read(size)
    except (OSError, KeyError, tarfile.TarError) as error:
        raise WhyformerError(f"{name!r} of {str(archive)!r} cannot be read: {error}") from error


@cache
def _places(archive: Path, changed: int) -> dict[str, tuple[int, int]]:
    """Offset and length of each file in the archive, cached because searching for thousands would be slow."""
    with tarfile.open(archive, "r:") as tar:
        return {part.name: (part.offset_data, part.size) for part in tar if part.isfile()}


def picture(content: bytes, name: str) -> Image.Image:
    """Decode a picture."""
    return image_of(_open_image(content, name))


def mask_values(content: bytes, name: str) -> np.ndarray:
    """Decode a mask with its stored values."""
    values = np.asarray(_open_image(content, name))
    if values.ndim != 2:
        raise WhyformerError(f"The mask {name!r} has shape {values.shape}: one value for each pixel is expected.")
    return values


def mask(values: np.ndarray, marks: Mapping[int, int]) -> np.ndarray:
    """Translate a mask's values by `marks`; all others become unknown."""
    pixels = np.full(values.shape, UNLABELLED, dtype=np.uint8)
    for value, mark in marks.items():
        pixels[values == value] = mark
    return pixels


def same_size(image: Image.Image, mask: np.ndarray, name: str) -> None:
    """Raise if a mask and its picture differ in size."""
    if mask.shape != image.size[::-1]:
        raise WhyformerError(f"The mask of {name!r} is {mask.shape[1]}×{mask.shape[0]}, the picture {image.size}.")


def fields(row: Any, names: Iterable[str], where: str) -> list[Any]:
    """The fields of a JSON object or table row; the error names missing ones."""
    missing = [name for name in names if not isinstance(row, dict) or row.get(name) is None]
    if missing:
        raise WhyformerError(f"{where} has no {' and no '.join(missing)}.")
    return [row[name] for name in names]


def rows_of(table: Any, name: str, where: str) -> list[Any]:
    """The list of this name in a JSON object."""
    (rows,) = fields(table, (name,), where)
    if not isinstance(rows, list):
        raise WhyformerError(f"{name} of {where} is not a list.")
    return rows


def _open_image(content: bytes, name: str) -> Image.Image:
    try:
        with open_image(BytesIO(content)) as image:
            image.load()
            return image
    except WhyformerError as error:
        raise WhyformerError(f"{name!r}: {error}") from error

"""Uploaded files, checked before they are read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gradio.utils import get_upload_folder
from PIL import Image, UnidentifiedImageError

from whyformer.app.bundled_examples import CAT, scene_files
from whyformer.app.limits import Limits
from whyformer.errors import WhyformerError
from whyformer.inputs.read import Regions, image_of, regions_size


def is_sent_file(path: Any) -> bool:
    """Whether a path, with links resolved, is an upload, a download or an example.

    Each upload and download has its own folder with a name that only its visitor knows.
    """
    if not isinstance(path, str) or "\0" in path:
        return False
    file, folder = Path(os.path.realpath(path)), Path(os.path.realpath(get_upload_folder()))
    examples = [Path(os.path.realpath(example)) for example in (CAT, *scene_files())]
    return file in examples or file.parent.parent == folder


def read_upload(path: str | None, limits: Limits) -> Image.Image:
    """Read an uploaded picture, checking its size before its pixels are read."""
    file = sent_file(path, "Choose a picture first: drop a file, paste one, or click an example.", limits)
    try:
        with Image.open(file) as opened:
            width, height = opened.size
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError) as error:
        raise WhyformerError(f"{file.name} is not a readable picture: choose a JPEG, PNG or WebP file.") from error
    check_pixels(file.name, width, height, limits)
    with upload_errors(file):
        return image_of(file)


def regions_of_file(path: str | None, missing: str, limits: Limits) -> Regions:
    """Read uploaded regions, checking their number and the size of their picture first."""
    file = sent_file(path, missing, limits)
    with upload_errors(file):
        width, height, count = regions_size(file, str(file))
        check_pixels(file.name, width, height, limits)
        limits.check_count("regions", count, limits.regions)
        return Regions.load(file)


def check_pixels(name: str, width: int, height: int, limits: Limits) -> None:
    """Raise if a picture has too many pixels."""
    if width * height > limits.pixels:
        raise WhyformerError(
            f"{name} has {width:,} × {height:,} pixels, but this page takes at most {limits.pixels // 10**6} "
            "million: make it smaller first."
        )


@contextmanager
def upload_errors(file: Path) -> Iterator[None]:
    """Report errors under the file name the visitor knows, not the server's path."""
    try:
        yield
    except WhyformerError as error:
        raise WhyformerError(str(error).replace(str(file), file.name)) from error


def sent_file(path: str | None, missing: str, limits: Limits) -> Path:
    """Check that an uploaded file exists and is not too large."""
    if not path:
        raise WhyformerError(missing)
    file = Path(path)
    if not file.is_file():
        raise WhyformerError("The file is no longer kept here: upload it again.")
    limits.check_file(file)
    return file

"""Zip files of pictures, checked by their directory before anything is unpacked."""

from __future__ import annotations

import shutil
import stat
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo

from PIL import Image, UnidentifiedImageError

from whyformer.app.limits import Limits
from whyformer.app.uploads import check_pixels
from whyformer.errors import WhyformerError
from whyformer.files import IMAGE_SUFFIXES

MOST_ARCHIVED = 5000  # of any kind
LONGEST_ENTRY, DEEPEST = 200, 6  # characters of an entry's name, and its parts
KNOWN_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
SYSTEM_FOLDER = "__MACOSX"


def unpack_pictures(archive: Path, folder: Path, limits: Limits) -> Path:
    """Unpack the pictures of a zip file into an empty folder, and return the folder with their classes.

    Everything that the directory of the archive says is checked first: how many pictures, their sizes unpacked, and
    that their names stay in the folder. A picture that is larger than it says is refused while it is unpacked.
    """
    try:
        with ZipFile(archive) as opened:
            entries = picture_entries(opened.infolist(), archive.name, limits)
            for entry in entries:
                _unpack(opened, entry, folder, archive.name)
    except WhyformerError:
        raise
    except (BadZipFile, NotImplementedError, EOFError, ValueError, RuntimeError, OSError) as error:
        raise WhyformerError(f"{archive.name} is not a readable zip file: pack the pictures again.") from error
    for entry in entries:
        _check_picture(folder / entry.filename, entry.filename, limits)
    return _inner_folder(folder)


def picture_entries(entries: Sequence[ZipInfo], name: str, limits: Limits) -> list[ZipInfo]:
    """The pictures among the entries of an archive; raise if they are too many, too large, or lead elsewhere."""
    if len(entries) > MOST_ARCHIVED:
        raise WhyformerError(f"{name} has {len(entries):,} entries, but this page takes at most {MOST_ARCHIVED:,}.")
    for entry in entries:
        _check_name(entry, name)
    pictures = [entry for entry in entries if not entry.is_dir() and _is_picture(entry)]
    if not pictures:
        raise WhyformerError(f"{name} has no pictures: pack a folder of them for each class.")
    if len({entry.filename.casefold() for entry in pictures}) < len(pictures):
        raise WhyformerError(f"{name} has two pictures of the same name: rename one.")
    limits.check_count("pictures and masks", len(pictures), 2 * limits.survey_pictures)
    for entry in pictures:
        _check_entry(entry, limits)
    total = sum(entry.file_size for entry in pictures)
    if total > limits.unpacked_bytes:
        raise WhyformerError(
            f"{name} has {total / (1 << 20):.0f} MB unpacked, but this page takes at most "
            f"{limits.unpacked_bytes >> 20} MB: leave some pictures out."
        )
    return pictures


def _check_name(entry: ZipInfo, archive: str) -> None:
    """Raise if the name could lead out of the folder, or if the entry is a link."""
    path = PurePosixPath(entry.filename)
    is_contained = not path.is_absolute() and ".." not in path.parts and "\\" not in entry.filename
    is_plain = entry.filename.isprintable() and ":" not in entry.filename and len(path.parts) <= DEEPEST
    is_link = stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR)
    if not is_contained or not is_plain or is_link or len(entry.filename) > LONGEST_ENTRY:
        raise WhyformerError(f"{archive} has an entry {entry.filename!r:.60}, which is not a plain file in a folder.")


def _is_picture(entry: ZipInfo) -> bool:
    path = PurePosixPath(entry.filename)
    is_hidden = any(part.startswith(".") or part == SYSTEM_FOLDER for part in path.parts)
    return not is_hidden and path.suffix.lower() in IMAGE_SUFFIXES


def _check_entry(entry: ZipInfo, limits: Limits) -> None:
    if entry.flag_bits & 0x1 or entry.compress_type not in KNOWN_METHODS:
        raise WhyformerError(f"{entry.filename} is encrypted or packed in an unusual way: pack it as a plain zip file.")
    if entry.file_size > limits.file_bytes:
        raise WhyformerError(
            f"{entry.filename} has {entry.file_size / (1 << 20):.0f} MB unpacked, but this page takes at most "
            f"{limits.file_bytes >> 20} MB per picture."
        )


def _unpack(archive: ZipFile, entry: ZipInfo, folder: Path, name: str) -> None:
    """Write one picture; zipfile reads no more than the size that the directory says, and checks its checksum."""
    path = folder / entry.filename
    if not path.resolve().is_relative_to(folder.resolve()):
        raise WhyformerError(f"{name} has an entry {entry.filename!r:.60}, which leads out of its folder.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as packed, path.open("xb") as unpacked:
        shutil.copyfileobj(packed, unpacked)


def _check_picture(path: Path, name: str, limits: Limits) -> None:
    """Check the number of pixels by the header."""
    try:
        with Image.open(path) as opened:
            width, height = opened.size
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError) as error:
        raise WhyformerError(f"{name} is not a readable picture: leave it out.") from error
    check_pixels(name, width, height, limits)


def _inner_folder(folder: Path) -> Path:
    """The folder itself, or the one folder that it consists of if that has folders only."""
    inside = list(folder.iterdir())
    if len(inside) == 1 and inside[0].is_dir() and all(path.is_dir() for path in inside[0].iterdir()):
        return inside[0]
    return folder

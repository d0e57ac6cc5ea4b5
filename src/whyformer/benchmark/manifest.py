"""The manifest of a run: the SHA-256 of each file, written after them, to detect damage."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from whyformer.errors import WhyformerError
from whyformer.files import write_whole

MANIFEST = "manifest.sha256"  # in the format of sha256sum, so that `sha256sum -c` checks it too
MANIFEST_ENTRY = re.compile(r"([0-9a-f]{64})  (suite\.json|[a-z]+/[0-9]{5,}(?:_[0-9]+)?\.parquet)")
Manifest = dict[str, str]  # the digest of each file, by its path inside the folder


def read_manifest(folder: Path) -> Manifest | None:
    """The digests of a run's files; None without a manifest."""
    place = folder / MANIFEST
    if not place.is_file():
        return None
    entries = [
        MANIFEST_ENTRY.fullmatch(line) for line in place.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    if not entries or None in entries:
        raise WhyformerError(f"{str(folder)!r} is damaged: {MANIFEST} cannot be read. {REDO}")
    return {entry[2]: entry[1] for entry in entries if entry is not None}


REDO = "`whyformer evaluate` with the same suite redoes what is damaged."


def write_manifest(folder: Path, manifest: Mapping[str, str]) -> None:
    lines = (f"{digest}  {name}\n" for name, digest in sorted(manifest.items()))
    write_whole(folder / MANIFEST, "".join(lines).encode())


def content_digest(path: Path) -> str | None:
    """The SHA-256 of a file's current bytes; None if it does not exist."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def damaged_files(folder: Path, manifest: Mapping[str, str]) -> dict[str, str]:
    """The files that differ from the manifest, with the problem of each."""
    digests = {name: content_digest(folder / name) for name in manifest}
    return {
        name: "is missing" if digests[name] is None else "does not match its digest"
        for name, digest in manifest.items()
        if digests[name] != digest
    }

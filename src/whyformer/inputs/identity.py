"""Identify an example in plain data: enough to tell it from any other, and to restore it.

Texts are kept verbatim; files and objects such as images by their SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from whyformer.errors import WhyformerError, with_article
from whyformer.files import file_digest
from whyformer.inputs.candidates import Candidates
from whyformer.inputs.modality import known_modalities
from whyformer.inputs.read import check_file, names_file

Identity = Mapping[str, Any]


@dataclass(frozen=True)
class RestoredExample:
    """A restored example, and how it differs from the one that was recorded."""

    example: Any
    differences: tuple[str, ...]


def identity_of(example: Any) -> dict[str, Any]:
    """The kind of an example, its digest, and its path or text."""
    match example:
        case bool() | int() | float() | None:
            return {"kind": "value", "value": example}
        case Path() | str() if names_file(example):  # a string that names a file is not a text
            return {"kind": "file", "path": str(example), "sha256": file_digest(Path(example))}
        case str():
            return {"kind": "text", "text": example, "sha256": hashlib.sha256(example.encode()).hexdigest()}
        case Candidates(labels=labels, template=template):
            return {"kind": "candidates", "labels": list(labels), "template": template}
        case Mapping():
            return {"kind": "object", "items": {str(name): identity_of(value) for name, value in example.items()}}
        case tuple() | list():
            return {"kind": type(example).__name__, "items": [identity_of(value) for value in example]}
    for name, of in _by_digest().items():
        if isinstance(example, of.types):
            return {"kind": name, "sha256": of.digest(example)}
    raise WhyformerError(f"{with_article(type(example).__name__).capitalize()} cannot be kept in an audit file.")


def restore_example(kept: Any, given: Sequence[Any] = ()) -> RestoredExample:
    """Restore a recorded example; `given` supplies, in order, everything in it that is not text."""
    stock = iter(given)
    differences: list[str] = []
    example = _find(kept, stock, differences)
    surplus = len(list(stock))
    if surplus:
        raise WhyformerError(f"{surplus} of {len(given)} inputs are not needed: texts are in the audit file itself.")
    return RestoredExample(example, tuple(differences))


def _find(kept: Any, stock: Iterator[Any], differences: list[str]) -> Any:
    match kept:
        case {"kind": "value", "value": value}:
            return value
        case {"kind": "text", "text": str(text), "sha256": str(digest)}:
            now = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            _compare("the text in the audit file", digest, now, differences)
            return text
        case {"kind": "candidates", "labels": list(labels), "template": str(template)}:
            return Candidates(tuple(labels), template)
        case {"kind": "object", "items": dict(items)}:
            return {name: _find(value, stock, differences) for name, value in items.items()}
        case {"kind": "tuple" | "list" as kind, "items": list(items)}:
            values = [_find(value, stock, differences) for value in items]
            return tuple(values) if kind == "tuple" else values
        case {"kind": "file", "path": str(path), "sha256": str(digest)}:
            return _find_file(Path(next(stock, path)), digest, differences)
        case {"kind": str(kind), "sha256": str(digest)} if kind in (kinds := _by_digest()):
            example = next(stock, None)
            if example is None:
                raise WhyformerError(
                    f"The {kind} is in the audit file by its digest alone: give it by --input (inputs=[…])."
                )
            _compare(f"the {kind} given", digest, kinds[kind].digest(example), differences)
            return example
    raise WhyformerError(f"its input is {kept!r:.60}, which is not a valid example")


def _find_file(path: Path, digest: str, differences: list[str]) -> Path:
    if not path.exists():
        raise WhyformerError(f"No file {str(path)!r}, which was explained: give it by --input (inputs=[…]).")
    check_file(path)
    _compare(f"the file {str(path)!r}", digest, file_digest(path), differences)
    return path


def _compare(what: str, kept: str, now: str, differences: list[str]) -> None:
    if kept != now:
        differences.append(f"{what} has SHA-256 {now[:12]}…, kept was {kept[:12]}…")


def _by_digest() -> dict[str, _ByDigest]:
    """Examples recorded by digest alone, by kind: objects of the modalities, and arrays."""
    kinds = {
        modality.noun: _ByDigest(modality.types, partial(_digest, modality.read, modality.arrays))
        for modality in known_modalities().values()
        if modality.types and modality.read is not None and modality.arrays is not None
    }
    return kinds | {"array": _ByDigest((np.ndarray,), _array_digest)}


@dataclass(frozen=True)
class _ByDigest:
    """Examples recorded by digest alone: their types, and the function that computes it."""

    types: tuple[type, ...]
    digest: Callable[[Any], str]


def _digest(read: Callable[[Any], Any], arrays: Callable[[Any], Sequence[Any]], example: Any) -> str:
    return _array_digest(*arrays(read(example)))


def _array_digest(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in map(np.ascontiguousarray, arrays):
        digest.update(f"{array.dtype.name} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()


def example_file_name(example: Any) -> str:
    """The name of the file that an example, or the first of a pair, is read from; empty for others."""
    first = example[0] if isinstance(example, tuple) and example else example
    return Path(first).name if isinstance(first, (str, Path)) and names_file(first) else ""

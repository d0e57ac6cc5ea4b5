"""The header of a GGUF file, checked against the file's size before any weight is read."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from whyformer.errors import WhyformerError
from whyformer.extras import extra

SUFFIX, MAGIC, VERSIONS = ".gguf", b"GGUF", (2, 3)
MOST_TENSORS, MOST_ENTRIES, MOST_ITEMS = 100_000, 10_000, 10_000_000
LONGEST_TEXT = 2**24  # bytes of a name or a value, such as a chat template
DIMENSIONS = 4
DEFAULT_ALIGNMENT = 32
_NUMBERS = dict(enumerate("B b H h I i f ?".split())) | {10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9


@dataclass(frozen=True)
class GgufHeader:
    """The metadata and the tensors of a GGUF file.

    Attributes:
        entries: Its metadata by key; for a list, only its length.
        shapes: The shape of each tensor, by name.
        types: How many tensors are stored in each type, the most frequent first: {"Q4_K": 169, "F32": 141}.
    """

    entries: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, int]

    @property
    def architecture(self) -> str:
        return str(self.entries.get("general.architecture", ""))

    @property
    def elements(self) -> int:
        return sum(map(math.prod, self.shapes.values()))

    @property
    def is_quantized(self) -> bool:
        return any(not name.startswith(("F", "BF")) for name in self.types)


def read_header(path: Path) -> GgufHeader:
    """Read the header of a GGUF file, checking every size in it against the size of the file."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            return _header(file, size)
    except (ValueError, struct.error, OverflowError) as error:
        raise WhyformerError(f"Cannot load {str(path)!r}: it is not a valid GGUF file ({error}).") from error


def _header(file: BinaryIO, size: int) -> GgufHeader:
    if file.read(4) != MAGIC:
        raise ValueError("it does not begin with GGUF")
    version, tensors, count = _unpack(file, "IQQ")
    if version not in VERSIONS:
        raise ValueError(f"version {version}; known are {' and '.join(map(str, VERSIONS))}")
    _check("tensors", tensors, MOST_TENSORS)
    _check("entries", count, MOST_ENTRIES)
    entries = {}
    for _ in range(count):
        key = _text(file)
        (kind,) = _unpack(file, "I")
        entries[key] = _value(file, kind)
    stored: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(tensors):
        name = _text(file)
        (dimensions,) = _unpack(file, "I")
        _check(f"dimensions of {name}", dimensions, DIMENSIONS)
        shape = _unpack(file, f"{dimensions}Q")
        stored.append((name, tuple(reversed(shape)), *_unpack(file, "IQ")))
    alignment = entries.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment {alignment!r:.40}")
    start = -(-file.tell() // alignment) * alignment
    types: Counter[str] = Counter()
    for name, shape, kind, offset in stored:
        title, stored_bytes = _stored(name, shape, kind)
        if start + offset + stored_bytes > size:
            raise ValueError(f"{name} reaches beyond the end of the file")
        types[title] += 1
    shapes = {name: shape for name, shape, _, _ in stored}
    if len(shapes) < len(stored):
        raise ValueError("a tensor occurs twice")
    return GgufHeader(entries, shapes, dict(types.most_common()))


def _stored(name: str, shape: tuple[int, ...], kind: int) -> tuple[str, int]:
    """The name of a tensor's type, and its size in bytes."""
    constants = extra("gguf", "gguf").constants
    try:
        title = constants.GGMLQuantizationType(kind)
    except ValueError as error:
        raise ValueError(f"{name} has type {kind}, which is not known") from error
    block, block_bytes = constants.GGML_QUANT_SIZES[title]
    return title.name, -(-math.prod(shape) // block) * block_bytes


def _value(file: BinaryIO, kind: int, *, is_item: bool = False) -> Any:
    if kind == _TEXT:
        return _text(file)
    if kind in _NUMBERS:
        return _unpack(file, _NUMBERS[kind])[0]
    if kind != _ARRAY or is_item:
        raise ValueError(f"a value has type {kind}, which is not known")
    item, count = _unpack(file, "IQ")
    _check("items of a list", count, MOST_ITEMS)
    if item in _NUMBERS:
        _unpack(file, f"{count}{_NUMBERS[item]}")
    else:
        for _ in range(count):
            _value(file, item, is_item=True)
    return count


def _text(file: BinaryIO) -> str:
    (length,) = _unpack(file, "Q")
    _check("bytes of a text", length, LONGEST_TEXT)
    (text,) = _unpack(file, f"{length}s")
    return text.decode("utf-8")  # type: ignore[no-any-return]


def _unpack(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    layout = f"<{layout}"
    content = file.read(struct.calcsize(layout))
    if len(content) < struct.calcsize(layout):
        raise ValueError("it ends inside its header")
    return struct.unpack(layout, content)


def _check(what: str, count: int, most: int) -> None:
    if count > most:
        raise ValueError(f"{count} {what}, at most {most} are read")

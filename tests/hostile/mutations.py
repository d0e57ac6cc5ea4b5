"""A seeded generator of damaged and forged files: changes of a document's fields, and of a file's bytes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

ODD = [
    None,
    True,
    0,
    -1,
    3,
    2**70,
    10**400,
    0.5,
    -1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\0",
    "\ud800",
    "a\nb",
    "../../etc/passwd",
    "https://example.org/x",
    "x" * 5000,
    [],
    {},
    [[]],
    [None],
    {"a": 1},
]
LETTERS = b"0123456789.-+eE[]{},:\\/truefalsn \n\t\x00\xff\xc3abcXYZ=#'"


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a document, the document itself left out."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*place, key)
        yield from places(one, (*place, key))


def at(document: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        document = document[step]
    return document


def forged(document: Any, count: int, seed: int) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """Documents with one field changed: a name for the change, where it is, and the document.

    Fields are drawn by their names first: of a thousand scores no more are changed than of one target.
    """
    draw = random.Random(seed)
    by_name: dict[Any, list[tuple[Any, ...]]] = {}
    for place in places(document):
        by_name.setdefault(next((step for step in reversed(place) if isinstance(step, str)), ""), []).append(place)
    names = sorted(by_name, key=str)
    for number in range(count):
        changed = document
        while changed == document:
            place = draw.choice(by_name[names[number % len(names)]])
            changed = copy.deepcopy(document)
            name = _change(at(changed, place[:-1]), place[-1], draw)
        yield f"{name} at {'.'.join(map(str, place))}", place, changed


def _change(parent: Any, key: Any, draw: random.Random) -> str:
    value = parent[key]
    kind = draw.choice(["odd", "odd", "delete", "tweak", "tweak", "twice", "rename"])
    if kind == "delete":
        del parent[key]
    elif kind == "rename" and isinstance(parent, dict):
        parent[f"{key}_"] = parent.pop(key)
    elif kind == "twice" and isinstance(parent, list):
        parent.insert(key, value)
    elif kind == "tweak" and isinstance(value, bool):
        parent[key] = not value
    elif kind == "tweak" and isinstance(value, (int, float)):
        parent[key] = draw.choice([value + 1, -value, value * 1.5, value + 0.125, str(value)])
    elif kind == "tweak" and isinstance(value, str):
        parent[key] = draw.choice([value + "x", value[::-1], value.upper(), value[:-1]])
    elif kind == "tweak" and isinstance(value, list) and value:
        parent[key] = draw.choice([value[::-1], value[:-1], value + value[-1:]])
    else:
        kind, parent[key] = "odd", copy.deepcopy(draw.choice(ODD))
    return kind


def as_text(document: Any) -> str:
    """The document as a file has it; numbers that are none and lone surrogates as Python writes them."""
    return json.dumps(document, indent=1)


def damaged(content: bytes, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """The bytes of a file with a few of them flipped, cut out, put in, doubled or moved."""
    draw = random.Random(seed)
    for _ in range(count):
        start = draw.randrange(len(content))
        end = min(len(content), start + draw.choice([1, 1, 2, 8, 64]))
        kind = draw.choice(["flip", "cut", "insert", "double", "end", "letter"])
        middle = {
            "flip": bytes(byte ^ (1 << draw.randrange(8)) for byte in content[start:end]),
            "cut": b"",
            "insert": bytes(draw.choice(LETTERS) for _ in range(end - start)) + content[start:end],
            "double": content[start:end] * 2,
            "end": b"",
            "letter": bytes([draw.choice(LETTERS)]),
        }[kind]
        end = len(content) if kind == "end" else start + 1 if kind == "letter" else end
        yield f"{kind} at byte {start}", content[:start] + middle + content[end:]

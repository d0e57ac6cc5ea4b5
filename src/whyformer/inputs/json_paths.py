"""The values in a JSON text, by path, with their exact characters."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

MOST_VALUES = 2000
_SPACE = re.compile(r"[ \t\n\r]*")
_NAME = re.compile(r"[A-Za-z_]\w*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class JsonValue:
    """A value within a JSON text.

    Attributes:
        path: Its path, such as `[3].body`; empty for the whole.
        start: Its first character; a text is without its quotes.
        end: The end of its range, exclusive.
        parent: The index of the object or list that contains it; None for the whole.
        is_text: Whether it is a text.
    """

    path: str
    start: int
    end: int
    parent: int | None = None
    is_text: bool = False


def json_values(text: str) -> list[JsonValue]:
    """All values of a JSON object or list, each before its members; none if the text is not such JSON."""
    start, values = _skip(text, 0), list[JsonValue]()
    if text[start : start + 1] not in ("{", "["):
        return []
    try:
        json.loads(text)
        _read(text, start, "", None, values)
    except (ValueError, RecursionError):
        return []
    return values


def _read(text: str, start: int, path: str, parent: int | None, values: list[JsonValue]) -> int:
    """Append the value that begins at a character, then its members; return where it ends."""
    if len(values) >= MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES} values")
    number = len(values)
    if text[start] not in "{[":
        _, end = _DECODER.raw_decode(text, start)
        is_text = text[start] == '"'
        values.append(JsonValue(path, start + is_text, end - is_text, parent, is_text))
        return end
    values.append(JsonValue(path, start, start, parent))
    is_object, place, member = text[start] == "{", _skip(text, start + 1), 0
    while text[place] not in "}]":
        step = f"[{member}]"
        if is_object:
            name, end = _DECODER.raw_decode(text, place)
            step = f".{name}" if _NAME.fullmatch(name) else f"[{json.dumps(name, ensure_ascii=False)}]"
            place = _skip(text, _skip(text, end) + 1)  # after the colon
        place = _skip(text, _read(text, place, path + step, number, values))
        place = _skip(text, place + 1) if text[place] == "," else place
        member += 1
    values[number] = JsonValue(path, start, place + 1, parent)
    return place + 1


def _skip(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return place if match is None else match.end()

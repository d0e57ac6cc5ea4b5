"""Where a chat template writes given values: exact character ranges, found by rendering it with marks."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from whyformer.inputs.sentences import CharRange

Escape = Callable[[str], str]
QUOTE_MARKS = "\"'"
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def _unchanged(text: str) -> str:
    return text


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _ascii(text: str) -> str:
    return json.dumps(text)[1:-1]


ESCAPES: tuple[Escape, ...] = (_unchanged, _escaped, _ascii)


@dataclass(frozen=True)
class TemplateMarks:
    """Words that occur in none of the given texts, one for each number."""

    prefix: str

    @classmethod
    def apart_from(cls, text: str) -> TemplateMarks:
        """TemplateMarks that do not occur in a text."""
        return next(cls(prefix) for prefix in (f"mark{salt}x" for salt in count()) if prefix not in text)

    def __call__(self, number: int) -> str:
        return f"{self.prefix}{number}e"

    @property
    def pattern(self) -> re.Pattern[str]:
        """A pattern that finds the marks, with their numbers as its group."""
        return re.compile(rf"{self.prefix}(\d+)e")


@dataclass(frozen=True)
class Slot:
    """Where a template writes a value.

    Attributes:
        number: The number of the value.
        start: Its first character in the rendered text.
        end: The end of its range, exclusive.
        mark: The range of its mark in the text rendered with marks.
        quotes: The number of quotes around the mark that are not around the value: 1 or 0 on each side.
        first: The first character of a text that is kept; white space before it may be stripped.
        escape: How the characters of a text are written.
    """

    number: int
    start: int
    end: int
    mark: CharRange
    quotes: int = 0
    first: int = 0
    escape: Escape = _unchanged

    def place(self, value: str, offset: int) -> int:
        """The position in the rendered text of a character of a text."""
        return min(self.end, self.start + len(self.escape(value[self.first : max(self.first, offset)])))


@dataclass(frozen=True)
class Alignment:
    """A rendered text, the same with marks, and the position of each value."""

    rendered: str
    skeleton: str
    slots: tuple[Slot, ...]  # in order of the text; a value that is written twice has two

    def of(self, number: int) -> Slot | None:
        """The first place of a value; None if the template leaves it out."""
        return next((slot for slot in self.slots if slot.number == number), None)

    def place(self, position: int) -> int:
        """The position in the rendered text of a character of the text with marks, outside the marks."""
        number = bisect_right([slot.mark[1] for slot in self.slots], position) - 1
        if number < 0:
            return position
        slot = self.slots[number]
        return slot.end + position - slot.mark[1] - slot.quotes

    def enclosing(self, numbers: Sequence[int]) -> CharRange:
        """The largest object in braces that contains these values and no others, or else their lines."""
        own = [slot for slot in self.slots if slot.number in set(numbers)]
        own = own[: next((at for at, one in enumerate(own[1:], 1) if self._others_between(own[at - 1], one)), None)]
        first, last = own[0].mark[0], own[-1].mark[1]
        low = max((slot.mark[1] for slot in self.slots if slot.mark[1] <= first), default=0)
        high = min((slot.mark[0] for slot in self.slots if slot.mark[0] >= last), default=len(self.skeleton))
        start, end = _braces(self.skeleton, (first, last), (low, high))
        if (start, end) == (first, last):
            start = max(low, self.skeleton.rfind("\n", low, first) + 1)
            line_end = self.skeleton.find("\n", last, high)
            end = high if line_end < 0 else line_end
        return self.place(start), self.place(end)

    def _others_between(self, one: Slot, other: Slot) -> bool:
        return any(one.mark[1] <= slot.mark[0] and slot.mark[1] <= other.mark[0] for slot in self.slots)


def align_slots(rendered: str, skeleton: str, values: Sequence[Any], marks: TemplateMarks) -> Alignment | None:
    """Find each value of a rendered text, given the same text with marks; None if the two do not fit."""
    matches = list(marks.pattern.finditer(skeleton))
    edges = [0, *(edge for match in matches for edge in match.span()), len(skeleton)]
    pieces = [skeleton[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
    slots, place, skipped = list[Slot](), 0, 0
    for number, match in enumerate(matches):
        before, after = pieces[number][skipped:], pieces[number + 1]
        value = int(match[1])
        is_last = number == len(matches) - 1
        line = rendered[:place].rpartition("\n")[2] + before
        indent = re.match(r"[ \t]*", line.rpartition("\n")[2])
        for text, quotes, first, escape in _versions(values[value], indent[0] if indent else ""):
            if quotes and not (before[-1:] == after[:1] and before[-1:] in QUOTE_MARKS and before):
                continue
            head, tail = before[: len(before) - quotes], after[quotes:]
            if not is_last and tail[-1:] in QUOTE_MARKS:
                tail = tail[:-1]  # the next value may be without it
            if rendered.startswith(head + text + tail, place):
                start = place + len(head)
                slots.append(Slot(value, start, start + len(text), match.span(), quotes, first, escape))
                place, skipped = start + len(text), quotes
                break
        else:
            return None
    if rendered[place:] != pieces[-1][skipped:]:
        return None
    return Alignment(rendered, skeleton, tuple(slots))


def _versions(value: Any, indent: str) -> Iterator[tuple[str, int, int, Escape]]:
    """How a value may be written: the text, quotes of its mark that it lacks, its first character, its escape."""
    if isinstance(value, str):
        for kept in dict.fromkeys((value, value.rstrip(), value.lstrip(), value.strip())):
            first = len(value) - len(value.lstrip()) if not value.startswith(kept) else 0
            for escape in ESCAPES:
                yield escape(kept), 0, first, escape
        yield repr(value), 1, 0, _unchanged
        return
    texts = [
        json.dumps(value, ensure_ascii=ascii_only, separators=separators)
        for ascii_only in (False, True)
        for separators in (None, (",", ":"))
    ]
    texts += [json.dumps(value, ensure_ascii=False, indent=size).replace("\n", f"\n{indent}") for size in (2, 4)]
    for text in dict.fromkeys((*texts, repr(value))):
        yield text, 1, 0, _unchanged
        yield text, 0, 0, _unchanged


def _braces(text: str, inside: CharRange, bounds: CharRange) -> CharRange:
    """The outermost braces around a range within bounds, or the range itself; strings are skipped."""
    low, high = bounds
    quiet = _STRING.sub(lambda match: "_" * len(match[0]), text[low:high])
    start, end = inside
    opened = list[int]()
    for place, character in enumerate(quiet, low):
        if character == "{":
            opened.append(place)
        elif character == "}" and opened:
            first = opened.pop()
            if first < inside[0] and place >= inside[1]:
                start, end = first, place + 1
    return start, end

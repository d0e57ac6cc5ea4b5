"""The sources of an action as a tree: system prompt, schemas, messages; results of tools down to their sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from whyformer.errors import WhyformerError, nearest
from whyformer.inputs.json_paths import json_values
from whyformer.inputs.prompt_tokens import tokens_on
from whyformer.inputs.sentences import CharRange, sentence_ranges
from whyformer.inputs.tool_prompt import ToolPrompt, ToolPromptPart

Trust = Literal["request", "trusted", "untrusted", "model"]
ActionSourceKind = Literal[
    "system", "tool schema", "user", "assistant", "call", "tool result", "value", "block", "line", "sentence"
]
DEFAULT_TRUST: Mapping[str, Trust] = {
    "system": "trusted",
    "tool schema": "trusted",
    "user": "request",
    "assistant": "model",
    "call": "model",
    "tool result": "untrusted",
}
_ESCAPED_BREAK = re.compile(r"(?:\\r)?\\n")


@dataclass(frozen=True)
class ActionSource:
    """A part of a conversation that an action may depend on.

    Attributes:
        kind: "system", "tool schema", "user", "assistant", "call" or "tool result"; within a result "value" (of JSON),
            "block", "line" or "sentence".
        name: Its name: the role or the tool, and its path within a result, as in `read_mail [3].body, sentence 2`.
        trust: "request" for the user's messages, "trusted" for the developer's, "untrusted" for the results of tools,
            "model" for what the model wrote itself.
        parent: The index of the source that contains it; None for a whole message, schema or call.
        start: Its first character in the prompt's text.
        end: The end of its range, exclusive.
        text: Its characters.
        tokens: The indices of its tokens in the prompt.
    """

    kind: ActionSourceKind
    name: str
    trust: Trust
    parent: int | None
    start: int
    end: int
    text: str
    tokens: tuple[int, ...] = ()


def action_sources(prompt: ToolPrompt, trust: Mapping[str, str] | None = None) -> tuple[ActionSource, ...]:
    """The sources of a conversation, each before those within it.

    `trust` gives other labels to a kind, a tool or a path: {"user": "untrusted", "read_file": "trusted"}.
    """
    sources: list[ActionSource] = []
    documents = {one.start: one.name for one in prompt.prompt.documents}
    for part in prompt.parts:
        kind = _kind(part)
        name = documents.get(part.start, part.name) if kind == "tool result" else part.name or part.role
        text = prompt.prompt.text[part.start : part.end]
        number = len(sources)
        sources.append(ActionSource(kind, name, DEFAULT_TRUST[kind], None, part.start, part.end, text))
        if kind == "tool result":
            sources += _within(part, name, number, prompt)
    if trust is not None and not isinstance(trust, Mapping):
        raise WhyformerError(f"trust={trust!r:.60}: labels by name, as in {{'read_mail': 'trusted'}}.")
    return tuple(_with_tokens(_labelled(sources, trust or {}), prompt))


def labelled_ranges(sources: Sequence[ActionSource], trust: Trust) -> list[CharRange]:
    """The ranges of all sources with a label, without those inside of others."""
    own = [one for one in sources if one.trust == trust]
    return [(one.start, one.end) for one in own if one.parent is None or sources[one.parent].trust != trust]


def _kind(part: ToolPromptPart) -> ActionSourceKind:
    if part.kind != "message":
        return part.kind
    kinds: Mapping[str, ActionSourceKind] = {"tool": "tool result", "user": "user", "assistant": "assistant"}
    return kinds.get(part.role, "system")


def _within(part: ToolPromptPart, name: str, number: int, prompt: ToolPrompt) -> Iterator[ActionSource]:
    """The sources within a result: values of JSON, or blocks of lines; sentences of both."""
    pieces = _json_pieces(part.content) or _line_pieces(part.content)
    for kind, label, parent, start, end in pieces:
        first, last = part.place(start), part.place(end)
        text = prompt.prompt.text[first:last]
        above = number if parent is None else number + 1 + parent
        separator = "" if label.startswith("[") else " "
        yield ActionSource(kind, f"{name}{separator}{label}", "untrusted", above, first, last, text)


_Piece = tuple[ActionSourceKind, str, int | None, int, int]  # kind, label, parent, start, end


def _json_pieces(text: str) -> list[_Piece]:
    """The values of JSON, except for the whole, with the sentences of texts."""
    pieces: list[_Piece] = []
    values = json_values(text)
    numbers: dict[int, int] = {}
    for number, value in enumerate(values):
        if value.parent is None or value.start == value.end:
            continue
        numbers[number] = len(pieces)
        parent = numbers.get(value.parent)
        pieces.append(("value", value.path, parent, value.start, value.end))
        if value.is_text:
            own = numbers[number]
            pieces += [
                ("sentence", f"{value.path}, sentence {count}", own, value.start + start, value.start + end)
                for count, (start, end) in enumerate(_several(_escaped_sentences(text[value.start : value.end])), 1)
            ]
    return pieces


def _line_pieces(text: str) -> list[_Piece]:
    """Lines, in blocks if the text is a list of items or has blank lines; with the sentences of each."""
    lines = [match.span() for match in re.finditer(r"[^\n]*\S[^\n]*", text)]
    blocks = _blocks(text, lines)
    if len(lines) < 2:
        return [
            ("sentence", f"sentence {count}", None, start, end)
            for count, (start, end) in enumerate(_several(sentence_ranges(text)), 1)
        ]
    pieces: list[_Piece] = []
    count = 0
    for number, block in enumerate(blocks, 1):
        above = None
        if len(blocks) > 1 and len(block) > 1:
            above = len(pieces)
            pieces.append(("block", f"block {number}", None, block[0][0], block[-1][1]))
        for start, end in block:
            count += 1
            own = len(pieces)
            start += len(text[start:end]) - len(text[start:end].lstrip())
            pieces.append(("line", f"line {count}", above, start, end))
            pieces += [
                ("sentence", f"line {count}, sentence {place}", own, start + first, start + last)
                for place, (first, last) in enumerate(_several(sentence_ranges(text[start:end])), 1)
            ]
    return pieces


def _blocks(text: str, lines: Sequence[CharRange]) -> list[list[CharRange]]:
    """Lines in blocks: an item of a list that is not indented begins one, and so does a line after a blank one."""
    blocks: list[list[CharRange]] = []
    for start, end in lines:
        is_first = not blocks or text[start : start + 2] in ("- ", "* ")
        if is_first or "\n\n" in text[blocks[-1][-1][1] : start].replace(" ", ""):
            blocks.append([])
        blocks[-1].append((start, end))
    return blocks


def _escaped_sentences(text: str) -> list[CharRange]:
    """The sentences of a text in JSON, whose line breaks are escaped."""
    edges = [0, *(edge for match in _ESCAPED_BREAK.finditer(text) for edge in match.span()), len(text)]
    return [
        (start + first, start + last)
        for start, end in zip(edges[::2], edges[1::2], strict=True)
        for first, last in sentence_ranges(text[start:end])
    ]


def _several(ranges: Sequence[CharRange]) -> Sequence[CharRange]:
    """Ranges if there are several: a single one is what contains it."""
    return ranges if len(ranges) > 1 else ()


def _labelled(sources: Sequence[ActionSource], trust: Mapping[str, str]) -> list[ActionSource]:
    """Sources with the caller's labels; the parts of one have its label unless they have their own."""
    unused = dict.fromkeys(trust)
    for name, given in trust.items():
        if given not in get_args(Trust):
            raise WhyformerError(f"trust[{name!r:.40}]={given!r:.40}. {nearest(str(given), get_args(Trust))}")
    labelled: list[ActionSource] = []
    for source in sources:
        label: str = source.trust if source.parent is None else labelled[source.parent].trust
        for key in (source.kind, re.sub(r" \d+$", "", source.name), source.name):
            if key in trust:
                label = trust[key]
                unused.pop(key, None)
        labelled.append(replace(source, trust=label))  # type: ignore[arg-type]  # checked above
    if unused:
        names = list(dict.fromkeys(one.name for one in sources if one.parent is None))
        word = next(iter(unused))
        raise WhyformerError(f"trust names {word!r:.60}, which is not a source. {nearest(word, names)}")
    return labelled


def _with_tokens(sources: Sequence[ActionSource], prompt: ToolPrompt) -> Iterator[ActionSource]:
    """Sources with their tokens; those of one level share none."""
    depths: list[int] = []
    for source in sources:
        depths.append(0 if source.parent is None else depths[source.parent] + 1)
    tokens: dict[int, tuple[int, ...]] = {}
    for depth in set(depths):
        numbers = [number for number, own in enumerate(depths) if own == depth]
        numbers.sort(key=lambda number: sources[number].start)
        places = [(sources[number].start, sources[number].end) for number in numbers]
        tokens |= dict(zip(numbers, tokens_on(places, prompt.prompt.tokens, prompt.prompt.text), strict=True))
    for number, source in enumerate(sources):
        yield replace(source, tokens=tokens[number])

"""Transcripts of agents in files: messages with the schemas of the tools."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.errors import WhyformerError, nearest
from whyformer.files import parse_json

TRANSCRIPT_FIELDS = ("messages", "tools", "trust", "call", "contrast", "id")
MOST_TRANSCRIPT_BYTES = 1 << 26
TRANSCRIPT_FORM = 'a list of messages or {"messages", "tools"}'


@dataclass(frozen=True)
class Transcript:
    """A transcript: its name, and the arguments of `explain_action`."""

    name: str
    arguments: Mapping[str, Any]


def read_transcript(path: Path) -> Transcript:
    """Read a .json file: a list of messages, or an object with messages and tools."""
    content = _content(path)
    try:
        return _transcript(parse_json(content), path.stem)
    except json.JSONDecodeError as error:
        raise WhyformerError(
            f"The transcript {str(path)!r} cannot be read: {error}. It is JSON: {TRANSCRIPT_FORM}; a file with one on "
            "each line is read by --batch."
        ) from error
    except ValueError as error:
        raise WhyformerError(f"The transcript {str(path)!r} cannot be read: {error}") from error


def read_transcripts(path: Path) -> tuple[list[Transcript], list[str]]:
    """Read the .json files of a folder, or a .json or .jsonl file; return an error for each that is invalid."""
    transcripts, errors = [], []
    for name, content in _parts(path):
        try:
            transcripts.append(_transcript(parse_json(content), name))
        except ValueError as error:
            errors.append(f"{name}: {error}")
    if not transcripts:
        reason = errors[0] if errors else "there is nothing to explain."
        raise WhyformerError(f"{str(path)!r} has no transcripts: {reason}")
    return transcripts, errors


def _parts(path: Path) -> Iterator[tuple[str, str]]:
    if path.is_dir():
        yield from ((file.stem, _content(file)) for file in sorted(path.glob("*.json")))
        return
    if path.suffix == ".json":
        yield path.stem, _content(path)
        return
    for number, line in enumerate(_content(path).splitlines(), start=1):
        if line.strip():
            yield f"line {number}", line


def _content(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_TRANSCRIPT_BYTES:
            raise WhyformerError(f"{str(path)!r} has more than {MOST_TRANSCRIPT_BYTES >> 20} MiB: split it.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise WhyformerError(f"The transcript {str(path)!r} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise WhyformerError(f"The transcript {str(path)!r} is not UTF-8 text (byte {error.start}).") from error


def _transcript(document: Any, name: str) -> Transcript:
    """The checked arguments of a document; messages and tools are checked where they are used."""
    arguments = {"messages": document} if isinstance(document, list) else document
    if not isinstance(arguments, Mapping) or "messages" not in arguments:
        raise WhyformerError(f"{TRANSCRIPT_FORM} is needed, not {document!r:.40}.")
    unknown = next((field for field in arguments if field not in TRANSCRIPT_FIELDS), None)
    if unknown is not None:
        raise WhyformerError(f"unknown field {unknown!r}. {nearest(unknown, TRANSCRIPT_FIELDS)}")
    given = {field: value for field, value in arguments.items() if field != "id"}
    return Transcript(str(arguments.get("id", name)), given)

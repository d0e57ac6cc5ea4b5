"""Explain many responses one by one: finished lines are kept, and a bad line does not stop the others."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from whyformer.errors import WhyformerError, nearest
from whyformer.files import parse_json
from whyformer.inputs.table_files import TABLE_SUFFIXES, TableFile, read_table
from whyformer.results.response import Response

BATCH_INDEX = "index.jsonl"  # in the folder of the results: the file of each line
BATCH_FIELDS = ("prompt", "messages", "sound", "images", "response", "context", "contrast", "id")
SECONDS_BETWEEN = 10  # lines of progress without a terminal


@dataclass(frozen=True)
class BatchLine:
    """A line of the file, or a row of a table as JSON: its number from 1, and its content."""

    number: int
    text: str

    def case(self) -> dict[str, Any]:
        """The validated prompt with its other fields."""
        try:
            case = parse_json(self.text)
        except json.JSONDecodeError as error:
            raise WhyformerError(f"not JSON ({error.msg}, column {error.colno}).") from error
        except ValueError as error:
            raise WhyformerError(f"not readable ({error}).") from error
        if not isinstance(case, dict):
            raise WhyformerError(f"an object with a prompt is needed, not {self.text[:40]!r}.")
        unknown = next((name for name in case if name not in BATCH_FIELDS), None)
        if unknown is not None:
            raise WhyformerError(f"unknown field {unknown!r}. {nearest(unknown, BATCH_FIELDS)}")
        if sum(name in case for name in ("prompt", "messages", "sound")) != 1:
            raise WhyformerError('one of "prompt", "messages" and "sound" is needed.')
        images = case.get("images") or []
        if not isinstance(images, list) or not all(isinstance(image, str) for image in images):
            raise WhyformerError(f'"images" is a list of files, not {images!r:.40}.')
        if images and "prompt" not in case:
            raise WhyformerError('"images" goes with "prompt": a message has its pictures in it.')
        return case


@dataclass(frozen=True)
class Results:
    """The folder and format of the results, and everything they depend on besides their lines."""

    out: Path
    suffix: str
    settings: Mapping[str, Any]

    def file_of(self, line: BatchLine) -> Path:
        """The result file of a line."""
        return self.out / f"{line.number:06}{self.suffix}"

    def digest(self, line: BatchLine) -> str:
        """A short digest that identifies the inputs of a line's result."""
        content = json.dumps([line.text, self.settings], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def missing(self, lines: Sequence[BatchLine]) -> list[BatchLine]:
        """The lines without a result for the same line and settings."""
        records = _read_index(self.out / BATCH_INDEX)
        return [
            line
            for line in lines
            if records.get(line.number, {}).get("digest") != self.digest(line) or not self.file_of(line).is_file()
        ]

    def write(self, line: BatchLine, case: Mapping[str, Any], response: Response) -> dict[str, Any]:
        """Save the result, add the finished line to the index, and return its record."""
        self.out.mkdir(parents=True, exist_ok=True)
        response.save(self.file_of(line))
        record = {"line": line.number, "file": self.file_of(line).name, "digest": self.digest(line)}
        record |= {"id": case["id"]} if "id" in case else {}
        # After the file, which is written atomically; a record cut off by a kill is ended by a line break.
        with (self.out / BATCH_INDEX).open("a", encoding="utf-8") as index:
            index.write("\n" * is_cut_off(self.out / BATCH_INDEX) + json.dumps(record) + "\n")
        return record


def read_lines(path: Path) -> list[BatchLine]:
    """The non-blank lines of a JSONL file, or the rows of a table with a column per field."""
    if path.suffix.lower() in TABLE_SUFFIXES - {".jsonl"} and path.is_file():
        lines = _table_lines(read_table(path))
    else:
        try:
            texts = path.read_text(encoding="utf-8-sig").split("\n")
        except OSError as error:
            raise WhyformerError(f"--batch {str(path)!r} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise WhyformerError(f"--batch {str(path)!r} is not UTF-8 text (byte {error.start}).") from error
        lines = [BatchLine(number, text.strip()) for number, text in enumerate(texts, start=1) if text.strip()]
    if not lines:
        raise WhyformerError(f"--batch {str(path)!r} has no lines: there is nothing to explain.")
    return lines


def _table_lines(table: TableFile) -> list[BatchLine]:
    """The rows of a table as lines of JSON, without empty fields."""
    unknown = next((name for name in table.columns if name not in BATCH_FIELDS), None)
    if unknown is not None:
        raise WhyformerError(
            f"--batch {str(table.path)!r} has an unknown column {unknown!r}. {nearest(unknown, BATCH_FIELDS)}"
        )
    rows = [{name: value for name, value in row.items() if value not in (None, "")} for row in table.rows]
    for row in rows:
        # A field of a table has one document or picture; JSONL has lists of them.
        row |= {name: [row[name]] for name in ("context", "images") if isinstance(row.get(name), str)}
    return [
        BatchLine(number, json.dumps(row, ensure_ascii=False, default=str)) for number, row in enumerate(rows, start=1)
    ]


def explain_lines(
    lines: Sequence[BatchLine],
    results: Results,
    explain: Callable[[Mapping[str, Any]], Response],
    total: int,
    *,
    quiet: bool,
) -> Iterator[dict[str, Any]]:
    """Explain each line and write its result; yield a record of each, with its error if it failed."""
    with batch_progress(len(lines), total, quiet=quiet) as advance:
        for line in lines:
            try:
                case = line.case()
                response = explain(case)
            except (
                WhyformerError,
                RuntimeError,
            ) as error:  # torch's own, such as out of memory for one line
                yield {"line": line.number, "error": " ".join(str(error).split())}
            else:
                yield results.write(line, case, response)
            advance()


def is_cut_off(path: Path) -> bool:
    """Whether the last line of a file is incomplete."""
    with path.open("rb") as file:
        file.seek(0, 2)
        if file.tell() == 0:
            return False
        file.seek(-1, 2)
        return file.read() != b"\n"


def _read_index(path: Path) -> dict[int, dict[str, Any]]:
    """The last record of each line, ignoring one cut off by a kill."""
    records = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            record = parse_json(text)
            records[record["line"]] = record
        except (ValueError, TypeError, KeyError):
            continue
    return records


@contextmanager
def batch_progress(count: int, total: int, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """Show a progress bar with the time left on a terminal, otherwise occasional lines."""
    terminal, before = Console(stderr=True), total - count
    if terminal.is_terminal and not quiet:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=terminal) as bar:
            task = bar.add_task("Explaining", total=total, completed=before)
            yield lambda: bar.advance(task)
        return
    start = spoken = time.monotonic()
    done = 0

    def advance() -> None:
        nonlocal done, spoken
        done, now = done + 1, time.monotonic()
        if not quiet and now - spoken >= SECONDS_BETWEEN:
            spoken, left = now, (now - start) / done * (count - done)
            terminal.print(f"{before + done} of {total} lines, about {left:.0f} s left", highlight=False)

    yield advance

"""Read tables of examples strictly, so that texts are never merged and never get another's label."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.errors import WhyformerError, nearest
from whyformer.extras import extra
from whyformer.files import parse_json

TableRow = Mapping[str, Any]
# Suffixes that mean a table wherever examples are named; a .json file is a table only where one is expected.
TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".jsonl", ".parquet"})
TEXT = "text"
TEXT_COLUMNS = (
    TEXT, "sentence", "review", "content", "question", "comment", "document", "body", "tweet", "post", "message",
    "passage", "article", "abstract", "prompt", "query",
)  # fmt: skip
LABEL = "label"
QUOTED = re.compile(r'"(?:[^"]|"")*"')
NAME_COLUMN = "name it by --column, in Python by column=, in a suite by text ="


@dataclass(frozen=True, eq=False)
class TableFile:
    """The rows of a file by column; `rows_over_lines` counts those that span several lines of it."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    rows_over_lines: int = 0

    def column(self, name: str) -> str:
        """Validate a column name; the error suggests similar ones."""
        if self.rows and name not in self.columns:
            raise WhyformerError(f"{str(self.path)!r} has no column {name!r}. {nearest(name, self.columns)}")
        return name

    def text_column(self, name: str | None = None) -> str:
        """The text column: the given name, the only column, or the one with a usual name."""
        if name is not None or not self.rows:
            return self.column(name or TEXT)
        if len(self.columns) == 1:
            return self.columns[0]
        usual = [column for column in self.columns if column.strip().casefold() in TEXT_COLUMNS]
        exact = [column for column in usual if column.strip().casefold() == TEXT]
        if len(exact or usual) == 1:
            return (exact or usual)[0]
        which = "may hold the texts" if usual else "has a usual name for texts"
        count = f"{len(usual)} columns" if usual else "No column"
        raise WhyformerError(
            f"{count} of {str(self.path)!r} ({', '.join(usual or self.columns)}) {which}: {NAME_COLUMN}."
        )

    @property
    def label_column(self) -> str | None:
        """The column named "label", if there is one."""
        return next((column for column in self.columns if column.strip().casefold() == LABEL), None)


def read_table(path: Path) -> TableFile:
    """Read a .csv, .tsv, .jsonl, .json or .parquet file."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise WhyformerError(f"{str(path)!r}: {path.suffix!r} is not a table format. Known: {', '.join(FORMATS)}.")
    return FORMATS[suffix](path)


def table_texts(path: Path, column: str | None = None) -> list[str]:
    """Read the text of each row of a table; raise if a row has none."""
    table = read_table(path)
    name = table.text_column(column)
    if not table.rows:
        raise WhyformerError(f"{str(path)!r} has no rows: there is nothing to explain.")
    return [text_in_row(row, name, f"{path.name} row {number}") for number, row in enumerate(table.rows, start=1)]


def text_in_row(row: TableRow, column: str, name: str) -> str:
    value = row.get(column)
    if not isinstance(value, str) or not value.strip():
        raise WhyformerError(f"{name} has no text.")
    return value


def label_in_row(row: TableRow, column: str | None) -> str | None:
    value = None if column is None else row.get(column)
    return None if value is None or value == "" else str(value)


def decoded_text(path: Path) -> str:
    """Read a UTF-8 file, without its byte order mark."""
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise WhyformerError(f"The file {str(path)!r} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise WhyformerError(
            f"The file {str(path)!r} cannot be read: line {line} is not UTF-8 text (byte {error.start}). Convert it "
            "first."
        ) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise WhyformerError(f"Line {line} of {str(path)!r} has a NUL character: save the file as UTF-8 text.")
    return text


def _csv(path: Path) -> TableFile:
    """Read CSV: a quoted field may contain commas, line breaks and doubled quotation marks."""
    reader = csv.reader(io.StringIO(decoded_text(path), newline=""), strict=True)
    lines, first, rows_over_lines = [], 1, 0
    try:
        for fields in reader:
            lines.append((first, fields))
            rows_over_lines += bool(fields) and reader.line_num > first
            first = reader.line_num + 1
    except csv.Error as error:
        raise WhyformerError(
            f"Line {first} of {str(path)!r} opens a quotation mark that does not close its field ({error}): write a "
            'quotation mark inside a text as "" and put quotation marks around the text.'
        ) from error
    way_out = "put quotation marks around a text with commas"
    return _table(path, lines, way_out, rows_over_lines)


def _tsv(path: Path) -> TableFile:
    """Read TSV: one row per line; quotation marks are text unless every field that has any is properly quoted."""
    lines = [
        (number, line.split("\t"))
        for number, line in enumerate(re.split("\r\n|\r|\n", decoded_text(path)), start=1)
        if line
    ]
    if all(QUOTED.fullmatch(field) for _, fields in lines for field in fields if '"' in field):
        lines = [(number, [_unquoted(field) for field in fields]) for number, fields in lines]
    return _table(path, lines, "save texts with tabs or line breaks as CSV or JSONL")


def _unquoted(field: str) -> str:
    return field[1:-1].replace('""', '"') if field.startswith('"') else field


def _table(path: Path, lines: Sequence[tuple[int, list[str]]], way_out: str, rows_over_lines: int = 0) -> TableFile:
    """Build a table from a header and rows of the same length, each with its line number."""
    (first, header), *others = [(number, fields) for number, fields in lines if fields] or [(1, [])]
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise WhyformerError(f"Line {first} of {str(path)!r} names the column {twice!r} twice.")
    mark = re.search("[;|\t]", header[0]) if len(header) == 1 and path.suffix.lower() == ".csv" else None
    if mark is not None:
        raise WhyformerError(f"{str(path)!r} has {mark[0]!r} between its columns: save it with commas.")
    for number, fields in others:
        if len(fields) != len(header):
            count = f"{len(fields)} field{'s' * (len(fields) != 1)}"
            raise WhyformerError(
                f"Line {number} of {str(path)!r} has {count}, and the header has {len(header)}: {way_out}."
            )
    rows = tuple(dict(zip(header, fields, strict=True)) for _, fields in others)
    return TableFile(path, tuple(header), rows, rows_over_lines)


def _json_lines(path: Path) -> TableFile:
    # Split at line feeds only: a text may contain other characters that str.splitlines splits at.
    lines = [(number, line) for number, line in enumerate(decoded_text(path).split("\n"), start=1) if line.strip()]
    return _table_of_objects(path, [(_parsed(line, f"Line {n} of {str(path)!r}"), f"Line {n}") for n, line in lines])


def _json_list(path: Path) -> TableFile:
    rows = _parsed(decoded_text(path), f"The file {str(path)!r}")
    if not isinstance(rows, list):
        raise WhyformerError(f"The file {str(path)!r} is not a list of rows.")
    return _table_of_objects(path, [(row, f"Entry {number}") for number, row in enumerate(rows)])


def _parsed(text: str, where: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        reason = "it is nested too deeply" if isinstance(error.__cause__, RecursionError) else error
        raise WhyformerError(f"{where} is not JSON: {reason}.") from error


def _table_of_objects(path: Path, rows: Sequence[tuple[Any, str]]) -> TableFile:
    for row, where in rows:
        if not isinstance(row, dict):
            raise WhyformerError(f"{where} of {str(path)!r} is not a row: an object with a field for each column.")
    columns = tuple(dict.fromkeys(name for row, _ in rows for name in row))
    return TableFile(path, columns, tuple(row for row, _ in rows))


def _parquet(path: Path) -> TableFile:
    parquet, arrow = extra("pyarrow.parquet"), extra("pyarrow")
    try:
        with path.open("rb") as file:
            table = parquet.read_table(file)
            return TableFile(path, tuple(table.column_names), tuple(table.to_pylist()))
    except (OSError, ValueError, arrow.ArrowException) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise WhyformerError(f"The file {str(path)!r} is not Parquet: {reason}") from error


FORMATS: dict[str, Callable[[Path], TableFile]] = {
    ".csv": _csv,
    ".tsv": _tsv,
    ".jsonl": _json_lines,
    ".json": _json_list,
    ".parquet": _parquet,
}
